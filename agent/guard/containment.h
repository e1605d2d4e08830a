/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

struct cgroup;

/*
 * What holds the workers, so that none of their processes outlives crun: a cgroup, or
 * where none can be made, or CRUN_NO_CGROUP is set, a session for each worker and a
 * reaper (orphan_reaper.h).
 */
void containment_make(struct cgroup *cgroup);
/* in_session: the cgroup has taken no workers. */
const char *containment_name(const struct cgroup *cgroup, bool in_session);
