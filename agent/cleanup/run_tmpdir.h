/* SPDX-License-Identifier: MIT */
#ifndef AGENT_CLEANUP_RUN_TMPDIR_H
#define AGENT_CLEANUP_RUN_TMPDIR_H

#include <stddef.h>

/*
 * The folder "crun_<tag>" below TMPDIR, where a run without a log-dir keeps its logs.
 * The tag is chosen before there is a guard: whoever is left of agent, guard and warden
 * knows it, and removes what stayed empty. Of a launch of which nobody is left it is in
 * the name of the cgroup, for the next agent that finds this.
 */
#define RUN_TMPDIR_TAG_LEN 8

/* This process's own: drawn at random once. */
const char *run_tmpdir_tag(void);
/* Letters and digits that nobody can guess. */
void run_tmpdir_random(char *letters, size_t count);

/* The folder's path, which the caller frees. */
char *run_tmpdir_path(const char *tag);

/* Remove its folders as far as they are empty, down to those of a run's ranks; never a
 * file, and no symbolic link is followed. What is not a tag means nothing. */
void run_tmpdir_remove_empty(const char *tag);

#endif
