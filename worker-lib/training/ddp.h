/* SPDX-License-Identifier: MIT */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "worker-lib/compute/device.h"
#include "worker-lib/training/train_state.h"
#include "worker-lib/world/world.h"

/*
 * Shared by the files of the reducer and of the optimizers.
 *
 * Positions count elements. A parameter has the same position `at`, a multiple of
 * DDP_ALIGN, among the values and among the gradients; it depends only on the
 * registered sizes. Buckets cut the arena into ranges whose size is a multiple of
 * DDP_ALIGN * size, so that the ranks' slices of a bucket are equal in length and
 * alignment. A cut may go through a parameter, which then belongs to two buckets. Only
 * the padding after the last parameter depends on the world's size.
 */
#define DDP_ALIGN 32 /* elements: 64 bytes of f16, 128 of f32 */

/* The number of steps that a rank's host may be ahead of its GPU. */
#define DDP_NOTES 2

struct ddp_parameter {
    char *name;
    size_t count, at;
    unsigned first_bucket, last_bucket;
    bool opens_bucket;      /* with windows */
    _Atomic uint64_t ready; /* the last step in which it was ready; 0: none */
    _Atomic unsigned place; /* in the order of the first step */
};

/* With shard 2: the memory of a bucket's gradients, from the first of them until they
 * are summed. In a list. */
struct ddp_window {
    struct ddp_window *next;
    struct ddp_bucket *bucket; /* NULL: it is not used */
    void *memory;              /* for the largest bucket */
    bool of_all;               /* of crun_alloc */
};
#define DDP_WINDOWS 2 /* at first: one is filled while another one is summed */

struct ddp_bucket {
    size_t at, count;
    struct ddp_window *window; /* or NULL */
    unsigned parameters;       /* that lie in it, entirely or in part */
    _Atomic unsigned pending;
    struct crun_work *work; /* of a group: that of its first bucket; or NULL */
    uint64_t range;         /* from its launch to its end, of profiler_ranges.h */
};

/* Buckets of one group are launched together, as one operation. */
struct ddp_launch {
    uint32_t bucket, group;
};

/* The flat memory of parameters, gradients and buffers. */
struct ddp_arena {
    float *values;
    char *gradients; /* in options.grad_type; with windows, only this rank's slices */
    uint16_t *half;  /* the values in grad_type; or NULL */
    float *buffers;
    size_t length;        /* of values, gradients and half, with padding */
    size_t buffer_length; /* of buffers, with padding */
};

struct ddp_step {
    _Atomic bool open, sync;
    bool summed; /* the gradients become the sum over all ranks, not the mean */
    _Atomic uint64_t number; /* counts every begin */
    _Atomic unsigned places; /* parameters that are ready, while they are ordered */
    uint64_t range;          /* from begin to the optimizer's step */
    /* with the lock: */
    unsigned launched;  /* in launch_order */
    crun_status status; /* of the first launch that failed */
    char text[512];
};

/* Measured by this rank in the last step; the next step compares it between ranks. */
struct ddp_step_times {
    int32_t waited_us;  /* in finish, and in the optimizer's all-gathers */
    int32_t overlap_us; /* in collectives */
};

struct ddp_times {
    uint64_t overlap_before_us; /* world_overlap_us() when the step began */
    struct ddp_step_times last;
    double communication_s, exposed_s, skew_s; /* of crun_ddp_stats */
};

/* Parameters without a gradient. */
struct ddp_unused {
    char *names; /* in the last step; NULL: there was none yet */
    /* On a GPU the number over all ranks is known some steps later. */
    int32_t *sum;
    struct device_note *note[DDP_NOTES];
};

/* The state for checkpoints: see train_state.h. */
struct ddp_state_parts {
    struct state_part *part;
    struct state_range *range;
    void *copying; /* the queue of copies to the host; NULL: there was none yet */
    bool copied;   /* the program's queue does not wait for the last ones yet */
};

/*
 * A step: begin opens it. ready, from any thread, counts down the buckets of its
 * parameter. The thread that completes a bucket takes the lock and launches, in
 * launch_order, all groups of buckets that are complete and next, so that every rank
 * launches the same collectives in the same order. On a GPU finish launches the last
 * group, together with the number of unused parameters.
 */
struct crun_ddp {
    crun_world *world;
    const struct device_ops *ops; /* of the memory of the arena */
    crun_ddp_options options;
    unsigned rank, size;
    bool divided;   /* each rank's optimizer steps only its own slices */
    bool windowed;  /* and only these gradients are kept: shard 2, several ranks */
    size_t element; /* bytes of a gradient's element */
    bool sums;      /* an optimizer divides the next step's gradients */

