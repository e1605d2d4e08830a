/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rendezvous/wire/protocol/rank_ranges.h"

/* The processes that still run when all workers have exited. Zero-initialise. */
struct leftovers {
    struct rank_ranges ranks; /* that have left them, as far as it is known */
    uint32_t count;
    char names[64]; /* "upload, sleep": each name once, as many as fit */
};

/* rank: -1, not known. */
void leftovers_add(struct leftovers *l, int64_t rank, const char *name);
void leftovers_clear(struct leftovers *l);

/* "rank 0 left 1 process (upload)" */
void leftovers_describe(const struct leftovers *l, char *text, size_t size);
