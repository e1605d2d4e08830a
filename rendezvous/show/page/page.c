/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/page/page.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/version.h"
#include "rendezvous/show/page/fields.h"
#include "rendezvous/show/page/html.h"
#include "rendezvous/show/page/page_assets.h"
#include "rendezvous/show/page/sections.h"

#define REFRESH_SECONDS 10 /* without a script, and of the list */

/* -- the document ----------------------------------------------------------------- */

struct document {
    const char *title, *state; /* state: "" for none; the tab tells it */
    const char *live_job;      /* the page of this job is kept up to date; NULL */
    bool is_report, is_list;
    const struct page_reader *reader;
};

static void begin_document(FILE *out, const struct document *d)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>", out);
    html_print(out, "<title>%s%s%s – crun</title>", d->state, *d->state ? ": " : "",
               d->title);
    fputs("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>"
          "<meta name=\"color-scheme\" content=\"light dark\"/>"
          "<meta name=\"referrer\" content=\"no-referrer\"/>"
          "<link rel=\"icon\" href=\"data:,\"/>",
          out);
    if (d->is_report)
        html_print(out, "<meta http-equiv=\"Content-Security-Policy\" content=\"%s\"/>",
                   page_report_policy());
    else
        fprintf(out,
                "<noscript><meta http-equiv=\"refresh\" content=\"%d\"/></noscript>",
                REFRESH_SECONDS);
    fprintf(out, "<style>%s</style></head>\n<body", page_style().text);
    if (d->live_job) {
        fputs(" data-live=\"/jobs/", out);
        html_path_segment(out, d->live_job);
        html_print(out, "/live\" data-now=\"%lu\"", (unsigned long)d->reader->now_ms);
    }
    if (d->is_list)
        fprintf(out, " data-refresh=\"%d\"", REFRESH_SECONDS);
    fputs("><a class=\"skip\" href=\"#main\">Skip to the content</a>", out);
    if (!d->is_report && !d->is_list && d->reader->has_list)
        fputs("<nav aria-label=\"Pages\"><a href=\"/\">All jobs</a></nav>", out);
    if (d->live_job)
        fputs("<p id=\"live\" class=\"bad\" role=\"status\" hidden=\"hidden\"></p>",
              out);
    fputs("<main id=\"main\">\n", out);
}

static void end_document(FILE *out, const struct document *d)
{
    char text[64];
    uint64_t now = d->reader->now_ms;

    /* a live page is not of the time at which it was loaded */
    fprintf(out,
            "</main>\n<footer><p>crun " CRUN_VERSION "<span%s> · %s %s</span></p>"
            "</footer>",
            d->live_job ? " class=\"loaded\"" : "", d->is_report ? "written" : "as of",
            now ? clock_format_date(now, text, sizeof(text)) : "an unknown time");
    if (!d->is_report)
        fprintf(out, "<script>%s</script>", page_script().text);
    fputs("</body></html>\n", out);
}

/* -- a job ------------------------------------------------------------------------ */

static const struct {
    const char *id;
    page_part_fn *write;
} parts_above_blocks[] = {
    { "head", write_head_section },       { "figures", write_figures_section },
    { "curves", write_curves_section },   { "time", write_time_section },
    { "failure", write_failure_section }, { "epochs", write_epochs_section },
    { "nodes", write_nodes_section },
}, parts_below_blocks[] = {
    { "events", write_events_section },
    { "commands", write_commands_section },
};

#define PARTS(array) (sizeof(array) / sizeof(*(array)))

static struct page_view begin_view(const cJSON *job, const struct page_reader *reader)
{
    struct page_view v = { .job = job,
                           .history = field_object(job, "history"),
                           .reader = reader };

    node_list_init(&v.nodes, job);
    return v;
}

static void end_view(struct page_view *v)
{
    node_list_fini(&v->nodes);
}

