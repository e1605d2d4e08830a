/* SPDX-License-Identifier: MIT */
#pragma once

#include <sys/types.h>

#include "rendezvous/common/base/err.h"

struct cgroup;
struct status_pages;

/* Starts a guard as a separate process; without a cgroup, below a reaper. */
struct guard_process {
    const struct cgroup *cgroup;
    const struct status_pages *pages;
    int launch_lock; /* descriptor, or -1 */
    pid_t guard;
    int guard_pidfd; /* -1: the kernel has none, or the guard has ended */
    pid_t child;     /* the guard, or its reaper, which ends with it */
    pid_t agent;
    const char *tmpdir_tag; /* run_tmpdir_tag of the agent */
};

/* Remembers the limits and signals of crun's start, which every guard gets. Call it
 * before the agent changes them. */
void guard_process_remember_origin(void);
/* The caller keeps the guard's end of the socket. 0, or -1 and errno. */
int guard_process_start(struct guard_process *p, int socket) MUST_CHECK;
