/* SPDX-License-Identifier: MIT */
#include <ctype.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "rendezvous/common/base/real.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/show/page/fields.h"
#include "rendezvous/show/page/html.h"
#include "rendezvous/show/page/sections.h"

#define SECOND_MS 1000

/* -- the state -------------------------------------------------------------------- */

static struct page_state ended_page_state(const char *result)
{
    if (strcmp(result, "success") == 0)
        return (struct page_state){ "finished", "✓", "done" };
    if (strcmp(result, "user") == 0)
        return (struct page_state){ "stopped", "■", "off" };
    if (strcmp(result, "not-formed") == 0)
        return (struct page_state){ "not started", "✗", "bad" };
    return (struct page_state){ "failed", "✗", "bad" };
}

struct page_state page_job_state(const cJSON *job)
{
    const char *state = field_text(job, "state"), *result = field_text(job, "result");
    bool is_last = (*result && strcmp(result, "none") != 0) ||
                   strcmp(field_text(job, "cause"), "user") == 0;

    if (strcmp(state, "running") == 0)
        return (struct page_state){ "running", "●", "good" };
    if (strcmp(state, "forming") == 0)
        return (struct page_state){ "waiting", "○", "wait" };
    if (strcmp(state, "stopping") == 0)
        return (struct page_state){ is_last ? "stopping" : "restarting", "◐", "wait" };
    if (strcmp(state, "done") == 0)
        return ended_page_state(result);
    return (struct page_state){ *state ? state : "unknown", "✗", "bad" };
}

bool page_job_is_over(const cJSON *job)
{
    const char *state = field_text(job, "state");

    return strcmp(state, "running") != 0 && strcmp(state, "forming") != 0 &&
           strcmp(state, "stopping") != 0;
}

/* -- times ------------------------------------------------------------------------ */