static void write_job_document(FILE *out, const struct page_view *v)
{
    struct document d = { .title = field_text(v->job, "name"),
                          .state = page_job_state(v->job).word,
                          .live_job = v->is_report ? NULL : field_text(v->job, "job"),
                          .is_report = v->is_report,
                          .reader = v->reader };

    begin_document(out, &d);
    for (size_t i = 0; i < PARTS(parts_above_blocks); i++)
        parts_above_blocks[i].write(out, v);
    fputs("<div id=\"blocks\">\n", out);
    for (size_t i = 0; i < node_block_count(v); i++)
        write_node_block(out, v, i);
    fputs("</div>\n", out);
    for (size_t i = 0; i < PARTS(parts_below_blocks); i++)
        parts_below_blocks[i].write(out, v);
    end_document(out, &d);
}

void page_write_job(FILE *out, const cJSON *job, const struct page_reader *reader)
{
    struct page_view v = begin_view(job, reader);

    v.has_ages = true;
    write_job_document(out, &v);
    end_view(&v);
}

void page_write_report(FILE *out, const cJSON *job, const struct page_reader *reader)
{
    struct page_view v = begin_view(job, reader);

    v.is_report = true;
    write_job_document(out, &v);
    end_view(&v);
}

/* The HTML of one part, to be given away and freed. */
struct page_part {
    FILE *out;
    char *html;
    size_t size;
};

static void begin_part(struct page_part *part)
{
    *part = (struct page_part){ .html = NULL };
    part->out = open_memstream(&part->html, &part->size);
    if (!part->out)
        abort();
}

static void end_part(struct page_part *part, const char *id, page_section_fn *use,
                     void *arg)
{
    fclose(part->out);
    use(arg, id, part->html, part->size);
    free(part->html);
}

void page_each_section(const cJSON *job, const struct page_reader *reader,
                       page_section_fn *use, void *arg)
{
    struct page_view v = begin_view(job, reader);
    struct page_part part;
    char id[32];

    for (size_t i = 0; i < PARTS(parts_above_blocks); i++) {
        begin_part(&part);
        parts_above_blocks[i].write(part.out, &v);
        end_part(&part, parts_above_blocks[i].id, use, arg);
    }
    for (size_t i = 0; i < node_block_count(&v); i++) {
        begin_part(&part);
        write_node_block(part.out, &v, i);
        snprintf(id, sizeof(id), "nodes-%zu", i);
        end_part(&part, id, use, arg);
    }
    for (size_t i = 0; i < PARTS(parts_below_blocks); i++) {
        begin_part(&part);
        parts_below_blocks[i].write(part.out, &v);
        end_part(&part, parts_below_blocks[i].id, use, arg);
    }
    end_view(&v);
}

/* -- other pages ------------------------------------------------------------------ */

static void write_job_row(FILE *out, const cJSON *job, const struct page_reader *reader)
{
    struct page_view v = { .job = job, .reader = reader, .has_ages = true };
    struct page_state state = page_job_state(job);
    const char *name = field_text(job, "name");
    uint64_t step = field_count(job, "step"), state_ms = field_count(job, "state_ms");
    uint64_t now = reader->now_ms;
    double goodput = field_number(job, "goodput");

    fputs("<tr><th scope=\"row\"><a href=\"/jobs/", out);
    html_path_segment(out, field_text(job, "job"));
    html_print(out, "\">%s</a></th><td><span class=\"state %s\">%s %s</span></td><td>",
               *name ? name : "job", state.class, state.sign, state.word);
    page_write_aged_time(out, now > state_ms ? now - state_ms : 0, &v);
    html_print(out, "</td><td class=\"num\">%s</td><td class=\"num\">%s</td>",
               COUNT(field_count(job, "node_count")),
               COUNT(field_count(job, "restarts")));
    if (isnan(goodput))
        fputs("<td class=\"num\">–</td>", out);
    else
        html_print(out, "<td class=\"num\">%.1f&#160;%%</td>", 100 * goodput);
    html_print(out, "<td class=\"num\">%s</td></tr>\n", step ? COUNT(step) : "–");
}

