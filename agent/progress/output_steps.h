/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The steps of workers that write no status page, read from the lines of their output
 * (--progress-pattern). A line ends with \n or \r; only its beginning is kept.
 */
struct output_steps;

/* NULL if pattern is NULL or no pattern; NULL is fine in all of them. */
struct output_steps *output_steps_create(uint32_t workers, const char *pattern);
void output_steps_destroy(struct output_steps *s);
void output_steps_begin(struct output_steps *s); /* an epoch */

/* stream: 0 or 1. */
void output_steps_read(struct output_steps *s, uint32_t local_rank, int stream,
                       const char *data, size_t size);

/* The newest step, and the first one of the epoch but 0. False if no line has matched
 * yet. */
bool output_steps_get(const struct output_steps *s, uint32_t local_rank, uint64_t *step,
                      uint64_t *first);
