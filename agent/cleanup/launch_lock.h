/* SPDX-License-Identifier: MIT */
#ifndef AGENT_CLEANUP_LAUNCH_LOCK_H
#define AGENT_CLEANUP_LAUNCH_LOCK_H

/*
 * What says that a launch lives: a locked file in /dev/shm, crun-<uid>-<tag>, whose
 * lock its agent, guard and warden hold together. The workers, and all that they start,
 * carry the tag (run_tmpdir.h) in their environment. If agent, guard and warden were
 * killed in one moment, what left the workers' sessions lives on, and no cgroup may
 * hold it; but the lock is free then, and the next agent of this user ends whatever has
 * that tag.
 *
 * Nobody else is ever hit: a file that is not this user's, or is not there, says
 * nothing, and a lock that is free nobody can take who is not of that launch.
 */
#define LAUNCH_LOCK_VARIABLE "CRUN_LAUNCH"

/* End what dead launches have left behind, and claim the tag: the descriptor that holds
 * the lock, as whoever inherits it does. -1: there can be none. Once for a process:
 * then the same descriptor. */
int launch_lock_make(const char *tag);

/* In the last one of the launch that lives: it leaves nothing behind. */
void launch_lock_remove(const char *tag);

#endif
