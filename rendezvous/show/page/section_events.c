/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <string.h>

#include "rendezvous/common/base/real.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/show/page/fields.h"
#include "rendezvous/show/page/html.h"
#include "rendezvous/show/page/sections.h"

#define EVENTS_SHOWN_MAX 128
#define EVENTS_OPEN 16 /* the newest, the others on demand */

/* -- the failure ------------------------------------------------------------------ */

static void write_failure_facts(FILE *out, const cJSON *f, const struct page_view *v)
{
    static const char *const kinds[][2] = {
        { "exit", "exit code" },      { "signal", "signal" },
        { "exec", "not executable" }, { "lost", "lost" },
        { "hang", "no progress" },    { "agent", "crun failed" },
    };
    const char *kind = field_text(f, "kind"), *words = kind;
    const char *host = field_text(f, "host"), *log = field_text(f, "log");

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        words = strcmp(kinds[i][0], kind) == 0 ? kinds[i][1] : words;
    fputs("<dl class=\"facts\">", out);
    if (strcmp(kind, "lost") != 0) {
        fputs("<div><dt>rank</dt><dd>", out);
        page_write_rank_link(out, field_count(f, "rank"), v);
        html_print(out, " <small>local rank %s, pid %lu</small></dd></div>",
                   COUNT(field_count(f, "local_rank")),
                   (unsigned long)field_count(f, "pid"));
    }
    if (*host)
        html_print(out, "<div><dt>node</dt><dd>%s</dd></div>", host);
    if (field_count(f, "time_ms")) {
        fputs("<div><dt>when</dt><dd>", out);
        page_write_time(out, field_count(f, "time_ms"), v);
        fputs("</dd></div>", out);
    }
    html_print(out, "<div><dt>what</dt><dd>%s", words);
    if (strcmp(kind, "exit") == 0 || strcmp(kind, "signal") == 0)
        html_print(out, " %.0f",
                   real_min(real_max(field_number(f, "code"), -1e9), 1e9));
    fputs("</dd></div>", out);
    if (*log)
        html_print(out, "<div><dt>log</dt><dd><code>%s</code></dd></div>", log);
    fputs("</dl>", out);
}

static void write_output(FILE *out, const char *label, const char *text)
{
    html_print(out, "<pre tabindex=\"0\" role=\"region\" aria-label=\"%s\">\n%s</pre>",
               label, text);
}

void write_failure_section(FILE *out, const struct page_view *v)
{
    const cJSON *f = field_object(v->job, "failure");
    const char *said = field_text(f, "said"), *report = field_text(v->job, "report");

    if (!f && !*report) {
        fputs("<section id=\"failure\" hidden=\"hidden\"></section>\n", out);
        return;
    }
    html_print(out,
               "<section id=\"failure\" aria-labelledby=\"failure-t\">"
               "<h2 id=\"failure-t\">%s</h2>",
               page_job_is_over(v->job) ? "First failure" : "Latest failure");
    if (f)
        write_failure_facts(out, f, v);
    if (*said)
        write_output(out, "What it said last", said);
    if (*report) {
        fputs(v->is_report ? "<details open=\"open\">" : "<details>", out);
        fputs("<summary>The whole report</summary>", out);
        write_output(out, "The whole report", report);
        fputs("</details>", out);
    }
    fputs("</section>\n", out);
}

/* -- events ----------------------------------------------------------------------- */

static void write_event_item(FILE *out, const cJSON *event, const struct page_view *v)
{
    const char *kind = field_text(event, "kind"), *text = field_text(event, "text");
    const char *node = field_text(event, "node");

    fputs("<li>", out);
    page_write_time(out, field_count(event, "time_ms"), v);
    html_print(out, " <b>%s</b> ", kind);
    if (*node && !strstr(text, node))
        html_print(out, "<span>%s</span> ", node);
    html_print(out, "%s</li>\n", text);
}

static void write_event_list(FILE *out, const cJSON *const *event, size_t count,
                             const struct page_view *v)
{
    fputs("<ul class=\"events\">\n", out);
    for (size_t i = count; i > 0; i--)
        write_event_item(out, event[i - 1], v);
    fputs("</ul>", out);
}

void write_events_section(FILE *out, const struct page_view *v)
{
    const cJSON *event[EVENTS_SHOWN_MAX], *item = field_items(v->history, "events");
    size_t count = 0, older;

    for (; item; item = item->next)
        if (cJSON_IsObject(item)) {
            if (count == EVENTS_SHOWN_MAX)
                memmove(event, event + 1, --count * sizeof(*event));
            event[count++] = item;
        }
    if (!count) {
        fputs("<section id=\"events\" hidden=\"hidden\"></section>\n", out);
        return;
    }
    older = count > EVENTS_OPEN && !v->is_report ? count - EVENTS_OPEN : 0;
    fputs("<section id=\"events\" aria-labelledby=\"events-t\">"
          "<h2 id=\"events-t\">Newest events</h2>",
          out);
    write_event_list(out, event + older, count - older, v);
    if (older) {
        html_print(out, "<details><summary>%zu older event%s</summary>", older,
                   text_plural(older));
        write_event_list(out, event, older, v);
        fputs("</details>", out);
    }
    fputs("</section>\n", out);
}
