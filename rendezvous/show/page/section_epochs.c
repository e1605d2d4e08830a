/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <string.h>

#include "rendezvous/common/base/real.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/show/page/fields.h"
#include "rendezvous/show/page/html.h"
#include "rendezvous/show/page/phases.h"
#include "rendezvous/show/page/sections.h"

#define EPOCHS_SHOWN_MAX 128
#define EPOCHS_OPEN 8      /* the newest, the others on demand */
#define STRIP_PARTS 200    /* the end of what still runs is a multiple of one of them */
#define STRIP_WIDTH 1000.0 /* in its own units */
#define NUMBER_WIDTH 30.0  /* of an epoch's number, at most */
#define SEGMENT_WIDTH_MIN 1.5
#define NUMBERS_ON_NARROW_SCREENS 10

struct epoch_list {
    const cJSON *epoch[EPOCHS_SHOWN_MAX];
    size_t count;
    double begin_ms, span_ms; /* of the strip */
};

/* -- the strip -------------------------------------------------------------------- */

/* What still runs ends a little in the future, so that the strip seldom changes. */
static double end_of_strip(const struct epoch_list *list, const struct page_view *v)
{
    const cJSON *last = list->epoch[list->count - 1];
    double ended = field_number(last, "ended_ms");
    double span = (double)v->reader->now_ms - list->begin_ms, part = 1000;

    if (ended > 0)
        return ended;
    while (part * STRIP_PARTS < span && part < 1e15)
        part *= 2;
    return list->begin_ms + ceil(real_max(span, 1) / part) * part;
}

static double strip_position(const struct epoch_list *list, const cJSON *epoch)
{
    return ((double)field_count(epoch, "begun_ms") - list->begin_ms) / list->span_ms *
           STRIP_WIDTH;
}

static struct epoch_list list_epochs(const struct page_view *v)
{
    struct epoch_list list = { .count = 0 };
    const cJSON *item = field_items(v->history, "epochs");

    for (; item && list.count < EPOCHS_SHOWN_MAX; item = item->next)
        if (cJSON_IsObject(item))
            list.epoch[list.count++] = item;
    if (list.count) {
        list.begin_ms = (double)field_count(list.epoch[0], "begun_ms");
        list.span_ms = real_max(end_of_strip(&list, v) - list.begin_ms, 1);
    }
    return list;
}

/* The segments of one epoch in the order in which they went, those of `phase` only. */
static void write_epoch_segments(FILE *out, const cJSON *epoch, int phase,
                                 const struct epoch_list *list)
{
    struct page_times t = page_times_read(epoch, field_object(epoch, "lost"));
    bool is_running = !(field_number(epoch, "ended_ms") > 0);
    double x = strip_position(list, epoch);

    for (int i = 0; i < PAGE_PHASE_COUNT && x >= 0 && x < STRIP_WIDTH; i++) {
        double width = (double)t.ms[i] / list->span_ms * STRIP_WIDTH;

        if (i == PAGE_PHASE_PRODUCTIVE && is_running)
            width = STRIP_WIDTH - x;
        if (t.ms[i] && i == phase)
            html_print(out, "M%.1f 0h%.1f", x,
                       real_min(real_max(width, SEGMENT_WIDTH_MIN), STRIP_WIDTH - x));
        x += width;
    }
}

/* One path for each phase; what was lost is drawn over what was productive. */
static void write_strip_segments(FILE *out, const struct epoch_list *list)
{
    html_print(out,
               "<svg y=\"18\" width=\"100%%\" height=\"20\" viewBox=\"0 0 %.0f 1\" "
               "preserveAspectRatio=\"none\"><path class=\"empty\" "
               "d=\"M0 0h%.0fv1h-%.0fz\"/>",
               STRIP_WIDTH, STRIP_WIDTH, STRIP_WIDTH);
    for (int i = 0; i < PAGE_PHASE_COUNT; i++) {
        int phase = (i + PAGE_PHASE_PRODUCTIVE) % PAGE_PHASE_COUNT;

        html_print(out, "<path class=\"s %s\" d=\"M0 0", page_phases[phase].class);
        for (size_t k = 0; k < list->count; k++)
            write_epoch_segments(out, list->epoch[k], phase, list);
        fputs("\"/>", out);
    }
    fputs("</svg>", out);
}

static void write_strip(FILE *out, const struct epoch_list *list,
                        const struct page_view *v)
{
    double free_x = 0;

    html_print(out,
               "<svg class=\"strip%s\" width=\"100%%\" height=\"40\" role=\"img\" "
               "aria-label=\"%zu epochs as a strip; the table below has their "
               "phases\">",
               list->count > NUMBERS_ON_NARROW_SCREENS ? " many" : "", list->count);
    write_strip_segments(out, list);
    for (size_t i = 0; i < list->count; i++) {
        double x = strip_position(list, list->epoch[i]);

        if (x < free_x || x > STRIP_WIDTH - NUMBER_WIDTH)
            continue;
        html_print(out, "<text x=\"%.1f%%\" y=\"12\">%s</text>", x / STRIP_WIDTH * 100,
                   COUNT(field_count(list->epoch[i], "epoch")));
        free_x = x + NUMBER_WIDTH;
    }
    fputs("</svg><div class=\"xs\" aria-hidden=\"true\"><span>", out);
    page_write_time(out, (uint64_t)list->begin_ms, v);
    fputs("</span><span>", out);
    page_write_time(out, (uint64_t)(list->begin_ms + list->span_ms), v);
    fputs("</span></div>\n", out);
}

