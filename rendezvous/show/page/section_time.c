/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/page/fields.h"
#include "rendezvous/show/page/html.h"
#include "rendezvous/show/page/phases.h"
#include "rendezvous/show/page/sections.h"

static double share_of(uint64_t ms, const struct page_times *t)
{
    return t->all_ms ? 100.0 * (double)ms / (double)t->all_ms : 0;
}

/* Productive time first: it is the one that is to be compared. */
static void write_time_bar(FILE *out, const struct page_times *t, const char *title)
{
    double x = 0;

    html_print(out,
               "<div class=\"timebar\"><h3>%s</h3><svg class=\"bar\" role=\"img\" "
               "aria-label=\"%s: %.1f %% %s\" viewBox=\"0 0 100 1\" "
               "preserveAspectRatio=\"none\">",
               title, title, share_of(t->ms[PAGE_PHASE_PRODUCTIVE], t),
               t->is_unplaced ? "training" : "productive");
    for (int i = 0; i < PAGE_PHASE_COUNT; i++) {
        int phase = (i + PAGE_PHASE_PRODUCTIVE) % PAGE_PHASE_COUNT;
        double width = share_of(t->ms[phase], t);

        if (width >= 0.05)
            html_print(out,
                       "<rect class=\"%s\" x=\"%.1f\" width=\"%.1f\" height=\"1\"/>",
                       page_phases[phase].class, x, width);
        x += width;
    }
    fputs("</svg></div>", out);
}

static void write_share_cells(FILE *out, uint64_t ms, const struct page_times *t)
{
    if (ms)
        html_print(out, "<td class=\"num\">%s</td><td class=\"num\">%.1f&#160;%%</td>",
                   DURATION(ms), share_of(ms, t));
    else
        fputs("<td class=\"num\">–</td><td></td>", out);
}

static void write_phase_row(FILE *out, int phase, const struct page_times *all,
                            const struct page_times *last)
{
    bool is_training = all->is_unplaced && phase == PAGE_PHASE_PRODUCTIVE;

    if (all->is_unplaced && phase == PAGE_PHASE_REWORK)
        return;
    html_print(
        out,
        "<tr><th scope=\"row\"><svg class=\"key\" viewBox=\"0 0 1 1\" "
        "aria-hidden=\"true\"><rect class=\"%s\" width=\"1\" height=\"1\"/></svg>"
        "%s <small>%s</small></th>",
        page_phases[phase].class, is_training ? "training" : page_phases[phase].word,
        is_training ? "new steps, and steps done again" : page_phases[phase].what);
    write_share_cells(out, all->ms[phase], all);
    if (last)
        html_print(out, "<td class=\"num\">%s</td>",
                   last->ms[phase] && phase != PAGE_PHASE_PRODUCTIVE
                       ? DURATION(last->ms[phase])
                       : "–");
    fputs("</tr>", out);
}

static const cJSON *last_item(const cJSON *item)
{
    while (item && item->next)
        item = item->next;
    return item;
}

void write_time_section(FILE *out, const struct page_view *v)
{
    const cJSON *time = field_object(v->job, "time");
    const cJSON *restart = field_object(v->job, "last_restart");
    const cJSON *epoch = last_item(field_items(v->history, "epochs"));
    struct page_times all = page_times_read(time, time);
    struct page_times last = page_times_read(restart, restart);
    struct page_times newest = page_times_read(epoch, field_object(epoch, "lost"));

    if (!all.all_ms) {
        fputs("<section id=\"time\" hidden=\"hidden\"></section>\n", out);
        return;
    }
    fputs("<section id=\"time\" aria-labelledby=\"time-t\">"
          "<h2 id=\"time-t\">Where the time went</h2>",
          out);
    write_time_bar(out, &all, "Since the start");
    if (newest.all_ms && newest.all_ms < all.all_ms)
        write_time_bar(out, &newest, "The newest epoch");
    fputs("<table><thead><tr><th scope=\"col\">Phase</th>"
          "<th scope=\"colgroup\" colspan=\"2\" class=\"num\">Since the start</th>",
          out);
    if (restart)
        fputs("<th scope=\"col\" class=\"num\">Last restart</th>", out);
    fputs("</tr></thead><tbody>", out);
    for (int i = 0; i < PAGE_PHASE_COUNT; i++)
        write_phase_row(out, (i + PAGE_PHASE_PRODUCTIVE) % PAGE_PHASE_COUNT, &all,
                        restart ? &last : NULL);
    fputs("</tbody></table>", out);
    if (all.steps_again && !all.is_unplaced)
        html_print(out, "<p class=\"note\">%s steps were done again.</p>",
                   COUNT(all.steps_again));
    fputs("</section>\n", out);
}