    struct ddp_parameter *parameter, *buffer;
    unsigned parameters, buffers;
    size_t count; /* elements of all parameters */
    bool sealed;

    struct ddp_arena arena;
    struct ddp_bucket *bucket; /* from the arena's end to its beginning */
    unsigned buckets;
    struct ddp_launch *launch_order; /* of all buckets */
    struct ddp_window *window;

    pthread_mutex_t lock;
    struct ddp_step step;
    uint64_t gradients_since; /* the first step whose gradients are accumulated */
    uint64_t steps_synced;    /* steps with communication */

    struct ddp_times times;
    struct ddp_unused unused;
    struct ddp_state_parts state;
};

static inline size_t ddp_gradients_kept(const crun_ddp *ddp)
{
    return ddp->arena.length / (ddp->windowed ? ddp->size : 1) * ddp->element;
}

static inline char *ddp_gradient_at(const crun_ddp *ddp, size_t at)
{
    return ddp->arena.gradients + at * ddp->element;
}

static inline void *ddp_queue(const crun_ddp *ddp)
{
    return ddp->ops->queued ? world_queue(ddp->world) : NULL;
}

/* Updates the copy of the values in grad_type, if there is one. */
crun_status ddp_narrow_values(crun_ddp *ddp) CRUN_CHECK;

/* Records the first failure of a step, with its error text. */
void ddp_note(crun_ddp *ddp, crun_status s);
/* Waits for all work in progress and for `last` (may be NULL), even after a failure.
 * Returns the first failure of the step. */
crun_status ddp_wait_all(crun_ddp *ddp, crun_work *last);
/* Adds the time since `since` to what this rank has waited in this step. */
void ddp_has_waited(crun_ddp *ddp, double since);

/* A clock for measurements, in seconds. */
double ddp_seconds(void);

/* The sizes that the program leaves to the library. */
void ddp_default_buckets(crun_ddp_options *o);
/* Lays out the arena and the buckets. CRUN_BAD_ARGUMENT if two parameters have the same
 * name. */
crun_status ddp_lay_out(crun_ddp *ddp);
/* CRUN_MISMATCH, with the first difference between the ranks' registrations. */
crun_status ddp_compare(crun_ddp *ddp);

/* -- ddp_state.c ------------------------------------------------------------------- */

/* After the layout: lists the parts of ddp_state(). */
crun_status ddp_describe_state(crun_ddp *ddp);
/* Waits until copies to the host have read the state, which can then be freed. */
void ddp_end_copies(crun_ddp *ddp);

/* -- ddp_window.c ------------------------------------------------------------------ */

/* All ranks together. */
crun_status ddp_windows_alloc(crun_ddp *ddp) CRUN_CHECK;
void ddp_windows_free(crun_ddp *ddp);
/* With the lock: the bucket has a window, which is zero if it had none before. May wait
 * for another bucket's sum. */
crun_status ddp_window_take(crun_ddp *ddp, struct ddp_bucket *b) CRUN_CHECK;
/* Its sum is over. */
void ddp_window_leave(struct ddp_bucket *b);
/* Where the gradients of the parameter are now, or NULL. */
void *ddp_window_place(const crun_ddp *ddp, const struct ddp_parameter *p);
/* The same in a step, until the parameter's bucket is complete: takes a window. */
void *ddp_window_gradient(crun_ddp *ddp, const struct ddp_parameter *p);

/* -- ddp_launch_order.c ------------------------------------------------------------ */

/* After the first step: sets launch_order to the order of completion on rank 0. On a
 * GPU the buckets that one parameter has completed are a group. */
crun_status ddp_reorder(crun_ddp *ddp);

/* -- ddp_unused.c ------------------------------------------------------------------ */

/* Zeroes the gradients of this rank's unused parameters, which are of earlier steps.
 * Returns their number. */
int32_t ddp_zero_unused(crun_ddp *ddp);
/* On a GPU: puts this rank's number into unused.sum, which is then to be summed. */
crun_status ddp_put_unused(crun_ddp *ddp, int32_t unused) CRUN_CHECK;
/* On a GPU: *unused is the number of all ranks DDP_NOTES steps ago. */
crun_status ddp_read_unused(crun_ddp *ddp, int32_t *unused) CRUN_CHECK;
/* Whether a rank names only its own unused parameters: those of other ranks are known
 * late, and are not an error. */
bool ddp_names_own_unused(const crun_ddp *ddp);
/* Fills in unused.names. An error unless options.find_unused. */
crun_status ddp_name_unused(crun_ddp *ddp) CRUN_CHECK;
