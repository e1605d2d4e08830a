/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdio.h>

#include "launcher/crunctl/ui/terminal.h"

/* A line of the screen, which is written from left to right and ends at its edge. */
struct top_line {
    const struct terminal *terminal;
    FILE *out;
    size_t used;    /* columns */
    bool is_chosen; /* in reverse, without other styles */
};

void top_line_begin(struct top_line *l, const struct terminal *t, bool is_chosen,
                    FILE *out);
/* Text of any origin. */
void top_line_add(struct top_line *l, enum text_style style, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* In a cell of so many columns and a blank, to its left, or, if width < 0, right. */
void top_line_cell(struct top_line *l, enum text_style style, int width,
                   const char *text);
/* Fills up to a column. */
void top_line_reach(struct top_line *l, size_t column);
void top_line_end(struct top_line *l);
