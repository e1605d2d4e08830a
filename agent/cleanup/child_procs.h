/* SPDX-License-Identifier: MIT */
#ifndef AGENT_CLEANUP_CHILD_PROCS_H
#define AGENT_CLEANUP_CHILD_PROCS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * The children of this process, those it has adopted as a subreaper among them. Who
 * kills these again and again until there are none has ended every descendant, at any
 * depth: the children of the dead come up. And it hits nobody else, for the pid of a
 * child is not given to another process before its parent has reaped it.
 */
size_t child_procs_children(pid_t *pids, size_t max);

/* The same where the kernel has no list of children: by a look at every process. */
size_t child_procs_children_by_scan(pid_t *pids, size_t max);

/* Whether there is a child, dead and unreaped or alive. */
bool child_procs_any(void);

#endif
