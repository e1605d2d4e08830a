/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A set of ranks, as ranges in rising order that do not touch. Zero-initialise. */
struct rank_range {
    uint32_t first, last;
};

struct rank_ranges {
    struct rank_range *range;
    unsigned count, room;
};

void rank_ranges_fini(struct rank_ranges *r);

void rank_ranges_add(struct rank_ranges *r, uint32_t first, uint32_t last);
bool rank_ranges_have(const struct rank_ranges *r, uint32_t rank);
uint64_t rank_ranges_size(const struct rank_ranges *r); /* how many ranks */

/* Adds those of a text as in the protocol: "0-3,5". False if it is none. */
bool rank_ranges_parse(struct rank_ranges *r, const char *text);

/* As in the protocol, from the range `from` on; as many as fit. Returns the first one
 * that did not. */
unsigned rank_ranges_print(const struct rank_ranges *r, unsigned from, char *buf,
                           size_t size);

/* For users: "rank 2", "ranks 0, 1, 3-9"; "..." where it is cut. Returns buf. */
char *rank_ranges_describe(const struct rank_ranges *r, char *buf, size_t size);
