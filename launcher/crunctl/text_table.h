/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_CRUNCTL_TEXT_TABLE_H
#define LAUNCHER_CRUNCTL_TEXT_TABLE_H

#include <stdio.h>

/*
 * A table for people: columns as wide as they need to be, and a column in which no row
 * has anything to say is left out.
 */
struct table;

/* The headings end with NULL and must outlive the table. */
struct table *table_create(const char *const *headings);
void table_destroy(struct table *t); /* NULL is fine */

/* The next cell of the current row, which is done when all columns have one. "" or "-"
 * says nothing. The text is copied. */
void table_cell(struct table *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

void table_print(const struct table *t, FILE *out);

#endif
