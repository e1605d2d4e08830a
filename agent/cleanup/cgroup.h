/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"

/*
 * The cgroup that contains the workers of one agent, made below the agent's own cgroup
 * (version 2). Its name is crun-<pid>-<tag>-<random>, with the tag of run_tmpdir.h.
 * Agent and guard together hold a lock on its directory, so a group whose lock is free
 * is stale, whatever its pid says. An extended attribute with the name marks it as
 * ours: in a group without it no process is ever killed, whatever its name.
 */
#define CGROUP_NAME_SIZE 48

struct cgroup {
    int dir; /* -1: there is none, and every call is a no-op */
    int parent;
    char name[CGROUP_NAME_SIZE];
};

#define CGROUP_NONE ((struct cgroup){ .dir = -1, .parent = -1 })

/* Makes a group, after removing the stale groups of other agents with their processes
 * and their empty run_tmpdir folders. -1 if cgroups cannot be used; then *g is
 * CGROUP_NONE. */
int cgroup_create(struct cgroup *g, struct err *e) MUST_CHECK;

/* Removes the group and those below it. False while it is not empty. */
bool cgroup_remove(struct cgroup *g);

/* Closes the descriptors only. */
void cgroup_close(struct cgroup *g);

/* Kills all processes in it. Old kernels need it repeated until the group is not
 * populated. */
void cgroup_kill(const struct cgroup *g);

/*
 * After cgroup_kill no process can be cloned into the group: kernels from 6.14 on kill
 * a child at its birth if its group and its parent's were not killed equally often. So
 * this makes a group below it for later workers and returns its directory, or -1 and
 * errno. `old` is the previous one, empty, which is removed; or -1.
 */
int cgroup_make_below(const struct cgroup *g, int old);

bool cgroup_populated(const struct cgroup *g);

/* Returns a descriptor that has EPOLLPRI when `populated` changes; -1 if there is
 * none. */
int cgroup_watch(const struct cgroup *g);

/*
 * Opens the file that counts the processes of the group that the kernel has killed for
 * lack of memory. Without a group or a memory controller in it, it is the file of our
 * own cgroup, which the workers share then, as in a step of Slurm; of version 1, too.
 * -1: none.
 */
int cgroup_open_oom_kills(const struct cgroup *g);

/* 0 for -1. */
uint64_t cgroup_read_oom_kills(int fd);

/* The directory of our own cgroup in the hierarchy of version 1 that has the
 * controller, or of version 2 for "", from the texts of /proc/self/mountinfo and
 * /proc/self/cgroup, which are cut into words. False if no mount shows it. */
bool cgroup_own_path(char *mountinfo, char *cgroup, const char *controller, char *path,
                     size_t size);
