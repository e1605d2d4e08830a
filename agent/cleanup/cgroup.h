/* SPDX-License-Identifier: MIT */
#ifndef AGENT_CLEANUP_CGROUP_H
#define AGENT_CLEANUP_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/base/err.h"

/*
 * The cgroup that holds the workers of one agent, made below the agent's own one in
 * cgroup v2, wherever that is mounted. Its name is crun-<pid>-<tag>-<random>, the tag
 * that of run_tmpdir.h; what says that it is in use is a lock on its directory, held by
 * agent and guard together, so it is surely stale when the lock is free, whatever
 * became of the pid. An extended attribute that holds the name says that it is ours: a
 * group without it is never touched, whatever it is called.
 */
#define CGROUP_NAME_SIZE 48

struct cgroup {
    int dir; /* -1: there is none, and every call is a no-op */
    int parent;
    char name[CGROUP_NAME_SIZE];
};

#define CGROUP_NONE ((struct cgroup){ .dir = -1, .parent = -1 })

/* Make one; what other agents left behind and nobody holds is ended and removed, and
 * their scratch folders where these are empty. -1
 * where cgroups cannot be used, and *g is CGROUP_NONE. */
int cgroup_create(struct cgroup *g, struct err *e) MUST_CHECK;

/* Remove it, with what was made below it. False while it is not empty. */
bool cgroup_remove(struct cgroup *g);

/* Close the descriptors only. */
void cgroup_close(struct cgroup *g);

/* KILL all that is in it. New kernels do it in one stroke, for old ones it takes
 * repeating until it is not populated. */
void cgroup_kill(const struct cgroup *g);

/*
 * Into a group that cgroup_kill was called for nobody can be born any more: kernels
 * from 6.14 on kill a child at its birth if its group and its parent's were not killed
 * equally often. So this makes a group below it for those who come next: its directory,
 * or -1 and errno. `old` is the one before, or -1: it is empty, and goes.
 */
int cgroup_make_below(const struct cgroup *g, int old);

bool cgroup_populated(const struct cgroup *g);

/* A descriptor that has EPOLLPRI when `populated` changes; -1 if there is none. */
int cgroup_watch(const struct cgroup *g);

/* How many processes the kernel has killed in it for lack of memory; 0 where the memory
 * controller is not there. */
uint64_t cgroup_oom_kills(const struct cgroup *g);

/* The directory of our own cgroup, out of the texts of /proc/self/mountinfo and
 * /proc/self/cgroup. False if it is not in view. */
bool cgroup_own_path(const char *mountinfo, const char *cgroup, char *path,
                     size_t size);

#endif
