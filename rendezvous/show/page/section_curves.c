/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>

#include "rendezvous/common/base/real.h"
#include "rendezvous/show/page/fields.h"
#include "rendezvous/show/page/html.h"
#include "rendezvous/show/page/sections.h"

#define POINTS_SHOWN_MAX 1024
#define DIVISIONS_MAX 5
#define RESTARTS_DRAWN_MAX 24
#define LOG_RATIO                                                                      \
    100            /* values that differ by this factor are shown by their logarithm */
#define WIDTH 1000 /* of a picture, in its own units */
#define HEIGHT 100

struct curve_points {
    uint64_t time_ms[POINTS_SHOWN_MAX];
    double value[POINTS_SHOWN_MAX]; /* NaN: not known */
    size_t count;
    double least, most, first, last; /* of those that are known */
    size_t known;
};

/* What the picture shows, from its lower to its upper edge. */
struct axis {
    bool is_log; /* low and high are decimal logarithms */
    double low, high;
    int divisions;
};

/* -- points ----------------------------------------------------------------------- */

static void note_point(struct curve_points *p, uint64_t time_ms, double value)
{
    if (isfinite(value)) {
        p->first = p->known++ ? p->first : value;
        p->least = real_min(p->least, value);
        p->most = real_max(p->most, value);
        p->last = value;
    }
    p->time_ms[p->count] = time_ms;
    p->value[p->count++] = value;
}

static struct curve_points *read_points(const struct page_view *v, const char *name)
{
    const cJSON *curve = field_object(v->history, "curve");
    const cJSON *time = field_items(curve, "time_ms"),
                *value = field_items(curve, name);
    struct curve_points *p = calloc(1, sizeof(*p));

    if (!p)
        abort();
    p->least = p->most = p->first = p->last = NAN;
    for (; time && value && p->count < POINTS_SHOWN_MAX;
         time = time->next, value = value->next)
        if (cJSON_IsNumber(time) && time->valuedouble > 0 && time->valuedouble < 1e15 &&
            (!p->count || time->valuedouble > (double)p->time_ms[p->count - 1]))
            note_point(p, (uint64_t)time->valuedouble,
                       cJSON_IsNumber(value) ? value->valuedouble : NAN);
    return p;
}

/* -- axes ------------------------------------------------------------------------- */

#define NEAR 1e-9 /* to a power of ten: it is one */

/* 1, 2 or 5 times a power of ten, not less than x */
static double round_up_nicely(double x)
{
    double power = real_ten_to((int)floor(real_log10(x) + NEAR)), digit = x / power;

    return (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10) * power;
}

static struct axis choose_log_axis(double least, double most)
{
    struct axis a = { .is_log = true, .low = floor(real_log10(least) + NEAR) };
    double decades = ceil(real_log10(most) - NEAR) - a.low;
    double each = ceil(real_max(decades, 1) / DIVISIONS_MAX);

    a.divisions = (int)ceil(real_max(decades, 1) / each);
    a.high = a.low + a.divisions * each;
    return a;
}

static struct axis choose_axis(const struct curve_points *p, bool from_zero)
{
    double low = from_zero ? real_min(p->least, 0) : p->least, most = p->most, each;
    struct axis a = { .is_log = false };

    if (!from_zero && p->least > 1e-300 && p->most / p->least >= LOG_RATIO)
        return choose_log_axis(p->least, p->most);
    low = real_min(real_max(low, -1e300), 1e300),
    most = real_min(real_max(most, -1e300), 1e300);
    if (most / 2 - low / 2 < fabs(most) * 1e-6 || most <= low)
        most = low + real_max(fabs(low) * 0.01, 1e-9);
    each = round_up_nicely((most - low) / (DIVISIONS_MAX - 1));
    a.low = floor(low / each) * each;
    a.divisions = (int)real_min(real_max(ceil((most - a.low) / each), 1),
                                2 * DIVISIONS_MAX);
    a.high = a.low + a.divisions * each;
    return a;
}

static double axis_height(const struct axis *a, double value)
{
    double at = a->is_log ? real_log10(value) : value;

    return HEIGHT * (1 - (at - a->low) / (a->high - a->low));
}

static void write_axis_labels(FILE *out, const struct axis *a)
{
    fputs("<div class=\"ys\" aria-hidden=\"true\">", out);
    for (int i = a->divisions; i >= 0; i--) {
        double at = a->low + i * (a->high - a->low) / a->divisions;

        if (!a->is_log && fabs(at) < (a->high - a->low) * 1e-9)
            at = 0;
        html_print(out, "<span>%.4g</span>", a->is_log ? real_ten_to((int)at) : at);
    }
    fputs("</div>", out);
}

/* -- the picture ------------------------------------------------------------------ */

static double point_x(const struct curve_points *p, uint64_t time_ms)
{
    double span = (double)(p->time_ms[p->count - 1] - p->time_ms[0]);

    return ((double)time_ms - (double)p->time_ms[0]) / real_max(span, 1) * WIDTH;
}

