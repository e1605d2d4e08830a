/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_CRUNCTL_TEXT_TABLE_H
#define LAUNCHER_CRUNCTL_TEXT_TABLE_H

#include <stdio.h>

/*
 * A table for users: columns are as wide as their content, and a column that is empty
 * in all rows is left out.
 */
struct text_table;

/* The headings end with NULL and must outlive the table. */
struct text_table *text_table_create(const char *const *headings);
void text_table_destroy(struct text_table *t); /* NULL is fine */

/* Adds the next cell of the current row; a row ends when all its columns are filled. ""
 * or "-" is an empty cell. The text is copied. */
void text_table_cell(struct text_table *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

void text_table_print(const struct text_table *t, FILE *out);

#endif
