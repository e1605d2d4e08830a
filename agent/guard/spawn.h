/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GUARD_SPAWN_H
#define AGENT_GUARD_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/*
 * Starting one worker, for a parent that is single-threaded, blocks every signal, and
 * opens whatever it opens close-on-exec. Nothing waits for the exec: a child that
 * cannot get there writes one record into a pipe that all children share, and then
 * exits 127, so whoever has reaped a child finds its record there already.
 */
struct spawn {
    char *const *argv; /* argv[0] is the file */
    char *const *env;
    int fd[3];   /* become 0, 1 and 2; each of them 3 or more */
    bool is_tty; /* fd[1] or fd[2] becomes the controlling terminal */
    const void *cpus;
    size_t cpus_size; /* 0: as they are */
    int numa_node;    /* memory of this node only; -1: anywhere */
    uint32_t local_rank;
};

enum spawn_stage {
    SPAWN_CLONE,
    SPAWN_CGROUP, /* the only one that the worker goes on after */
    SPAWN_SETSID,
    SPAWN_RLIMIT,
    SPAWN_AFFINITY,
    SPAWN_MEMPOLICY,
    SPAWN_STDIO,
    SPAWN_TTY,
    SPAWN_EXEC,
    /* never from here: */
    SPAWN_WORLD, /* what the worker is to get did not arrive */
    SPAWN_FENCE, /* the time in which workers may live has passed */
    SPAWN_STAGE_COUNT
};

/* The record; short enough to be written in one piece. */
struct spawn_failure {
    uint32_t local_rank;
    uint32_t stage;
    int32_t errnum;
};

/* What is the same for all workers of a guard. */
struct spawn_home {
    int cgroup;                /* directory of the group they are born into, or -1 */
    bool keep_out;             /* nobody can be born into it, only move there */
    bool births_work;          /* somebody was */
    int errors;                /* the pipe for records */
    bool restore_nofile;       /* this limit was changed */
    struct rlimit nofile;      /* what it was */
    const char *oom_score_adj; /* what it was, or NULL: not changed */
    unsigned way;              /* the best one known to work here; starts as 0 */
};

/* The pid, or -1 and errno. *pidfd is -1 where the kernel has none. */
pid_t spawn_worker(const struct spawn *s, struct spawn_home *home, int *pidfd);

/* Which call failed: "execve". */
const char *spawn_stage_name(enum spawn_stage stage);

#endif
