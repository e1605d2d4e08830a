/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/text_table.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/text.h"
#include "rendezvous/base/xalloc.h"

#define GAP 2

struct text_table {
    const char *const *heading;
    unsigned columns;
    char **cell; /* row by row */
    size_t cells;
};

struct text_table *text_table_create(const char *const *headings)
{
    struct text_table *t = xcalloc(1, sizeof(*t));

    t->heading = headings;
    while (headings[t->columns])
        t->columns++;
    return t;
}

void text_table_destroy(struct text_table *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->cells; i++)
        free(t->cell[i]);
    free(t->cell);
    free(t);
}

void text_table_cell(struct text_table *t, const char *fmt, ...)
{
    char text[512], shown[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    /* room grows by doubling: whenever the count is a power of two */
    if ((t->cells & (t->cells - 1)) == 0)
        t->cell = xrealloc(t->cell, (t->cells ? 2 * t->cells : 1) * sizeof(*t->cell));
    t->cell[t->cells++] = xstrdup(*text ? text_printable(text, shown, sizeof(shown))
                                        : "-");
}

/* The width of a column, or 0 if it is empty in all rows. */
static size_t width_of(const struct text_table *t, unsigned column)
{
    size_t width = strlen(t->heading[column]);
    bool is_used = false;

    for (size_t i = column; i < t->cells; i += t->columns) {
        size_t len = strlen(t->cell[i]);

        is_used |= strcmp(t->cell[i], "-") != 0;
        width = len > width ? len : width;
    }
    return is_used ? width : 0;
}

/* Removes blanks at the end of a line. */
static void print_row(const struct text_table *t, const size_t *width,
                      const char *const *row, FILE *out)
{
    size_t blanks = 0;

    for (unsigned c = 0; c < t->columns; c++) {
        if (!width[c])
            continue;
        fprintf(out, "%*s%s", (int)blanks, "", row[c]);
        blanks = width[c] - strlen(row[c]) + GAP;
    }
    fputc('\n', out);
}

void text_table_print(const struct text_table *t, FILE *out)
{
    size_t *width = xcalloc(t->columns, sizeof(*width));

    for (unsigned c = 0; c < t->columns; c++)
        width[c] = width_of(t, c);
    print_row(t, width, t->heading, out);
    for (size_t i = 0; i + t->columns <= t->cells; i += t->columns)
        print_row(t, width, (const char *const *)t->cell + i, out);
    free(width);
}
