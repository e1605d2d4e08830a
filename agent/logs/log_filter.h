/* SPDX-License-Identifier: MIT */
#ifndef AGENT_LOGS_LOG_FILTER_H
#define AGENT_LOGS_LOG_FILTER_H

#include <stddef.h>

struct outlet;
struct logfilter;

/*
 * Copies the lines of one stream that hold any of some strings, with a prefix, to an
 * outlet. A line longer than LOG_LINE_MAX is looked at in parts. The strings stay the
 * caller's.
 */
struct logfilter *logfilter_create(struct outlet *outlet, const char *const *strings,
                                   const char *prefix);
/* A last line without an end counts. NULL is fine. */
void logfilter_destroy(struct logfilter *f);

void logfilter_put(struct logfilter *f, const char *data, size_t size);

#endif
