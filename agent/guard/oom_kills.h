/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

struct cgroup;

/* From the first call on, kills for lack of memory in the job's cgroup are counted. */
void oom_kills_watch(const struct cgroup *cgroup);
/* Whether a child that ended with this status was killed for lack of memory; each such
 * kill counts for one child. */
bool oom_kills_claim(int status);
