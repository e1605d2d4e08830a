/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A lock that shows that a launch lives: a file /dev/shm/crun-<uid>/<tag>, locked by
 * its agent, guard and reaper together. (It is /dev/shm/crun-<uid>-<tag> if another
 * user has taken the name of the folder.) The workers and everything that they
 * start have the tag (run_tmpdir.h) in their environment. If agent, guard and reaper
 * are killed in one moment, processes that left the workers' sessions may survive if
 * there is no cgroup. But then the lock is free, and the next agent of this user kills
 * all processes with that tag. It also removes the empty folders of the launch's logs
 * (run_tmpdir.h) below the TMPDIR of that launch, which is the content of the file.
 *
 * No other process is ever killed: a file of another user, or no file, means nothing,
 * and only the processes of a launch can hold its lock.
 */
#define LAUNCH_LOCK_VARIABLE "CRUN_LAUNCH"

/* Kills the leftovers of dead launches, and locks the file of the tag. Returns the
 * descriptor, which holds the lock for a process that inherits it too; -1: there can be
 * none. Later calls return the same descriptor. */
int launch_lock_make(const char *tag);
/* The same for our own tag, with the folder of its logs. The lock comes first, so that
 * the folder of a launch that is killed at any moment is found. */
void launch_lock_make_with_tmpdir(void);

/* Removes the file; called by the last living process of the launch. */
void launch_lock_remove(const char *tag);
