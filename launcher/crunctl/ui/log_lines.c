/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ui/log_lines.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"

#define LINE_MAX_BYTES 65536 /* a longer one is shown in parts */

static void print_line_json(const struct log_lines *l,
                            const struct log_lines_style *style)
{
    cJSON *o = cJSON_CreateObject();
    char *text;

    /* JSON has no bytes that are no text. */
    for (size_t i = 0, n; i < l->size; i += n ? n : 1) {
        n = text_utf8_size(l->text + i, l->size - i);
        if (n == 0 || l->text[i] == '\0')
            l->text[i] = '?';
    }
    l->text[l->size] = '\0';
    cJSON_AddNumberToObject(o, "rank", style->rank);
    cJSON_AddStringToObject(o, "stream", style->error ? "stderr" : "stdout");
    cJSON_AddNumberToObject(o, "epoch", (double)style->epoch);
    cJSON_AddNumberToObject(o, "offset", (double)l->offset);
    cJSON_AddStringToObject(o, "text", l->text);
    text = text_printable_json(cJSON_PrintUnformatted(o));
    puts(text ? text : "{}");
    free(text);
    cJSON_Delete(o);
}

/* The line with its newline, or without one if it has none. */
static void print_log_line(struct log_lines *l, const struct log_lines_style *style)
{
    FILE *out = style->error ? stderr : stdout;
    bool on_terminal = isatty(fileno(out)) == 1;
    bool ends = l->text[l->size - 1] == '\n';
    size_t size = l->size;

    if (style->json) {
        l->size -= ends;
        print_line_json(l, style);
        return;
    }
    if (on_terminal)
        size = text_drawn(l->text, size);
    if (style->prefix)
        fprintf(out, "[%" PRIu32 "]:", style->rank);
    fwrite(l->text, 1, size, out);
    if (!ends && (on_terminal || style->prefix))
        putc('\n', out);
}

static void show_log_line(struct log_lines *l, const struct log_lines_style *style)
{
    uint64_t next = l->offset + l->size;

    print_log_line(l, style);
    l->offset = next;
    l->size = 0;
}

/* A part of a line that is too long ends with a whole character. */
static void show_part(struct log_lines *l, const struct log_lines_style *style)
{
    size_t rest = 0, size = l->size;
    char next[4];

    while (rest < 3 && ((unsigned char)l->text[size - 1 - rest] & 0xc0) == 0x80)
        rest++;
    rest++;
    if ((unsigned char)l->text[size - rest] < 0xc0 ||
        text_utf8_size(l->text + size - rest, rest) > 0)
        rest = 0;
    memcpy(next, l->text + size - rest, rest);
    l->size -= rest;
    show_log_line(l, style);
    memcpy(l->text, next, rest);
    l->size = rest;
}

void log_lines_add(struct log_lines *l, const struct log_lines_style *style,
                   uint64_t offset, const char *data, size_t size)
{
    if (l->size == 0)
        l->offset = offset;
    while (size > 0) {
        const char *newline = memchr(data, '\n', size);
        size_t n = newline ? (size_t)(newline - data) + 1 : size;

        if (l->size + n + 1 > l->room) {
            l->room = 2 * (l->size + n + 1);
            l->text = xrealloc(l->text, l->room);
        }
        memcpy(l->text + l->size, data, n);
        l->size += n;
        if (newline)
            show_log_line(l, style);
        else if (l->size >= LINE_MAX_BYTES)
            show_part(l, style);
        data += n;
        size -= n;
    }
}

void log_lines_finish(struct log_lines *l, const struct log_lines_style *style)
{
    if (l->size > 0)
        show_log_line(l, style);
    free(l->text);
    *l = (struct log_lines){ .size = 0 };
}
