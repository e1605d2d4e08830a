/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * One stream of a rank, shown in whole lines: on standard output or error, behind
 * "[rank]:" if there are several ranks; or as a JSON object for each line. On a
 * terminal a line is shown as text_drawn makes it. Zero-initialise.
 */
struct log_lines {
    char *text; /* the line that has no end yet */
    size_t size, room;
    uint64_t offset; /* of it in the stream */
};

struct log_lines_style {
    uint32_t rank;
    uint64_t epoch;
    bool error, prefix, json;
};

/* offset: of the data. */
void log_lines_add(struct log_lines *l, const struct log_lines_style *style,
                   uint64_t offset, const char *data, size_t size);
/* Shows the line that has no end, if there is one, and frees all. */
void log_lines_finish(struct log_lines *l, const struct log_lines_style *style);
