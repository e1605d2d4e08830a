/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAINING_DDP_H
#define WORKER_LIB_TRAINING_DDP_H

#include <pthread.h>
#include <stdatomic.h>

#include "worker-lib/device/device.h"
#include "worker-lib/world/world.h"
#include "worker-lib/training/train_state.h"

/*
 * What the files of the reducer and the optimizers share.
 *
 * Positions are elements. Parameter i lies at `at` in both arenas, a multiple of
 * DDP_ALIGN after its predecessor, so positions depend on the registered sizes alone.
 * Buckets cut the arenas into ranges, each a multiple of DDP_ALIGN * size, so that
 * every rank's slice of every bucket is as long and as aligned; a cut may go through a
 * parameter, which then belongs to two buckets. Only the padding behind the last
 * parameter depends on the world's size.
 */
#define DDP_ALIGN 32 /* elements: 64 bytes of f16, 128 of f32 */

/* Steps that the program may be ahead of its GPU. */
#define DDP_NOTES 2

struct ddp_parameter {
    char *name;
    size_t count, at;
    unsigned first_bucket, last_bucket;
    _Atomic uint64_t ready; /* the last step in which it was; 0 before */
    _Atomic unsigned place; /* in the order of the step that is watched */
};

struct ddp_bucket {
    size_t at, count;
    unsigned parameters; /* that lie in it, in whole or in part */
    _Atomic unsigned pending;
    struct crun_work *work; /* under way */
};

/* What this rank saw of a step. The ranks compare it when they are together next. */
struct ddp_times {
    int32_t waited_us; /* in finish, and for the others' parts of the step */
    int32_t beside_us; /* in its collectives */
};

/*
 * A step: begin opens it, and ready, from any thread, counts down the buckets of its
 * parameter. Whoever completes a bucket takes the lock and launches, in `order`, all
 * that are complete and next; so every rank launches the same ones in the same order.
 */
struct crun_ddp {
    crun_world *world;
    const struct device_ops *ops; /* where the arenas are */
    crun_ddp_options options;
    unsigned rank, size;
    bool divided;   /* each rank's optimizer steps its own slices only */
    size_t element; /* bytes of one gradient element */

    struct ddp_parameter *parameter, *buffer;
    unsigned parameters, buffers;
    bool sealed;

    float *values, *buffer_values;
    char *gradients;
    uint16_t *half; /* the values in grad_type; or NULL */
    float *mirror;  /* values, then buffers, as the host sees them; NULL: as they are */
    size_t length;  /* of the arenas, with padding */
    size_t buffer_length; /* of the buffers, with padding */
    size_t count;         /* of all parameters' elements */

    struct ddp_bucket *bucket; /* from the arena's end to its begin */
    unsigned buckets;

    _Atomic bool open, sync;
    _Atomic uint64_t step; /* counts every begin */
    uint64_t since;        /* the step that began what the gradients hold */
    uint64_t synced;       /* steps that were communicated */
    _Atomic unsigned places;

    pthread_mutex_t lock; /* guards what follows */
    unsigned *order;      /* buckets as they are launched */
    unsigned launched;
    crun_status status; /* of this step's launches: the first that failed */
    char text[512];

    /* Where work is queued, the number of unused parameters of all ranks comes late. */
    int32_t *unused_sum;
    struct device_note *unused_note[DDP_NOTES];

    uint64_t beside_us; /* world_beside_us() at the step's begin */
    struct ddp_times last;
    double communication_s, exposed_s, skew_s;
    char *unused; /* names */
    struct state_part *part;
    struct state_range *part_range;
};

/* This rank's slice of a bucket: what it keeps of a sharded optimizer, and what it
 * looks at for all in any case. */
static inline size_t ddp_slice_count(const crun_ddp *ddp, const struct ddp_bucket *b)
{
    return b->count / ddp->size;
}

static inline size_t ddp_slice_at(const crun_ddp *ddp, const struct ddp_bucket *b)
{
    return b->at + ddp->rank * ddp_slice_count(ddp, b);
}

static inline void *ddp_queue(const crun_ddp *ddp)
{
    return ddp->ops->queued ? world_queue(ddp->world) : NULL;
}

/* The values in grad_type, made anew, where they are kept. */
crun_status ddp_narrow_values(crun_ddp *ddp) CRUN_CHECK;

/* Remembers the first failure of a step, with its words. */
void ddp_note(crun_ddp *ddp, crun_status s);
/* For all that is under way, whatever becomes of it, and `last` (may be NULL). Returns
 * the first failure of the step. */
crun_status ddp_wait_all(crun_ddp *ddp, crun_work *last);
/* This rank had to wait in this step, from then until now. */
void ddp_has_waited(crun_ddp *ddp, double since);

/* Seconds since some moment, for measuring. */
double ddp_seconds(void);

/* The arenas' layout and the buckets; CRUN_NO_MEMORY, or CRUN_BAD_ARGUMENT for two of a
 * name. */
crun_status ddp_lay_out(crun_ddp *ddp);
/* The first difference between the ranks' registrations, if any. */
crun_status ddp_compare(crun_ddp *ddp);
/* After the first step: launch buckets as rank 0 saw them become complete. */
crun_status ddp_reorder(crun_ddp *ddp);

#endif
