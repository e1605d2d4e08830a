/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Whether a process is frozen by its cgroup; then the path of the file that says so.
 * One that is frozen by version 1 (freezer.state) is not even killed before another
 * process thaws it; by version 2 (cgroup.events) it is.
 */
bool freezer_holds(pid_t pid, char *path, size_t size);
