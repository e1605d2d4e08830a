/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * The folder "crun_<tag>" below TMPDIR, where a run without a log-dir keeps its logs.
 * The tag is chosen before there is a guard, so that any survivor of agent, guard and
 * reaper can remove the folder if it is empty. Other users see the tag in the names of
 * processes and cgroups, so the folder is made before those. If no process of a launch
 * is left, the next agent finds TMPDIR in the launch's lock (launch_lock.h), or at
 * least the tag in the name of its cgroup.
 */
#define RUN_TMPDIR_TAG_LEN 8

/* The tag of this process, drawn at random once. */
const char *run_tmpdir_tag(void);
/* Unguessable letters and digits. */
void run_tmpdir_random(char *letters, size_t count);

/* Makes the folder of our tag. Without it a run has no logs; log_dirs tells why. */
void run_tmpdir_make(void);

/* The folder's path, which the caller frees. */
char *run_tmpdir_path(const char *tag);

/* TMPDIR as an absolute path, which the caller frees; NULL: there is no such folder. */
char *run_tmpdir_parent(void);

/* Removes a folder and those below it, down to that depth, as far as they are empty or
 * have only files that go with them. Best effort; links are not followed. */
void run_tmpdir_remove_at(int parent, const char *name, int depth, bool with_files);

/* Removes the empty folders in it, down to those of a run's ranks, and itself; never a
 * file, never through a symbolic link, and nothing in a folder of another user. A text
 * that is not a tag is ignored. */
void run_tmpdir_remove_empty(const char *tag);
/* The same for a launch whose run_tmpdir_parent was `parent`. */
void run_tmpdir_remove_empty_below(const char *parent, const char *tag);
