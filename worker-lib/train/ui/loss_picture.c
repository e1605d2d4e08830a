/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/ui/loss_picture.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker-lib/train/ui/progress_bar.h"

#define COLUMNS_MAX 100 /* of the terminal that are used */
#define COLUMNS_MIN 24  /* of the curve */
#define DOTS_MAX (2 * COLUMNS_MAX)
#define LABEL_COLUMNS 8 /* of a loss, on both sides */
#define DECADE 10

/* How a character shows dots: bit y * wide + x for the dot in column x and row y. */
struct glyphs {
    int wide, high;
    const char *axis, *tick, *corner, *line;
};

static const struct glyphs braille = { 2, 4, "│", "┤", "└", "─" };
static const struct glyphs ascii = { 1, 3, "|", "+", "+", "-" };

struct picture {
    const struct picture_style *style;
    const struct glyphs *glyphs;
    int columns;            /* of the curve */
    double loss[DOTS_MAX];  /* the mean in each column of dots, */
    double steps[DOTS_MAX]; /* if there are any */
    double least, most;     /* of these means */
    double first, last;
    int digits; /* that tell these apart */
    bool log;
    uint8_t cell[PICTURE_ROWS][COLUMNS_MAX];
};

static int count_dots(const struct picture *p)
{
    return p->columns * p->glyphs->wide;
}

/* -- the axes ------------------------------------------------------------------- */

static void take_means(struct picture *p, const struct loss_curve *c)
{
    double begin = (double)c->point[0].step;
    double length = (double)c->point[c->count - 1].step - begin;

    for (unsigned i = 0; i < c->count; i++) {
        const struct loss_point *point = &c->point[i];
        long x = lround(((double)point->step - begin) / length * (count_dots(p) - 1));

        p->loss[x] += point->loss;
        p->steps[x] += point->steps;
    }
    for (int x = 0; x < count_dots(p); x++)
        if (p->steps[x] > 0)
            p->loss[x] /= p->steps[x];
}

static void choose_axes(struct picture *p)
{
    p->first = p->least = p->most = p->loss[0];
    for (int x = 1; x < count_dots(p); x++) {
        if (p->steps[x] <= 0)
            continue;
        p->last = p->loss[x];
        p->least = fmin(p->least, p->last);
        p->most = fmax(p->most, p->last);
    }
    p->log = p->least > 0 && p->most >= DECADE * p->least;
    p->digits = 3;
    if (p->most >= .1 && p->most < 1000 && p->most - p->least < .01 * p->most)
        p->digits = 6;
}

/* The row of dots, counted from the top. */
static double row_of_loss(const struct picture *p, double loss)
{
    int last = PICTURE_ROWS * p->glyphs->high - 1;
    double part = p->log               ? log(p->most / loss) / log(p->most / p->least)
                  : p->most > p->least ? (p->most - loss) / (p->most - p->least)
                                       : .5;

    return part * last;
}

/* The row of characters. */
static int line_of_loss(const struct picture *p, double loss)
{
    return (int)lround(row_of_loss(p, loss)) / p->glyphs->high;
}

/* -- the curve ------------------------------------------------------------------ */

static void draw_dot(struct picture *p, int x, int y)
{
    const struct glyphs *g = p->glyphs;

    p->cell[y / g->high][x / g->wide] |= (uint8_t)(1 << (y % g->high * g->wide +
                                                         x % g->wide));
}

/* A line between the middles of two columns of dots. */
static void draw_line(struct picture *p, int from, int to)
{
    double first = row_of_loss(p, p->loss[from]), last = row_of_loss(p, p->loss[to]);
    int steps = (int)fmax(to - from, fabs(last - first) + 1);

    for (int i = 0; i <= steps; i++)
        draw_dot(p, from + (int)lround((double)(to - from) * i / steps),
                 (int)lround(first + (last - first) * i / steps));
}

static void draw_curve(struct picture *p)
{
    int before = 0;

    for (int x = 1; x < count_dots(p); x++)
        if (p->steps[x] > 0) {
            draw_line(p, before, x);
            before = x;
        }
}

/* -- the text ------------------------------------------------------------------- */

