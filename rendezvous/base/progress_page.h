/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_BASE_PROGRESS_PAGE_H
#define RENDEZVOUS_BASE_PROGRESS_PAGE_H

#include <stdint.h>

/*
 * The status page: memory that one worker and its agent share, found by the worker as
 * the file that CRUN_PROGRESS names. It is all that a worker ever tells its agent, and
 * it costs a training loop a few stores a step. Numbers are in the byte order of the
 * machine, at the offsets below; what is not described is zero and stays so. A program
 * that writes nothing here is fine: nobody then knows how far it is.
 *
 * The worker's half is written between two increments of `writing`, which is odd
 * meanwhile: who reads an odd number, or two different ones, reads again. The halves
 * are on cache lines of their own.
 */
#define PROGRESS_ENV "CRUN_PROGRESS"
#define PROGRESS_MAGIC 0x67707263u /* "crpg" */
#define PROGRESS_VERSION 1u
#define PROGRESS_PAGE_BYTES 4096u

enum progress_phase {
    PROGRESS_UNKNOWN, /* starting, or never said */
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
    uint64_t steps;      /* 24: in all; 0: not known */
    uint64_t samples;    /* 32: seen by this rank in this life */
    double loss;         /* 40: NaN: none */
    uint64_t changed_ns; /* 48: CLOCK_MONOTONIC at the last change; 0: not said */
    uint32_t saved;      /* 56: the last `save` whose checkpoint is safe */
    uint32_t pad;        /* 60 */
    /* written by the agent */
    uint32_t save; /* 64: counts; when it is not `saved`, a checkpoint is wanted */
    uint32_t save_within_ms; /* 68: and this is how long the agent waits for it */
};

#endif
