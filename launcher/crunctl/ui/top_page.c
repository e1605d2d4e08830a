/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ui/top_page.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/crunctl/ui/status_tables.h"
#include "launcher/crunctl/ui/top_graph.h"
#include "launcher/crunctl/ui/top_line.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/wire/protocol/proto.h"

#define BAR_COLUMNS 20
#define TAIL_LINES 4 /* of each stream, beside other things */

struct page {
    const struct top_look *look;
    const struct terminal *terminal;
    const struct job_view *job;
    const struct top_job *more;
    const struct msg_node_status *node;
    const struct top_node *closer; /* NULL: not asked yet */
    FILE *out;
};

__attribute__((format(printf, 3, 4))) static void
print_page_line(const struct page *p, enum text_style style, const char *fmt, ...)
{
    char text[2048];
    struct top_line l;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    top_line_begin(&l, p->terminal, false, p->out);
    top_line_add(&l, style, "%s", text);
    top_line_end(&l);
}

/* -- the keys --------------------------------------------------------------------- */

static void print_help(const struct page *p)
{
    static const char *const lines[] = {
        "Up Down j k           to the next row",
        "PgUp PgDn Home End    by a screen, to the first row, to the last",
        "Enter, Right          open a node or a job; fold the jobs that have ended",
        "Esc, Left             back; in the list: ends the filter",
        "space                 fold a job, or open it",
        "/                     only nodes and jobs with this text in name or state",
        "f                     only what has a fault",
        "s > <                 sort by the next column, or the one before",
        "r I                   turn the order round",
        "l t                   the log of a node; its stacks",
        "q Ctrl-C              quit",
        "",
        "Rows with a fault come first: a node that is lost, quarantined, slow, or",
        "awaited by all other ranks, or one with a GPU error (Xid) or a note.",
    };

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        print_page_line(p, STYLE_PLAIN, "%s", lines[i]);
}

/* -- a node ----------------------------------------------------------------------- */

static void print_node_head(const struct page *p)
{
    const struct msg_node_status *n = p->node;
    const struct msg_heartbeat *h = &n->progress;
    char text[32], word[32], step[64] = "", rate[32] = "", loss[32] = "";
    unsigned fault = top_node_fault(n, p->more, word, sizeof(word));

    print_page_line(p, STYLE_BOLD, "%s of %s", n->host, p->job->name);
    if (h->step)
        snprintf(step, sizeof(step), "  step %" PRIu64, h->step);
    if (*h->steps_per_s)
        snprintf(rate, sizeof(rate), "  %s steps/s", h->steps_per_s);
    if (*h->loss)
        snprintf(loss, sizeof(loss), "  loss %s", h->loss);
    print_page_line(p, fault ? STYLE_WARN : STYLE_PLAIN, "%s%s%s%s  heard %s ago", word,
                    step, rate, loss,
                    clock_format_duration(n->heard_ms, text, sizeof(text)));
    print_page_line(p, STYLE_DIM, "%s%spid %" PRIu32 "  %s", n->address,
                    *n->address ? "  " : "", n->pid, n->containment);
    if (*h->note)
        print_page_line(p, fault ? STYLE_WARN : STYLE_DIM, "%s", h->note);
    if (*p->more->awaited)
        print_page_line(p, STYLE_BAD, "%s", p->more->awaited);
}

static void print_bar(const struct page *p, const char *name, double share,
                      const char *value)
{
    char bar[TOP_GRAPH_BYTES(BAR_COLUMNS)];
    struct top_line l;

    top_line_begin(&l, p->terminal, false, p->out);
    top_line_cell(&l, STYLE_DIM, 8, name);
    top_line_add(
        &l, STYLE_GOOD, "%s",
        top_graph_bar(share, BAR_COLUMNS, p->terminal->utf8, bar, sizeof(bar)));
    top_line_add(&l, STYLE_PLAIN, " %s", value);
    top_line_end(&l);
}

/* "0:97" of a node's list of GPUs. Returns where the next one is. */
static const char *print_one_gpu(const struct page *p, const char *at)
{
    char name[32], value[32], *end, *after;
    unsigned long gpu = strtoul(at, &end, 10);
    long percent = *end == ':' ? strtol(end + 1, &after, 10) : 0;
    bool is_known = *end == ':' && after > end + 1;

    snprintf(name, sizeof(name), "GPU %lu", gpu);
    snprintf(value, sizeof(value), is_known ? "%ld %%" : "-", percent);
    print_bar(p, name, is_known ? (double)percent / 100 : 0, value);
    at += strcspn(at, " ");
    return at + strspn(at, " ");
}

