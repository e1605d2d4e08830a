/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

/*
 * The status page: memory that one worker and its agent share, in the file that
 * CRUN_PROGRESS names. It is the only report of a worker to its agent, and costs a
 * training loop a few stores per step. Numbers are in the byte order of the machine, at
 * the offsets below; all other bytes are zero and stay zero. If neither the program nor
 * --watch writes to the page, its progress is not known.
 *
 * The worker writes its half between two increments of `writing`, so that it is odd
 * while the worker writes: a reader that finds an odd number, or two different ones,
 * reads again. The two halves are on separate cache lines.
 */
#define PROGRESS_ENV "CRUN_PROGRESS"
#define PROGRESS_MAGIC 0x67707263u /* "crpg" */
#define PROGRESS_VERSION 1u
#define PROGRESS_PAGE_BYTES 4096u
#define PROGRESS_WHERE_BYTES 112u

/* The signal that makes a worker with PROGRESS_STACKS write the stacks of its threads.
 * The number is part of the layout: it is the same in every language. */
#define PROGRESS_STACKS_SIGNAL 60

/*
 * How the worker reaches its job's store by TLS. Only in a job with a key, and not on
 * the node of rank 0 where its store can be reached without. A client that does not
 * know it uses MASTER_ADDR and MASTER_PORT.
 */
#define PROGRESS_STORE_VERSION 1u

struct progress_store {
    uint32_t version; /* PROGRESS_STORE_VERSION; 0: nothing follows */
    uint32_t port;
    char host[256];
    char identity[128]; /* of the TLS client, with the secret of this epoch's store */
    uint8_t secret[32];
};

/* A first step whose number is counted from 1 in each life. */
#define STEP_UNPLACED UINT64_MAX

enum progress_flag {
    PROGRESS_WATCHED = 1,      /* written by --watch, not by the program */
    PROGRESS_HAS_SAVED = 2,    /* it has written a checkpoint in this life */
    PROGRESS_STACKS = 4,       /* it has a handler for PROGRESS_STACKS_SIGNAL */
    PROGRESS_SAVES = 8,        /* it writes a checkpoint now, whatever its phase is */
    PROGRESS_LOSS_IS_NAN = 16, /* its last loss was NaN: one that diverges, not none */
    PROGRESS_RAISED = 32,      /* an exception ends it: its interpreter ends now */
    PROGRESS_ENDS = 64,        /* its interpreter ends now */
    /* its handler of SIGTERM saves with all ranks, or nothing */
    PROGRESS_SAVES_TOGETHER = 128
};

enum progress_phase {
    PROGRESS_UNKNOWN, /* starting, or never set */
    PROGRESS_TRAINING,
    PROGRESS_EVALUATING,
    PROGRESS_CHECKPOINTING,
    PROGRESS_COMMUNICATING, /* waits for other ranks */
    PROGRESS_LOADING,
    PROGRESS_DONE,
    PROGRESS_PHASE_COUNT
};

struct progress_page {
    uint32_t magic;   /*  0: set by the agent */
    uint32_t version; /*  4: set by the agent */
    /* written by the worker */
    uint32_t writing;    /*  8: odd while the fields below change */
    uint32_t phase;      /* 12: enum progress_phase */
    uint64_t step;       /* 16: steps done, over all lives of the job */
    uint64_t steps;      /* 24: of the whole job; 0: not known */
    uint64_t samples;    /* 32: seen by this rank in this life */
    double loss;         /* 40: NaN: none */
    uint64_t changed_ns; /* 48: CLOCK_MONOTONIC at the last change; 0: not set */
    uint32_t saved;      /* 56: the last `save` whose checkpoint is safe */
    uint32_t flags;      /* 60: enum progress_flag */
    /* written by the agent */
    uint32_t save; /* 64: a count; unless it equals `saved`, a checkpoint is wanted */
    uint32_t save_within_ms; /* 68: how long the agent waits for it */
    uint8_t pad[56];         /* 72 */
    /* written by the worker, like its first part between two increments */
    char where[PROGRESS_WHERE_BYTES]; /* 128: the line of the program, or the operation
                                         of the worker library, in which the phase began
                                       */
    int32_t stacks_fd;    /* 240: where PROGRESS_STACKS writes: its descriptor */
    uint32_t checkpoints; /* 244: how often the phase of checkpointing has ended */
    /* 248: the number of the first step of this life, or STEP_UNPLACED; 0: not told */
    uint64_t first_step;
    /* written by the agent before the worker starts */
    struct progress_store store; /* 256 */
};
