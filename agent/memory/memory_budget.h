/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include "rendezvous/common/base/err.h"

/*
 * How much memory checkpoints may take: the keeper counts it before it is taken,
 * against what the machine and the cgroup have free, and --memory-limit.
 */
struct memory_free {
    uint64_t bytes;
    const char *by; /* which of them leaves so few */
};

/* Of this machine and of our cgroup, now. */
struct memory_free memory_budget_free(void);
/* The same of the text of /proc/meminfo: what is available, less a part of all of it
 * that stays free. */
uint64_t memory_budget_parse(const char *meminfo);

/* limit: for all; 0: none. granted, resident: as of memory_table.h; more: is wanted. */
int memory_budget_check(uint64_t limit, const struct memory_free *now, uint64_t granted,
                        uint64_t resident, uint64_t more, struct err *e) MUST_CHECK;
