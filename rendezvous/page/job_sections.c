/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/page/fields.h"
#include "rendezvous/page/html.h"
#include "rendezvous/page/sections.h"

#define NODES_PER_BLOCK 50

static struct page_state ended_page_state(const char *result)
{
    if (strcmp(result, "success") == 0)
        return (struct page_state){ "finished", "✓", "done" };
    if (strcmp(result, "user") == 0)
        return (struct page_state){ "stopped", "■", "off" };
    return (struct page_state){ strcmp(result, "not-formed") == 0 ? "not started"
                                                                  : "failed",
                                "✗", "bad" };
}

struct page_state page_job_state(const cJSON *job)
{
    const char *state = field_text(job, "state"), *result = field_text(job, "result");

    if (strcmp(state, "running") == 0)
        return (struct page_state){ state, "●", "good" };
    if (strcmp(state, "forming") == 0)
        return (struct page_state){ "waiting", "○", "wait" };
    if (strcmp(state, "stopping") == 0) {
        bool is_last = (*result && strcmp(result, "none") != 0) ||
                       strcmp(field_text(job, "cause"), "user") == 0;

        return (struct page_state){ is_last ? "stopping" : "restarting", "◐", "wait" };
    }
    if (strcmp(state, "done") == 0)
        return ended_page_state(result);
    return (struct page_state){ *state ? state : "unknown", "?", "bad" };
}

void page_write_time(FILE *out, uint64_t wall_ms, const struct page_view *v)
{
    char text[64], full[64];
    uint64_t now = v->reader->now_ms;

    if (!wall_ms) {
        fputs("–", out);
        return;
    }
    html_print(out, "<time datetime=\"%s\" data-ms=\"%lu\"",
               clock_format_rfc3339(wall_ms, full, sizeof(full)),
               (unsigned long)wall_ms);
    if (v->has_ages)
        html_print(out, " data-age=\"%s\"",
                   DURATION(now > wall_ms ? now - wall_ms : 0));
    clock_format_time(wall_ms, text, sizeof(text));
    fprintf(out, ">%.8s</time>", text);
}

void write_head_section(FILE *out, const struct page_view *v)
{
    struct page_state state = page_job_state(v->job);
    uint64_t state_ms = field_count(v->job, "state_ms"), now = v->reader->now_ms;

    html_print(out,
               "<section id=\"head\" data-title=\"%s: %s – crun\"><h1>%s</h1>"
               "<p role=\"status\"><span class=\"state %s\">%s %s</span> since ",
               state.word, field_text(v->job, "name"), field_text(v->job, "name"),
               state.class, state.sign, state.word);
    page_write_time(out, now > state_ms ? now - state_ms : 0, v);
    html_print(out, "</p><p>%s</p></section>\n", field_text(v->job, "text"));
}

void write_figures_section(FILE *out, const struct page_view *v)
{
    html_print(
        out, "<section id=\"figures\"><h2>Progress</h2><p>step %s of %s</p></section>",
        COUNT(field_count(v->job, "step")), COUNT(field_count(v->job, "steps")));
}

void write_failure_section(FILE *out, const struct page_view *v)
{
    const cJSON *f = field_object(v->job, "failure");

    fputs("<section id=\"failure\">", out);
    if (f)
        html_print(out, "<h2>First failure</h2><pre>%s</pre>", field_text(f, "said"));
    fputs("</section>\n", out);
}

void write_events_section(FILE *out, const struct page_view *v)
{
    const cJSON *event = field_items(v->history, "events");

    fputs("<section id=\"events\"><h2>Events</h2><ul>", out);
    for (; event; event = event->next)
        html_print(out, "<li>%s</li>", field_text(event, "text"));
    fputs("</ul></section>\n", out);
}

void write_commands_section(FILE *out, const struct page_view *v)
{
    html_print(out,
               "<section id=\"commands\"><h2>Commands</h2><pre>crunctl %s stop %s</pre>"
               "</section>",
               v->reader->server, field_text(v->job, "job"));
}

size_t node_block_count(const struct page_view *v)
{
    size_t count = 0;

    for (const cJSON *n = field_items(v->job, "nodes"); n; n = n->next)
        count++;
    return (count + NODES_PER_BLOCK - 1) / NODES_PER_BLOCK;
}

void write_node_block(FILE *out, const struct page_view *v, size_t block)
{
    const cJSON *n = field_items(v->job, "nodes");

    for (size_t i = 0; n && i < block * NODES_PER_BLOCK; i++)
        n = n->next;
    html_print(out, "<ul id=\"nodes-%zu\">", block);
    for (size_t i = 0; n && i < NODES_PER_BLOCK; i++, n = n->next)
        html_print(out, "<li>%s %s</li>", field_text(n, "host"),
                   field_text(n, "state"));
    fputs("</ul>\n", out);
}
