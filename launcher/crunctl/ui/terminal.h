/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* What standard output is, and how text is drawn there. */
struct terminal {
    bool is_terminal, is_dumb;
    bool colours;           /* a terminal that has them, without NO_COLOR */
    bool utf8;              /* by LC_ALL, LC_CTYPE or LANG */
    unsigned columns, rows; /* 0: no limit */
};

struct terminal terminal_look(void);

enum text_style {
    STYLE_PLAIN,
    STYLE_BOLD,
    STYLE_DIM,
    STYLE_GOOD,
    STYLE_WARN,
    STYLE_BAD
};

/* The sequences before and after text of that style: "" without colours. */
const char *terminal_style_begin(bool colours, enum text_style style);
const char *terminal_style_end(bool colours, enum text_style style);

/* How many columns the text takes, and how many of its bytes fit into `columns`. */
size_t terminal_text_width(const char *text);
size_t terminal_text_fit(const char *text, size_t columns);