static void write_grid(FILE *out, const struct axis *a)
{
    fputs("<path class=\"grid\" d=\"", out);
    for (int i = 0; i <= a->divisions; i++)
        html_print(out, "M0 %.2fH%d", (double)HEIGHT * i / a->divisions, WIDTH);
    fputs("\"/>", out);
}

/* A line where each epoch but the first began, if they are few enough to tell apart. */
static void write_restarts(FILE *out, const struct curve_points *p,
                           const struct page_view *v)
{
    const cJSON *epoch = field_items(v->history, "epochs");

    if (cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(v->history, "epochs")) >
        RESTARTS_DRAWN_MAX)
        return;
    fputs("<path class=\"cut\" d=\"M0 0", out);
    for (epoch = epoch ? epoch->next : NULL; epoch; epoch = epoch->next) {
        uint64_t begun = field_count(epoch, "begun_ms");

        if (begun > p->time_ms[0] && begun < p->time_ms[p->count - 1])
            html_print(out, "M%.1f 0V%d", point_x(p, begun), HEIGHT);
    }
    fputs("\"/>", out);
}

/* Does an epoch begin between the two times? Then no line connects them. */
static bool is_restart_between(const struct page_view *v, uint64_t from, uint64_t to)
{
    const cJSON *epoch = field_items(v->history, "epochs");

    for (epoch = epoch ? epoch->next : NULL; epoch; epoch = epoch->next)
        if (field_count(epoch, "begun_ms") > from &&
            field_count(epoch, "begun_ms") <= to)
            return true;
    return false;
}

static void write_line(FILE *out, const struct curve_points *p, const struct axis *a,
                       const struct page_view *v)
{
    double x = 0, y = 0;
    bool pen_down = false;

    fputs("<path class=\"line\" d=\"", out);
    for (size_t i = 0; i < p->count; i++) {
        if (pen_down && is_restart_between(v, p->time_ms[i - 1], p->time_ms[i]))
            pen_down = false;
        if (!isfinite(p->value[i]))
            continue;
        x = point_x(p, p->time_ms[i]);
        y = axis_height(a, p->value[i]);
        html_print(out, "%c%.1f %.1f", pen_down ? 'L' : 'M', x, y);
        if (!pen_down)
            fputs("h0", out);
        pen_down = true;
    }
    html_print(out, "\"/><path class=\"dot\" d=\"M%.1f %.1fh0\"/>", x, y);
}

static void write_time_labels(FILE *out, const struct curve_points *p,
                              const struct page_view *v)
{
    uint64_t first = p->time_ms[0], span = p->time_ms[p->count - 1] - first;

    fputs("<div class=\"xs\" aria-hidden=\"true\">", out);
    for (uint64_t i = 0; i <= 2; i++) {
        fputs("<span>", out);
        page_write_time(out, first + span * i / 2, v);
        fputs("</span>", out);
    }
    fputs("</div>", out);
}

struct curve_look {
    const char *id, *field, *title, *unit;
    bool from_zero;
};

static void write_curve(FILE *out, const struct curve_look *look,
                        const struct curve_points *p, const struct page_view *v)
{
    struct axis a = choose_axis(p, look->from_zero);

    html_print(out,
               "<figure class=\"curve\"><figcaption><h3>%s</h3> <b>%s%s</b> "
               "<small>%s to %s%s</small></figcaption><div class=\"plot\">",
               look->title, NUMBER(p->last), look->unit, NUMBER(p->least),
               NUMBER(p->most), a.is_log ? ", logarithmic" : "");
    write_axis_labels(out, &a);
    html_print(out,
               "<svg role=\"img\" aria-labelledby=\"%s-t %s-d\" viewBox=\"0 0 %d %d\" "
               "preserveAspectRatio=\"none\"><title id=\"%s-t\">%s over time</title>"
               "<desc id=\"%s-d\">From %s to %s; the least is %s, the most %s.</desc>",
               look->id, look->id, WIDTH, HEIGHT, look->id, look->title, look->id,
               NUMBER(p->first), NUMBER(p->last), NUMBER(p->least), NUMBER(p->most));
    write_grid(out, &a);
    write_restarts(out, p, v);
    write_line(out, p, &a, v);
    fputs("</svg></div>", out);
    write_time_labels(out, p, v);
    fputs("</figure>\n", out);
}

void write_curves_section(FILE *out, const struct page_view *v)
{
    static const struct curve_look looks[] = {
        { "loss", "loss", "Loss", "", false },
        { "rate", "steps_per_s", "Rate", " steps/s", true },
    };
    bool has_any = false;

    for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]); i++) {
        struct curve_points *p = read_points(v, looks[i].field);

        if (p->known && p->count > 1) {
            if (!has_any)
                fputs("<section id=\"curves\" aria-labelledby=\"curves-t\">"
                      "<h2 id=\"curves-t\">Curves</h2><div class=\"curves\">",
                      out);
            has_any = true;
            write_curve(out, &looks[i], p, v);
        }
        free(p);
    }
    fputs(has_any ? "</div></section>\n"
                  : "<section id=\"curves\" hidden=\"hidden\"></section>\n",
          out);
}
