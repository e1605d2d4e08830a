/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The whole screen of a terminal, drawn again and again: the terminal's other screen,
 * without echo, cursor and wrapping. The terminal is as before after screen_close, a
 * signal that ends the program, and while the program is suspended. The mouse is left
 * alone.
 */
struct screen;

struct screen *screen_open(void);    /* NULL: no terminal that could show it */
void screen_close(struct screen *s); /* NULL is fine */

/* Shows lines of text, cut at the edges. Those that have changed are written, in one
 * write. */
void screen_draw(struct screen *s, const char *text);
/* The next frame is written whole: another program has written on the screen. */
void screen_forget(struct screen *s);

enum screen_news {
    SCREEN_TIME,   /* until_ms has come */
    SCREEN_RESIZE, /* or is back from being suspended: to be drawn */
    SCREEN_TYPED,  /* keys, as bytes */
    SCREEN_CALL,   /* fd is readable */
    SCREEN_END     /* a signal or the end of the terminal */
};

/* Waits, until a time of clock_ms. keys has room for *size bytes. */
enum screen_news screen_wait(struct screen *s, uint64_t until_ms, int fd, char *keys,
                             size_t *size);