void page_write_list(FILE *out, const cJSON *jobs, const struct page_reader *reader)
{
    struct document d = {
        .title = "Jobs", .state = "", .is_list = true, .reader = reader
    };
    const cJSON *job = cJSON_IsArray(jobs) ? jobs->child : NULL;

    begin_document(out, &d);
    fputs("<h1>Jobs</h1>", out);
    if (!job)
        fputs("<p>There are no jobs.</p>", out);
    else
        fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
              "aria-label=\"Table of jobs\"><table class=\"list\"><thead><tr>"
              "<th scope=\"col\">Job</th><th scope=\"col\">State</th>"
              "<th scope=\"col\">Since</th><th scope=\"col\" class=\"num\">Nodes</th>"
              "<th scope=\"col\" class=\"num\">Restarts</th>"
              "<th scope=\"col\" class=\"num\">Goodput</th>"
              "<th scope=\"col\" class=\"num\">Step</th></tr></thead><tbody>\n",
              out);
    for (const cJSON *item = job; item; item = item->next)
        write_job_row(out, item, reader);
    if (job)
        fputs("</tbody></table></div>", out);
    end_document(out, &d);
}

static void write_rank_text(FILE *out, const char *id, const char *title,
                            const char *note, const char *text)
{
    html_print(out, "<section id=\"%s\" aria-labelledby=\"%s-title\">", id, id);
    html_print(out, "<h2 id=\"%s-title\">%s</h2>", id, title);
    if (note && *note)
        html_print(out, "<p>%s</p>", note);
    else if (!text)
        fputs("<p>There is none.</p>", out);
    if (text)
        html_print(out, "<pre tabindex=\"0\">\n%s</pre>", text);
    fputs("</section>\n", out);
}

/* Links to the pages of the ranks before and after it. */
static void write_neighbours(FILE *out, const cJSON *job, uint32_t rank)
{
    for (int step = -1; step <= 1; step += 2) {
        if ((!rank && step < 0) ||
            (uint64_t)rank + (step > 0 ? 1 : 0) >= field_count(job, "worker_count"))
            continue;
        fputs(" · <a href=\"/jobs/", out);
        html_path_segment(out, field_text(job, "job"));
        html_print(out, "/ranks/%u\">rank %u</a>", rank + (uint32_t)step,
                   rank + (uint32_t)step);
    }
}

/* The stacks are shown on demand: to write them interrupts the rank for a moment. */
static void write_rank_stacks(FILE *out, const cJSON *job, const struct page_rank *rank)
{
    bool asked = rank->stacks || (rank->stacks_note && *rank->stacks_note);

    fputs("<section id=\"stacks\" aria-labelledby=\"stacks-title\">"
          "<h2 id=\"stacks-title\">Stacks</h2>",
          out);
    if (asked)
        html_print(out, "<p>%s</p>", rank->stacks_note);
    if (rank->stacks)
        html_print(out, "<pre tabindex=\"0\">\n%s</pre>", rank->stacks);
    fputs("<p><a href=\"/jobs/", out);
    html_path_segment(out, field_text(job, "job"));
    html_print(out, "/ranks/%u?stacks=1\">%s</a></p></section>\n", rank->rank,
               asked ? "Ask again" : "Show what the rank does now");
}

void page_write_rank(FILE *out, const cJSON *job, const struct page_rank *rank,
                     const struct page_reader *reader)
{
    uint64_t workers = field_count(job, "worker_count");
    char title[32];
    struct document d = { .title = title, .state = "", .reader = reader };

    snprintf(title, sizeof(title), "rank %u", rank->rank);
    begin_document(out, &d);
    html_print(out, "<h1>Rank %u%s%s</h1><p>Job <a href=\"/jobs/", rank->rank,
               rank->host ? " on " : "", rank->host);
    html_path_segment(out, field_text(job, "job"));
    html_print(out, "\">%s</a>", field_text(job, "name"));
    write_neighbours(out, job, rank->rank);
    fputs("</p>", out);
    if (workers && rank->rank >= workers)
        html_print(out, "<p>There is no rank %u: the job has %u worker%s.</p>",
                   rank->rank, (unsigned)workers, text_plural(workers));
    write_rank_text(out, "output", "Last output", rank->output_note, rank->output);
    write_rank_stacks(out, job, rank);
    end_document(out, &d);
}

void page_write_error(FILE *out, unsigned status, const char *text,
                      const struct page_reader *reader)
{
    char title[16];
    struct document d = { .title = title, .state = "", .reader = reader };

    snprintf(title, sizeof(title), "%u", status);
    begin_document(out, &d);
    html_print(out, "<h1>%u</h1><p>%s</p>", status, text);
    end_document(out, &d);
}
