/* SPDX-License-Identifier: MIT */
#include "agent/guard/containment.h"

#include <stdlib.h>
#include <string.h>

#include "agent/cleanup/cgroup.h"
#include "rendezvous/common/base/log.h"

void containment_make(struct cgroup *cgroup)
{
    const char *off = getenv("CRUN_NO_CGROUP");
    struct err e;

    *cgroup = CGROUP_NONE;
    if (off && off[0] != '\0' && strcmp(off, "0") != 0)
        return;
    if (cgroup_create(cgroup, &e) < 0)
        log_debug("no cgroup for the workers: %s", e.text);
}

const char *containment_name(const struct cgroup *cgroup, bool in_session)
{
    if (cgroup->dir < 0)
        return "session+warden";
    return in_session ? "session" : "cgroup";
}