static void put_braille(FILE *out, unsigned dots)
{
    static const uint8_t bits[] = { 0x01, 0x08, 0x02, 0x10, 0x04, 0x20, 0x40, 0x80 };
    unsigned shown = 0;

    for (unsigned i = 0; i < sizeof(bits); i++)
        if (dots & 1u << i)
            shown |= bits[i];
    fprintf(out, "\xe2%c%c", (char)(0xa0 | shown >> 6), (char)(0x80 | (shown & 0x3f)));
}

/* Without what is empty at the end, unless something follows. */
static void put_cells(const struct picture *p, FILE *out, const uint8_t *cells,
                      bool all)
{
    static const char shapes[] = " '-|.:||";
    int used = p->columns;

    while (!all && used > 0 && !cells[used - 1])
        used--;
    for (int i = 0; i < used; i++)
        if (p->style->utf8 && cells[i])
            put_braille(out, cells[i]);
        else
            putc(shapes[cells[i]], out);
}

static const char *colour_of(const struct picture *p, const char *colour)
{
    return p->style->colour ? colour : "";
}

static void put_line(const struct picture *p, FILE *out, int line)
{
    bool has_last = line == line_of_loss(p, p->last);
    char label[32] = "", last[32] = "";

    if (line == 0 || line == PICTURE_ROWS - 1)
        snprintf(label, sizeof(label), "%.*g", p->digits,
                 line == 0 ? p->most : p->least);
    else if (line == line_of_loss(p, p->first))
        snprintf(label, sizeof(label), "%.*g", p->digits, p->first);
    if (has_last)
        snprintf(last, sizeof(last), " %.*g", p->digits, p->last);
    fprintf(out, "%*s %s%s%s", LABEL_COLUMNS, label, colour_of(p, "\033[90m"),
            *label ? p->glyphs->tick : p->glyphs->axis, colour_of(p, "\033[32m"));
    put_cells(p, out, p->cell[line], has_last);
    fprintf(out, "%s%s\n", colour_of(p, "\033[0m"), last);
}

/* "step 1          loss, log scale          1,250", as far as there is room. */
static void put_steps(const struct picture *p, FILE *out, const struct loss_curve *c)
{
    const char *what = p->log ? "loss, log scale" : "loss";
    char first[48], last[48], number[32];
    int room;

    snprintf(first, sizeof(first), "step %s",
             format_number(c->point[0].step - (uint64_t)c->point[0].steps + 1, number,
                           sizeof(number)));
    format_number(c->point[c->count - 1].step, last, sizeof(last));
    room = p->columns - (int)strlen(first) - (int)strlen(last) - (int)strlen(what);
    if (room < 4) {
        room += (int)strlen(what);
        what = "";
    }
    room = room < 2 ? 2 : room;
    fprintf(out, "%*s%s%*s%s%*s%s", LABEL_COLUMNS + 2, "", first, room / 2, "", what,
            room - room / 2, "", last);
}

static void put_picture(const struct picture *p, FILE *out, const struct loss_curve *c)
{
    for (int line = 0; line < PICTURE_ROWS; line++)
        put_line(p, out, line);
    fprintf(out, "%*s%s%s", LABEL_COLUMNS + 1, "", colour_of(p, "\033[90m"),
            p->glyphs->corner);
    for (int i = 0; i < p->columns; i++)
        fputs(p->glyphs->line, out);
    fprintf(out, "%s\n", colour_of(p, "\033[0m"));
    put_steps(p, out, c);
}

char *loss_picture_draw(const struct loss_curve *c, const struct picture_style *style)
{
    struct picture p = { .style = style, .glyphs = style->utf8 ? &braille : &ascii };
    int columns = style->columns < COLUMNS_MAX ? style->columns : COLUMNS_MAX;
    char *text = NULL;
    size_t size;
    FILE *out;

    p.columns = columns - 2 * LABEL_COLUMNS - 4;
    if (c->count < 2 || p.columns < COLUMNS_MIN)
        return NULL;
    take_means(&p, c);
    choose_axes(&p);
    draw_curve(&p);
    out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    put_picture(&p, out, c);
    fclose(out);
    return text;
}

bool locale_is_utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);

        if (value && *value)
            return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}
