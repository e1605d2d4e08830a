/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ui/text_table.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"

#define GAP 2
#define LAST_COLUMN_MIN 24 /* a last column that is cut keeps so much */

struct text_table {
    const struct text_column *column;
    unsigned columns;
    struct text_cell {
        char *content;
        enum text_style style;
    } * cell; /* row by row */
    size_t cells;
};

struct text_table *text_table_create(const struct text_column *columns)
{
    struct text_table *t = xcalloc(1, sizeof(*t));

    t->column = columns;
    while (columns[t->columns].heading)
        t->columns++;
    return t;
}

void text_table_destroy(struct text_table *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->cells; i++)
        free(t->cell[i].content);
    free(t->cell);
    free(t);
}

void text_table_cell(struct text_table *t, const char *fmt, ...)
{
    char text[1024], shown[2048];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    /* room grows by doubling: whenever the count is a power of two */
    if ((t->cells & (t->cells - 1)) == 0)
        t->cell = xrealloc(t->cell, (t->cells ? 2 * t->cells : 1) * sizeof(*t->cell));
    t->cell[t->cells++] = (struct text_cell){
        .content = xstrdup(*text ? text_printable(text, shown, sizeof(shown)) : "-")
    };
}

void text_table_style(struct text_table *t, enum text_style style)
{
    t->cell[t->cells - 1].style = style;
}

/* The width of a column, or 0 if it is empty in all rows. */
static size_t width_of(const struct text_table *t, unsigned column)
{
    size_t width = strlen(t->column[column].heading);
    bool is_used = false;

    for (size_t i = column; i < t->cells; i += t->columns) {
        size_t cell = terminal_text_width(t->cell[i].content);

        is_used |= strcmp(t->cell[i].content, "-") != 0;
        width = cell > width ? cell : width;
    }
    return is_used ? width : 0;
}

static size_t sum_widths(const struct text_table *t, const size_t *width)
{
    size_t sum = 0;

    for (unsigned c = 0; c < t->columns; c++)
        sum += width[c] ? width[c] + GAP : 0;
    return sum ? sum - GAP : 0;
}

/* The columns that are there and may go: the one to go first, or `columns`. */
static unsigned next_to_drop(const struct text_table *t, const size_t *width)
{
    unsigned found = t->columns;

    for (unsigned c = 0; c < t->columns; c++)
        if (width[c] && t->column[c].drop &&
            (found == t->columns || t->column[c].drop > t->column[found].drop))
            found = c;
    return found;
}

/* The room that a last column of this width needs at least. */
static size_t least_of_last(size_t width)
{
    return width < LAST_COLUMN_MIN ? width : LAST_COLUMN_MIN;
}

static void fit_widths(const struct text_table *t, size_t *width, size_t room)
{
    unsigned last = t->columns;
    size_t sum;

    for (unsigned c = 0; c < t->columns; c++)
        last = width[c] ? c : last;
    if (!room || last == t->columns)
        return;
    while ((sum = sum_widths(t, width)) > room) {
        unsigned drop = next_to_drop(t, width);
        size_t others = sum - width[last];

        if (others + least_of_last(width[last]) <= room) {
            width[last] = room - others;
            return;
        }
        if (drop == t->columns)
            return;
        width[drop] = 0;
        if (drop == last)
            fit_widths(t, width, room);
    }
}

static void print_cell(const char *text, enum text_style style, size_t width,
                       const struct terminal *terminal, FILE *out)
{
    bool is_cut = terminal_text_width(text) > width;
    size_t fit = terminal_text_fit(text, is_cut ? width - 1 : width);

    fprintf(out, "%s%.*s%s%s", terminal_style_begin(terminal->colours, style), (int)fit,
            text, is_cut ? terminal->utf8 ? "…" : ">" : "",
            terminal_style_end(terminal->colours, style));
}

/* Row -1 is the heading. There are no blanks at the end of a line. */
static void print_row(const struct text_table *t, const size_t *width, long row,
                      const struct terminal *terminal, FILE *out)
{
    size_t blanks = 0;

    for (unsigned c = 0; c < t->columns; c++) {
        const struct text_cell heading = { (char *)t->column[c].heading, STYLE_DIM };
        const struct text_cell *cell = row < 0 ? &heading
                                               : &t->cell[(size_t)row * t->columns + c];
        size_t taken = terminal_text_width(cell->content);

        if (!width[c])
            continue;
        fprintf(out, "%*s", (int)blanks, "");
        print_cell(cell->content, cell->style, width[c], terminal, out);
        blanks = GAP + (taken < width[c] ? width[c] - taken : 0);
    }
    fputc('\n', out);
}

void text_table_print(const struct text_table *t, const struct terminal *terminal,
                      FILE *out)
{
    size_t *width = xcalloc(t->columns, sizeof(*width));
    long rows = (long)(t->cells / t->columns);

    for (unsigned c = 0; c < t->columns; c++)
        width[c] = width_of(t, c);
    fit_widths(t, width, terminal->columns);
    for (long row = -1; row < rows; row++)
        print_row(t, width, row, terminal, out);
    free(width);
}
