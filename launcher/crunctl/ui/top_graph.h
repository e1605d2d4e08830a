/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Small pictures of numbers, in block elements or in ASCII. Both return buf. */
#define TOP_GRAPH_BYTES(columns) (3 * (columns) + 1)

/* The values, of `count` equal times, in at most `columns` characters, from the least
 * one, or from 0, to the greatest. NaN is a gap; several values of one column become
 * their mean. */
char *top_graph_curve(const float *value, size_t count, size_t columns, bool from_zero,
                      bool utf8, char *buf, size_t size);

/* A bar of `columns` characters, of which the share is filled. */
char *top_graph_bar(double share, size_t columns, bool utf8, char *buf, size_t size);
