/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include "rendezvous/wire/protocol/rank_ranges.h"

/* The names of processes that still run when all workers have exited. {0}: none. */
struct leftover_names {
    struct rank_ranges ranks; /* that have left them, as far as it is known */
    uint32_t count;
    char names[64]; /* "upload, sleep": each name once, as many as fit */
};

/* rank: -1, not known. */
void leftover_names_add(struct leftover_names *l, int64_t rank, const char *name);
void leftover_names_clear(struct leftover_names *l);

/* "rank 0 left 1 process (upload)" */
void leftover_names_describe(const struct leftover_names *l, char *text, size_t size);
