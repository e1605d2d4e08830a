/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/*
 * Starts one worker, for a parent that is single-threaded, blocks every signal, and
 * opens all descriptors close-on-exec. The parent does not wait for the exec: a child
 * that fails before it writes one record into a pipe that all children share, and then
 * exits 127. So the record of a reaped child is there already.
 */
struct spawn {
    char *const *argv; /* argv[0] is the file */
    char *const *env;
    int fd[3];   /* become 0, 1 and 2; each is 3 or more */
    int socket;  /* becomes 3; 0: none */
    bool is_tty; /* fd[1] or fd[2] becomes the controlling terminal */
    const void *cpus;
    size_t cpus_size; /* 0: as they are */
    int numa_node;    /* memory of this node only; -1: anywhere */
    uint32_t local_rank;
};

enum spawn_stage {
    SPAWN_CLONE,
    SPAWN_CGROUP, /* the only failure after which the child continues */
    SPAWN_SETSID,
    SPAWN_RLIMIT,
    SPAWN_AFFINITY,
    SPAWN_MEMPOLICY,
    SPAWN_STDIO,
    SPAWN_TTY,
    SPAWN_EXEC,
    /* never set by spawn_worker: */
    SPAWN_PAYLOAD, /* the payload of the request did not arrive */
    SPAWN_FENCE,   /* the fence has passed */
    SPAWN_STAGE_COUNT
};

/* The record; short enough to be written in one piece. */
struct spawn_failure {
    uint32_t local_rank;
    uint32_t stage;
    int32_t errnum;
};

/* The same for all workers of a guard. */
struct spawn_home {
    int cgroup;            /* directory of their cgroup, or -1 */
    bool clone_into_fails; /* clone cannot put a child into it: it moves there itself */
    bool clone_into_works; /* a child was cloned into it */
    int errors;            /* the pipe for records */
    bool restore_nofile;   /* the guard changed this limit */
    struct rlimit nofile;  /* the limit of crun */
    const char *oom_score_adj; /* the text of crun, or NULL: not changed */
    unsigned way; /* index of the best way known to work here; starts as 0 */
};

/* Returns the pid, or -1 and errno. *pidfd is -1 if the kernel has none. */
pid_t spawn_worker(const struct spawn *s, struct spawn_home *home, int *pidfd);

/* Writes to a file of the kernel in that folder; -1: errno. */
int spawn_write_text(int dir, const char *path, const char *text);

/* The call that failed: "execve". */
const char *spawn_stage_name(enum spawn_stage stage);
