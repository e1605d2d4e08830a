/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_CRUNCTL_UI_TERMINAL_H
#define LAUNCHER_CRUNCTL_UI_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What standard output is, and how text is drawn there. */
struct terminal {
    bool is_terminal, is_dumb;
    bool colours;           /* a terminal that has them, without NO_COLOR */
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

/*
 * A full screen that is drawn again and again: the terminal's other screen, without
 * echo, and as it was before after screen_close, a signal that ends the program and
 * while it is suspended.
 */
struct screen;

struct screen *screen_open(void);    /* NULL: no terminal that could show it */
void screen_close(struct screen *s); /* NULL is fine */

/* Shows the text, cut at the edges of the screen, in one write. */
void screen_draw(struct screen *s, const char *text);

/* Waits. False: a key or a signal asks for the end. True at once after a change of the
 * size of the screen. */
bool screen_wait(struct screen *s, uint64_t ms);

#endif
