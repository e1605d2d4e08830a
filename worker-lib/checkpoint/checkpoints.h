/* SPDX-License-Identifier: MIT */
#pragma once

#include <pthread.h>

#include "worker-lib/checkpoint/checkpoint_file.h"
#include "worker-lib/core/status.h"
#include "worker-lib/world/world.h"

/*
 * Saving: the ranks compare what they are about to save, in one all-reduce. Each rank
 * with separate state copies it and hands the copy to a writer thread. A checkpoint is
 * complete when all its parts exist. Loading: rank 0 reads and validates the files and
 * broadcasts their content, so that all ranks get the same state or the same error.
 */
struct crun_checkpoints {
    crun_world *world;
    char directory[PATH_MAX]; /* "": none */
    unsigned keep;
    bool blocking; /* rank 0's option */
    void (*warn)(void *arg, const char *text);
    void *arg;
    struct checkpoint_claim claim;
    uint64_t saves; /* so far; the same on all ranks */

    /* checkpoint_in_memory.c */
    struct checkpoint_steps {
        crun_memory *memory; /* NULL: none on any rank */
        uint64_t every;
        struct checkpoint_memory room[2]; /* of copies of own and shared state */
        crun_work *work;                  /* the agreement after a step; or NULL */
        int64_t own, least;               /* of it: enum step_answer */
        bool recalled;                    /* what was loaded last is from memory */
    } steps;

    pthread_t writer;
    bool has_writer, ending;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct checkpoint_copy *copy;    /* to be written, or being written */
    struct checkpoint_memory memory; /* of the copy */
    struct checkpoint_target target;
    crun_status status; /* of the last write */
    struct err error;
};

/* -- checkpoint_agreement.c -------------------------------------------------------- */

/* All parts of a checkpoint: the model's, then the optimizer's. */
struct checkpoint_parts {
    struct state_part *part;
    unsigned count;
};

/* own: of the optimizer's state what this rank has itself. */
bool checkpoint_gather_parts(crun_ddp *ddp, crun_optim *optim, bool own,
                             struct checkpoint_parts *all) MUST_CHECK;

CRUN_CHECK crun_status checkpoint_broadcast(crun_world *world, void *what, size_t size,
                                            int root);
/* Less than 0 for a failure. The ranks then know the least of them. */
int64_t checkpoint_failure(const crun_world *world, crun_status own);
/* All ranks get the status and the text of the rank with the least number, whose last
 * failure it is. */
CRUN_CHECK crun_status checkpoint_fail(crun_world *world, int64_t least);
/* CRUN_OK if no rank has failed. */
CRUN_CHECK crun_status checkpoint_share(crun_world *world, crun_status own);

/* The numbers of which the ranks find the least ones. NOT_COUNT is ~COUNT, which is
 * least where the count is greatest. */
enum { FAILED, LAST, SHARDED, COUNT, NOT_COUNT, STATE, NOT_STATE, NUMBERS };

/* `own`: whether this rank is ready. Fails together with the others if one is not, or
 * if the counts or the parts differ. Of the other numbers n gets the least ones. */
CRUN_CHECK crun_status checkpoint_agree(crun_world *world, const char *what,
                                        const char *counts, uint64_t count,
                                        const struct checkpoint_parts *all,
                                        crun_status own, int64_t n[NUMBERS]);

/* -- checkpoint_save.c ------------------------------------------------------------- */

CRUN_CHECK crun_status checkpoint_check_extras(const char *call,
                                               const crun_extra *extra, size_t extras);

/* -- checkpoint_in_memory.c: checkpoints in memory
 * -------------------------------------- */

/* With an agent that offers memory to all ranks of the job. All together. */
CRUN_CHECK crun_status checkpoint_steps_open(struct crun_checkpoints *c);
void checkpoint_steps_close(struct crun_checkpoints *c);

/* -- checkpoint_writer.c ----------------------------------------------------------- */

CRUN_CHECK crun_status checkpoint_need_directory(const struct crun_checkpoints *c,
                                                 const char *call);
/* This rank's part of a save. */
struct checkpoint_target checkpoint_target_of(const struct crun_checkpoints *c,
                                              uint64_t save, uint64_t step,
                                              bool sharded);
/* Frees the copy. */
CRUN_CHECK crun_status checkpoint_writer_take(struct crun_checkpoints *c,
                                              struct checkpoint_copy *copy,
                                              uint64_t step, bool sharded);
/* Waits until it is idle: the status of the last write. */
CRUN_CHECK crun_status checkpoint_writer_wait(struct crun_checkpoints *c);