/* -- the table -------------------------------------------------------------------- */

static const char *words_of_cause(const char *cause)
{
    static const struct {
        const char *cause, *words;
    } rows[] = {
        { "first", "the first" },       { "failure", "✗ failure" },
        { "lost", "! lost node" },      { "hang", "✗ hang" },
        { "scale-up", "+ more nodes" }, { "drain", "− drained node" },
        { "user", "■ user" },           { "none", "" },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].cause, cause) == 0)
            return rows[i].words;
    return cause;
}

static void write_lost_cell(FILE *out, const struct page_times *t)
{
    const char *between = "";

    if (!t->lost_ms) {
        fputs("<td>–</td>", out);
        return;
    }
    html_print(out, "<td>%s <small>", DURATION(t->lost_ms));
    for (int i = 0; i < PAGE_PHASE_PRODUCTIVE; i++)
        if (t->ms[i]) {
            html_print(out, "%s%s&#160;%s", between, page_phases[i].word,
                       DURATION(t->ms[i]));
            if (i == PAGE_PHASE_REWORK && t->steps_again)
                html_print(out, " (%s steps)", COUNT(t->steps_again));
            between = ", ";
        }
    fputs("</small></td>", out);
}

static void write_epoch_row(FILE *out, const cJSON *epoch, const struct page_view *v)
{
    struct page_times t = page_times_read(epoch, field_object(epoch, "lost"));
    uint64_t nodes = field_count(epoch, "nodes"),
             workers = field_count(epoch, "workers");
    const char *text = field_text(epoch, "text");

    html_print(out, "<tr><th scope=\"row\" class=\"num\">%s</th><td>",
               COUNT(field_count(epoch, "epoch")));
    page_write_time(out, field_count(epoch, "begun_ms"), v);
    html_print(out, "</td><td>%s", words_of_cause(field_text(epoch, "cause")));
    if (*text)
        html_print(out, " <small>%s</small>", text);
    fputs("</td>", out);
    write_lost_cell(out, &t);
    html_print(out, "<td class=\"num\">%s</td>",
               t.ms[PAGE_PHASE_PRODUCTIVE] ? DURATION(t.ms[PAGE_PHASE_PRODUCTIVE])
                                           : "–");
    html_print(out, "<td class=\"num\">%s</td><td class=\"num\">%s</td></tr>\n",
               nodes ? COUNT(nodes) : "–", workers ? COUNT(workers) : "–");
}

static void write_epoch_table(FILE *out, const struct epoch_list *list, size_t from,
                              size_t to, const struct page_view *v)
{
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
          "aria-label=\"Table of epochs\"><table class=\"epochs\"><thead><tr>"
          "<th scope=\"col\" class=\"num\">Epoch</th><th scope=\"col\">Began</th>"
          "<th scope=\"col\">Cause</th><th scope=\"col\">Lost</th>"
          "<th scope=\"col\" class=\"num\">Productive</th>"
          "<th scope=\"col\" class=\"num\">Nodes</th>"
          "<th scope=\"col\" class=\"num\">Workers</th></tr></thead><tbody>\n",
          out);
    for (size_t i = to; i > from; i--)
        write_epoch_row(out, list->epoch[i - 1], v);
    fputs("</tbody></table></div>", out);
}

void write_epochs_section(FILE *out, const struct page_view *v)
{
    struct epoch_list list = list_epochs(v);
    uint64_t left_out = field_count(v->history, "epochs_left_out");
    size_t open = list.count > EPOCHS_OPEN && !v->is_report ? list.count - EPOCHS_OPEN
                                                            : 0;

    if (!list.count) {
        fputs("<section id=\"epochs\" hidden=\"hidden\"></section>\n", out);
        return;
    }
    fputs("<section id=\"epochs\" aria-labelledby=\"epochs-t\">"
          "<h2 id=\"epochs-t\">Epochs</h2>",
          out);
    write_strip(out, &list, v);
    write_epoch_table(out, &list, open, list.count, v);
    if (open) {
        html_print(out, "<details><summary>%zu older epoch%s</summary>", open,
                   text_plural(open));
        write_epoch_table(out, &list, 0, open, v);
        fputs("</details>", out);
    }
    if (left_out)
        html_print(out, "<p class=\"note\">%s more in between are not kept.</p>",
                   COUNT(left_out));
    fputs("</section>\n", out);
}
