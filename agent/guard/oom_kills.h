/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct cgroup;

/* From the first call on, kills for lack of memory in the job's cgroup are counted. */
void oom_kills_watch(const struct cgroup *cgroup);
/* Whether a child that ended with this status was killed for lack of memory; each such
 * kill counts for one child. */
bool oom_kills_claim(int status);
/* The kernel should kill this process, the guard, after its workers. True: it will, and
 * `before`, which was zero, has the score that the workers are to have. */
bool oom_kills_spare_guard(char *before, size_t size);
