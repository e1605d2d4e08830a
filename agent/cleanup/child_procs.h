/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * The children of this process, including those that it has adopted as a subreaper.
 * Killing them again and again until there are none ends every descendant, at any
 * depth, because the children of the dead are adopted. No other process is hit, because
 * the pid of a child is not reused before it is reaped.
 */
size_t child_procs_list(pid_t *pids, size_t max);

/* The same without the kernel's list of children: looks at every process. */
size_t child_procs_list_by_scan(pid_t *pids, size_t max);

/* Whether there is a child, alive or not reaped. */
bool child_procs_exist(void);
