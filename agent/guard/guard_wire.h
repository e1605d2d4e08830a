/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GUARD_GUARD_WIRE_H
#define AGENT_GUARD_GUARD_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/guard/spawn.h"
#include "rendezvous/base/err.h"

/*
 * What an agent and its guard say to each other, over a SOCK_SEQPACKET pair. Both are
 * the same executable, so these structs need no version. The agent sends one ask a
 * packet; the guard packs as many tells into one as it has.
 */
#define GUARD_ARGV0 "crun-guard"

/* The guard's descriptors from its first moment on; it inherits nothing else but 0-2.
 * The two of the cgroup are not there in session mode. */
enum {
    GUARD_FD_SOCKET = 3,
    GUARD_FD_CGROUP,
    GUARD_FD_CGROUP_PARENT,
    GUARD_FD_CLAIM, /* only held, see launch_lock.h */
    GUARD_FD_COUNT
};
/* and the workers' status pages from here on, see status_pages.h */
#define GUARD_FD_PAGES GUARD_FD_COUNT

/* Instead of a local rank: all workers. */
#define GUARD_ALL UINT32_MAX

enum guard_ask_type {
    GUARD_ASK_SPAWN,
    GUARD_ASK_SIGNAL, /* to the process of a worker, or to the groups of all */
    GUARD_ASK_KILL,
    GUARD_ASK_SWEEP,
    GUARD_ASK_FENCE /* its terms */
};

struct guard_ask {
    uint32_t type;
    uint32_t local_rank;
    uint32_t ticket; /* of KILL and SWEEP: stands in the EMPTY that answers it */
    uint32_t grace_ms, patience_ms;
    uint64_t until_ms;
    int32_t signo;
    /* SPAWN, with four descriptors: 0, 1, 2 and the world (see below) */
    int32_t numa_node;
    uint32_t is_tty;
    uint32_t argc, envc, cpus_size;
};

#define GUARD_ASK_FDS 4

enum guard_tell_type {
    GUARD_TELL_STARTED,
    GUARD_TELL_EXEC_FAILED,
    GUARD_TELL_EXITED,
    GUARD_TELL_EMPTY,
    GUARD_TELL_SESSION, /* the cgroup cannot be used after all */
    GUARD_TELL_AGAIN,   /* no room for a worker; status: errno. It is tried again */
    GUARD_TELL_FENCED,  /* the fence has passed: what lives is being ended */
};

struct guard_tell {
    uint32_t type;
    uint32_t local_rank; /* EMPTY: the ticket */
    int32_t pid;
    int32_t status; /* EXEC_FAILED: errno */
    uint32_t stage; /* EXEC_FAILED: enum spawn_stage */
    uint32_t out_of_memory;
    uint32_t nothing_left; /* EXITED: what a SWEEP now would find */
    uint64_t at_ms;
};

#define GUARD_TELLS_PER_PACKET 64

/*
 * A worker's world is a memfd, so its size is no matter: argv and env, each with its
 * NULL, as offsets from the start; the CPU set; the strings. The guard maps it and
 * turns the offsets into pointers where they stand.
 */
int guard_world_pack(const char *const *argv, const char *const *env, const void *cpus,
                     struct guard_ask *ask, struct err *e) MUST_CHECK; /* the memfd */

struct guard_world {
    void *map;
    size_t size;
};

/* Fill argv, env and cpus of `spawn`: they live until guard_world_close. -1: errno. */
int guard_world_open(struct guard_world *w, int fd, const struct guard_ask *ask,
                     struct spawn *spawn) MUST_CHECK;
void guard_world_close(struct guard_world *w);

#endif
