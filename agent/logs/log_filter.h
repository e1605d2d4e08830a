/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

struct outlet;
struct log_filter;

/*
 * Copies the lines of one stream that contain any of some strings, with a prefix, to an
 * outlet. A line longer than LOG_FILTER_LINE_MAX is checked in parts. The caller keeps
 * the strings.
 */
struct log_filter *log_filter_create(struct outlet *outlet, const char *const *strings,
                                     const char *prefix);
/* Also copies a last line without an end. NULL is fine. */
void log_filter_destroy(struct log_filter *f);

void log_filter_put(struct log_filter *f, const char *data, size_t size);
