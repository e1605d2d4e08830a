/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdio.h>

#include "launcher/crunctl/ui/terminal.h"

/*
 * A table for users: columns are as wide as their content, and a column that is empty
 * in all rows is left out. On a terminal that is too narrow, columns are left out and
 * the last one is cut.
 */
struct text_table;

struct text_column {
    const char *heading; /* NULL ends the list */
    unsigned drop; /* where the room is short, the greatest goes first; 0: it stays */
};

/* The columns must outlive the table. */
struct text_table *text_table_create(const struct text_column *columns);
void text_table_destroy(struct text_table *t); /* NULL is fine */

/* Adds the next cell of the current row; a row ends when all its columns are filled. ""
 * or "-" is an empty cell. The text is copied. */
void text_table_cell(struct text_table *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The style of the cell that was added last. */
void text_table_style(struct text_table *t, enum text_style style);

void text_table_print(const struct text_table *t, const struct terminal *terminal,
                      FILE *out);