static void print_gpus(const struct page *p)
{
    const struct msg_gpus *g = &p->node->progress.gpus;
    char value[96];

    if (g->count == 0)
        return;
    fputc('\n', p->out);
    for (const char *at = g->each; *at;)
        at = print_one_gpu(p, at);
    snprintf(value, sizeof(value),
             "%.1f of %.1f GiB of the fullest  %" PRIu32 " W  %" PRIu32 " C",
             g->used_mib / 1024.0, g->total_mib / 1024.0, g->watts, g->celsius);
    if (g->total_mib)
        print_bar(p, "memory", (double)g->used_mib / g->total_mib, value);
}

static void print_section(const struct page *p, const char *title)
{
    fputc('\n', p->out);
    print_page_line(p, STYLE_DIM, "%s", title);
}

/* Each line of the text, behind "[rank]: " or blanks. */
static void print_text(const struct page *p, enum text_style style, const char *before,
                       const char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\n");

        print_page_line(p, style, "%s%.*s", before, (int)length, text);
        text += length + (text[length] == '\n');
    }
}

/* "rank 8 waits in all_reduce (train.py:91, in step)" */
static void print_ranks(const struct page *p)
{
    char text[STACKS_BRIEF_MAX_BYTES + 256];

    if (p->closer->stacks.count == 0)
        return;
    print_section(p, "ranks");
    for (uint32_t r = 0; r < p->node->workers; r++)
        for (unsigned i = 0; i < p->closer->stacks.count; i++) {
            struct stack_group one = p->closer->stacks.group[i];
            struct rank_range range = { p->node->first_rank + r,
                                        p->node->first_rank + r };

            if (!rank_ranges_have(&one.ranks, range.first))
                continue;
            one.ranks = (struct rank_ranges){ .range = &range, .count = 1 };
            print_page_line(p, one.waits ? STYLE_PLAIN : STYLE_BOLD, "  %s",
                            stack_group_describe(&one, text, sizeof(text)));
        }
}

/* Those that do the same in one line. */
static void print_stacks(const struct page *p, bool with_threads)
{
    char text[STACKS_BRIEF_MAX_BYTES + 512];

    print_section(p, with_threads ? "stacks" : "ranks");
    for (unsigned i = 0; i < p->closer->stacks.count; i++) {
        const struct stack_group *g = &p->closer->stacks.group[i];

        print_page_line(p, g->waits && !with_threads ? STYLE_PLAIN : STYLE_BOLD, "%s",
                        stack_group_describe(g, text, sizeof(text)));
        if (with_threads)
            print_text(p, STYLE_PLAIN, "  ", g->threads);
    }
}

/* The last lines of a text, which has whole lines. */
static const char *tail_of(const char *text, unsigned lines)
{
    const char *at = text + strlen(text);

    while (at > text && lines > 0)
        if (--at == text || at[-1] == '\n')
            lines--;
    return at;
}

static void print_output(const struct page *p, unsigned lines)
{
    print_section(p, "last output");
    for (size_t i = 0; i < p->closer->outputs; i++) {
        const struct top_output *o = &p->closer->output[i];
        char before[32];

        snprintf(before, sizeof(before), "[%" PRIu32 "]: ", o->rank);
        print_text(p, STYLE_DIM, before, o->why);
        if (o->text)
            print_text(p, o->is_error ? STYLE_WARN : STYLE_PLAIN, before,
                       tail_of(o->text, lines));
    }
}

static void print_node(const struct page *p, enum top_page page)
{
    print_node_head(p);
    if (page == TOP_NODE)
        print_gpus(p);
    if (!p->closer) {
        print_section(p, "asking the node ...");
        return;
    }
    if (*p->closer->error) {
        fputc('\n', p->out);
        print_page_line(p, STYLE_WARN, "%s", p->closer->error);
    }
    if (page == TOP_NODE)
        print_ranks(p);
    if (page == TOP_STACKS)
        print_stacks(p, true);
    else
        print_output(p, page == TOP_LOG ? UINT32_MAX : TAIL_LINES);
}

void top_page_print(const struct top_view *v, const struct top_look *look,
                    const struct terminal *t, FILE *out)
{
    struct page p = { .look = look, .terminal = t, .out = out };

    if (v->page == TOP_HELP) {
        print_help(&p);
        return;
    }
    p.job = top_look_find(look, v->opened, &p.node, &p.more);
    if (look->node && strcmp(look->node->name, v->opened) == 0)
        p.closer = look->node;
    if (!p.job || (v->page != TOP_JOB && !p.node)) {
        print_page_line(&p, STYLE_WARN, "it is not there any more");
    } else if (v->page == TOP_JOB) {
        job_view_print(p.job, p.terminal, p.out);
        /* the stacks are older than the state */
        if (p.closer && p.closer->stacks.count && p.job->status.state == JOB_RUNNING)
            print_stacks(&p, false);
    } else {
        print_node(&p, v->page);
    }
}
