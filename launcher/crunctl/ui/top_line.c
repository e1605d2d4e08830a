/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ui/top_line.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/text.h"

void top_line_begin(struct top_line *l, const struct terminal *t, bool is_chosen,
                    FILE *out)
{
    *l = (struct top_line){ .terminal = t, .out = out, .is_chosen = is_chosen };
    if (is_chosen)
        fputs("\033[7m", out);
}

/* Where the terminal has no UTF-8, each character of it is a "?". */
static void top_line_put(struct top_line *l, const char *text, size_t bytes)
{
    if (l->terminal->utf8) {
        fwrite(text, 1, bytes, l->out);
        return;
    }
    for (size_t i = 0; i < bytes; i++)
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            putc((unsigned char)text[i] < 0x80 ? text[i] : '?', l->out);
}

/* As much of it as fits into `width` columns. */
static void top_line_text(struct top_line *l, enum text_style style, const char *text,
                          size_t width)
{
    size_t left = l->terminal->columns > l->used ? l->terminal->columns - l->used : 0;
    size_t room = width < left ? width : left, all = terminal_text_width(text);
    bool colours = l->terminal->colours && !l->is_chosen, is_cut = all > room;

    if (room == 0)
        return;
    fputs(terminal_style_begin(colours, style), l->out);
    top_line_put(l, text, terminal_text_fit(text, is_cut ? room - 1 : room));
    if (is_cut)
        fputs(l->terminal->utf8 ? "…" : ">", l->out);
    fputs(terminal_style_end(colours, style), l->out);
    l->used += is_cut ? room : all;
}

void top_line_add(struct top_line *l, enum text_style style, const char *fmt, ...)
{
    char text[1024], shown[4 * sizeof(text)];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    top_line_text(l, style, text_printable(text, shown, sizeof(shown)), SIZE_MAX);
}

void top_line_reach(struct top_line *l, size_t column)
{
    for (; l->used < column && l->used < l->terminal->columns; l->used++)
        putc(' ', l->out);
}

void top_line_cell(struct top_line *l, enum text_style style, int width,
                   const char *text)
{
    size_t columns = (size_t)abs(width), end = l->used + columns + 1, all;
    char shown[1024];

    text_printable(text, shown, sizeof(shown));
    all = terminal_text_width(shown);
    if (width < 0 && all < columns)
        top_line_reach(l, l->used + columns - all);
    top_line_text(l, style, shown, columns);
    top_line_reach(l, end);
}

void top_line_end(struct top_line *l)
{
    if (l->is_chosen)
        top_line_reach(l, l->terminal->columns);
    fputs(l->is_chosen ? "\033[0m\n" : "\n", l->out);
}
