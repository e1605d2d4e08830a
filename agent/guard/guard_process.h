/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GUARD_GUARD_PROCESS_H
#define AGENT_GUARD_GUARD_PROCESS_H

#include <sys/types.h>

#include "rendezvous/base/err.h"

struct cgroup;
struct status_pages;

/* How a guard comes to be a process of its own; without a cgroup below a warden. */
struct guard_process {
    const struct cgroup *cgroup;
    const struct status_pages *pages;
    int claim; /* of the launch, or -1 */
    pid_t guard;
    pid_t child; /* the guard, or its warden: whose end is that of both */
    pid_t agent;
    const char *scratch; /* the tag of its folder */
};

/* What crun was started with, which every guard gets: before the agent changes it. */
void guard_process_remember_origin(void);
/* Its end of the socket is still the caller's. 0, or -1 and errno. */
int guard_process_start(struct guard_process *p, int socket) MUST_CHECK;

#endif