static void write_time_element(FILE *out, uint64_t wall_ms, bool has_age,
                               const struct page_view *v)
{
    time_t seconds = (time_t)(wall_ms / SECOND_MS);
    time_t now = (time_t)(v->reader->now_ms / SECOND_MS);
    struct tm t, today;
    char text[64];
    bool is_today;

    wall_ms -= wall_ms % SECOND_MS;
    if (!wall_ms || !localtime_r(&seconds, &t) || !localtime_r(&now, &today) ||
        t.tm_year > 8000) {
        fputs("–", out);
        return;
    }
    is_today = t.tm_year == today.tm_year && t.tm_yday == today.tm_yday;
    strftime(text, sizeof(text),
             is_today && !v->is_report ? "%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &t);
    fputs("<time", out);
    if (has_age && !v->is_report)
        html_print(out, " data-ms=\"%lu\"", (unsigned long)wall_ms);
    if (has_age && v->has_ages)
        html_print(out, " data-age=\"%s\"",
                   AGE(v->reader->now_ms > wall_ms ? v->reader->now_ms - wall_ms : 0));
    html_print(out, ">%s</time>", text);
}

void page_write_time(FILE *out, uint64_t wall_ms, const struct page_view *v)
{
    write_time_element(out, wall_ms, false, v);
}

void page_write_aged_time(FILE *out, uint64_t wall_ms, const struct page_view *v)
{
    write_time_element(out, wall_ms, true, v);
}

static uint64_t moment_of_age(const struct page_view *v, uint64_t ms)
{
    return v->reader->now_ms > ms ? v->reader->now_ms - ms : 0;
}

/* -- the title line --------------------------------------------------------------- */

static void write_size_fact(FILE *out, const cJSON *job)
{
    uint64_t nodes = field_count(job, "node_count");
    uint64_t workers = field_count(job, "worker_count");
    uint64_t spares = field_count(job, "spare_count");
    uint64_t least = field_count(job, "min_nodes"),
             most = field_count(job, "max_nodes");

    if (!nodes && (!most || page_job_is_over(job)))
        return;
    fputs("<li>", out);
    if (workers)
        html_print(out, "%s worker%s on ", COUNT(workers), text_plural(workers));
    html_print(out, "%s node%s", COUNT(nodes), text_plural(nodes));
    if (spares)
        html_print(out, " + %s spare%s", COUNT(spares), text_plural(spares));
    if (most && (least != most || nodes != most))
        html_print(out, least == most ? " of %s" : " of %s to %s", COUNT(least),
                   COUNT(most));
    fputs("</li>", out);
}

static void write_facts(FILE *out, const struct page_view *v)
{
    const cJSON *job = v->job;
    const char *program = field_text(job, "program");

    fputs("<ul class=\"facts\">", out);
    if (field_count(job, "epoch"))
        html_print(out, "<li>epoch %s</li>", COUNT(field_count(job, "epoch")));
    write_size_fact(out, job);
    if (!isnan(field_number(job, "restarts")))
        html_print(out, "<li>%s of %s restarts</li>",
                   COUNT(field_count(job, "restarts")),
                   COUNT(field_count(job, "max_restarts")));
    if (field_count(job, "started_ms")) {
        fputs("<li>started ", out);
        page_write_aged_time(out, field_count(job, "started_ms"), v);
        fputs("</li>", out);
    }
    if (!isnan(field_number(job, "exit_code")))
        html_print(out, "<li>exit code %s</li>", COUNT(field_count(job, "exit_code")));
    if (*program && strcmp(program, field_text(job, "name")) != 0)
        html_print(out, "<li>%s</li>", program);
    if (strcmp(field_text(job, "job"), field_text(job, "name")) != 0)
        html_print(out, "<li>run id <code>%s</code></li>", field_text(job, "job"));
    fputs("</ul>", out);
}

void write_head_section(FILE *out, const struct page_view *v)
{
    struct page_state state = page_job_state(v->job);
    const char *name = field_text(v->job, "name"), *text = field_text(v->job, "text");
    const char *notice = field_text(v->job, "notice");

    html_print(out,
               "<section id=\"head\" data-title=\"%s: %s – crun\" data-over=\"%s\" "
               "aria-label=\"State\">"
               "<h1>%s%s</h1><p class=\"now\"><span class=\"state %s\" "
               "aria-live=\"polite\"><span aria-hidden=\"true\">%s</span> %s</span>",
               state.word, name,
               strcmp(field_text(v->job, "state"), "done") == 0 ? "yes" : "",
               v->is_report ? "Report of job " : "", *name ? name : "job", state.class,
               state.sign, state.word);
    if (!isnan(field_number(v->job, "state_ms"))) {
        fputs(" since ", out);
        page_write_aged_time(out, moment_of_age(v, field_count(v->job, "state_ms")), v);
    }
    fputs("</p>", out);
    if (*text)
        html_print(out, "<p class=\"why\">%s%s</p>",
                   strcmp(state.word, "running") == 0 ? "last restart: " : "", text);
    if (*notice)
        html_print(out, "<p class=\"why\">%s</p>", notice);
    write_facts(out, v);
    fputs("</section>\n", out);
}

/* -- figures ---------------------------------------------------------------------- */

static double newest_of_curve(const struct page_view *v, const char *name)
{
    const cJSON *item = field_items(field_object(v->history, "curve"), name);
    double value = NAN;

    for (; item; item = item->next)
        value = cJSON_IsNumber(item) && isfinite(item->valuedouble) ? item->valuedouble
                                                                    : value;
    return value;
}

double page_job_rate(const struct page_view *v)
{
    double least = NAN;

    for (size_t i = 0; i < v->nodes.count; i++)
        least = real_min(least, v->nodes.node[i].rate);
    return isnan(least) ? newest_of_curve(v, "steps_per_s") : least;
}

double page_job_loss(const struct page_view *v)
{
    double loss = NAN;

    for (size_t i = 0; i < v->nodes.count; i++) {
        const cJSON *node = v->nodes.node[i].json;
        double told = field_number(node, "loss");

        if (!isnan(told) && field_number(node, "group_rank") == 0)
            return told;
        loss = isnan(loss) ? told : loss;
    }
    return isnan(loss) ? newest_of_curve(v, "loss") : loss;
}

static void write_tile(FILE *out, const char *what, const char *figure,
                       const char *more)
{
    html_print(out, "<div><dt>%s</dt><dd>%s", what, figure);
    if (*more)
        html_print(out, " <small>%s</small>", more);
    fputs("</dd></div>", out);
}

static void write_step_tile(FILE *out, uint64_t step, uint64_t steps, bool is_running)
{
    double share = steps ? 100.0 * (double)step / (double)steps : 0;

    if (steps) {
        share = share > 100 ? 100 : share;
        html_print(out,
                   "<div><dt>Step</dt><dd>%s <small>of %s, %.1f\u00a0%%</small></dd>"
                   "<dd class=\"progress\"><svg viewBox=\"0 0 100 1\" "
                   "preserveAspectRatio=\"none\" aria-hidden=\"true\">"
                   "<rect class=\"p0\" width=\"%.1f\" height=\"1\"/></svg></dd></div>",
                   COUNT(step), COUNT(steps), share, share);
    } else {
        write_tile(out, "Step", step ? COUNT(step) : "–",
                   is_running && !step ? "the workers tell none" : "");
    }
}

/* When the newest checkpoint was written, as the nodes tell it; 0: none does. */
static uint64_t newest_checkpoint_ms(const struct page_view *v)
{
    double least = NAN;

    for (size_t i = 0; i < v->nodes.count; i++)
        least = real_min(least,
                         field_number(v->nodes.node[i].json, "checkpoint_age_ms"));
    return least >= 0 ? moment_of_age(v, (uint64_t)real_min(least, 1e15)) : 0;
}

static void write_left_tile(FILE *out, uint64_t step, uint64_t steps, double rate)
{
    double left_ms = steps > step ? (double)(steps - step) / rate * SECOND_MS : NAN;

    if (left_ms < 1e13)
        write_tile(out, "Time left", DURATION((uint64_t)left_ms), "");
}

void write_figures_section(FILE *out, const struct page_view *v)
{
    uint64_t step = field_count(v->job, "step"), steps = field_count(v->job, "steps");
    bool is_running = strcmp(field_text(v->job, "state"), "running") == 0;
    double rate = page_job_rate(v), loss = page_job_loss(v);
    double goodput = field_number(v->job, "goodput");
    uint64_t checkpoint_ms = v->is_report ? 0 : newest_checkpoint_ms(v);
    char text[FIGURE_SIZE];

    if (!step)
        step = (uint64_t)real_max(0, newest_of_curve(v, "step"));
    fputs("<section id=\"figures\" aria-label=\"Progress\"><dl class=\"tiles\">", out);
    write_step_tile(out, step, steps, is_running);
    if (!isnan(rate) && is_running)
        write_tile(out, "Rate", NUMBER(rate), "steps/s");
    if (is_running && step)
        write_left_tile(out, step, steps, rate);
    if (!isnan(loss))
        write_tile(out, "Loss", NUMBER(loss), "");
    if (!isnan(goodput)) {
        snprintf(text, sizeof(text), "%.1f %%",
                 100 * real_min(real_max(goodput, 0), 1));
        write_tile(out, "Goodput", text, step ? "new steps" : "workers ran");
    }
    if (checkpoint_ms) {
        fputs("<div><dt>Checkpoint</dt><dd class=\"small\">", out);
        page_write_aged_time(out, checkpoint_ms, v);
        fputs("</dd></div>", out);
    }
    fputs("</dl></section>\n", out);
}

/* -- commands --------------------------------------------------------------------- */

/* As a word of a shell, so that it can be pasted whatever it contains. */
static void write_shell_word(FILE *out, const char *word)
{
    size_t plain = 0;

    while (isascii((unsigned char)word[plain]) &&
           (isalnum((unsigned char)word[plain]) || strchr("_./:@+-", word[plain])) &&
           word[plain])
        plain++;
    if (*word && !word[plain] && *word != '-') {
        html_print(out, "%s", word);
        return;
    }
    fputs("&#39;", out);
    for (const char *quote; (quote = strchr(word, '\'')); word = quote + 1) {
        html_bytes(out, word, (size_t)(quote - word));
        fputs("&#39;\\&#39;&#39;", out);
    }
    html_print(out, "%s&#39;", word);
}

static void write_command(FILE *out, const struct page_view *v, const char *verb,
                          const char *rest, const char *purpose)
{
    const char *server = v->reader->server ? v->reader->server : "";
    const char *name = field_text(v->job, "name");

    html_print(out, "<li><code>crunctl %s%s%s ", server, *server ? " " : "", verb);
    write_shell_word(out, *name ? name : field_text(v->job, "job"));
    html_print(out,
               "%s%s</code><button type=\"button\" class=\"copy\">Copy</button>"
               "<span>%s</span></li>",
               *rest ? " " : "", rest, purpose);
}

void write_commands_section(FILE *out, const struct page_view *v)
{
    const cJSON *failure = field_object(v->job, "failure");
    const char *rank = COUNT(field_count(failure, "rank"));

    if (v->is_report) {
        fputs("<section id=\"commands\" hidden=\"hidden\"></section>\n", out);
        return;
    }
    fputs("<section id=\"commands\" aria-labelledby=\"commands-t\">"
          "<h2 id=\"commands-t\">In a terminal</h2><ul class=\"lines\">",
          out);
    if (page_job_is_over(v->job)) {
        write_command(out, v, "logs", rank, "output of a rank");
    } else {
        write_command(out, v, "logs -f", rank, "output of a rank, as it comes");
        write_command(out, v, "stacks", "", "what the ranks do now");
        write_command(out, v, "drain", "NODE", "let a node leave in good order");
        write_command(out, v, "stop", "", "end the job on all its nodes");
    }
    write_command(out, v, "report", "-o report.html", "this page as one file");
    if (!v->reader->sees_output)
        write_command(out, v, "page", "",
                      "a link to this page with output, stacks and failures");
    fputs("</ul></section>\n", out);
}
