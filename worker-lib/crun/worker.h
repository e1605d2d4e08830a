/* SPDX-License-Identifier: MIT */
#ifndef CRUN_WORKER_H
#define CRUN_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The worker library, for the ranks of a data-parallel job: a world of ranks,
 * collectives between them, and on top of these a gradient reducer, optimizers, a
 * sampler and checkpoints.
 *
 * Each function that can fail returns a status; crun_error_text() then describes this
 * thread's error in one sentence. No function prints or waits without a deadline, and
 * none ends the process, except in the case that crun_exit_code describes. One thread
 * at a time may call functions of the same object; crun_abort, crun_ddp_ready and
 * functions marked "any thread" may be called from any thread.
 */
#define CRUN_API __attribute__((visibility("default")))
#define CRUN_CHECK __attribute__((warn_unused_result))

typedef enum crun_status {
    CRUN_OK = 0,
    CRUN_BAD_ARGUMENT,    /* a mistake of the caller; nothing was done */
    CRUN_BAD_ENVIRONMENT, /* RANK or another variable is invalid */
    CRUN_NO_MEMORY,
    CRUN_SYSTEM,      /* a call of the system, CUDA or NCCL failed */
    CRUN_TIMEOUT,     /* deadline passed; the text names the missing ranks */
    CRUN_PEER_LOST,   /* another rank has died or left; the text names it */
    CRUN_MISMATCH,    /* ranks made different calls; the text has both */
    CRUN_ABORTED,     /* crun_abort, on this rank or another */
    CRUN_UNSUPPORTED, /* not supported by this build or backend */
    CRUN_NOT_FOUND,   /* no such file, or no checkpoint */
    CRUN_CORRUPT,     /* a file is damaged, or of another kind */
    CRUN_NO_SPACE,    /* the disk is full; existing files are intact */
    CRUN_STALE,       /* a newer start of the job writes these checkpoints */
    CRUN_STATUS_COUNT
} crun_status;

CRUN_API const char *crun_status_name(crun_status s); /* "timeout" */
/* Describes the last failed call of this thread; "" if there was none. */
CRUN_API const char *crun_error_text(void);
CRUN_API const char *crun_version(void);

/* -- the world --------------------------------------------------------------------- */

typedef struct crun_world crun_world;

typedef struct crun_options {
    /* "auto", "shm", "tcp", "shm+tcp" or "nccl"; NULL: $CRUN_BACKEND, else "auto" */
    const char *backend;
    /* This rank's GPU: its number, or "auto" for $CRUN_DEVICE, by default the local
     * rank. NULL: the program computes on the host, and backend "auto" is never
     * nccl. */
    const char *device;
    double timeout_s;      /* of each collective; 0: $CRUN_TIMEOUT or 1800 */
    double init_timeout_s; /* until all ranks have joined; 0: 300 */
} crun_options;

/*
 * Joins the other ranks. Rank and size come from the environment: torchrun's variables
 * (set by crun and torchrun), else those of Open MPI, MPICH's hydra, PMIx or Slurm;
 * without any of them this is a world of one rank. options may be NULL. A process may
 * have several worlds, one after another or at the same time, if all ranks create the
 * same ones in the same order.
 */
CRUN_API CRUN_CHECK crun_status crun_init(crun_world **world,
                                          const crun_options *options);
/*
 * Leaves the world. Work that was not waited for is aborted. All memory of crun_alloc
 * must have been freed before. NULL is fine.
 */
CRUN_API void crun_finalize(crun_world *world);

CRUN_API int crun_rank(const crun_world *world);
CRUN_API int crun_size(const crun_world *world);
CRUN_API int crun_local_rank(const crun_world *world);
CRUN_API int crun_local_size(const crun_world *world);
CRUN_API int crun_node(const crun_world *world);
CRUN_API int crun_nodes(const crun_world *world);
CRUN_API int crun_restarts(const crun_world *world);
/* "shm", "tcp", "shm+tcp", "nccl", or "self" in a world of one. */
CRUN_API const char *crun_backend(const crun_world *world);

/*
 * With nccl, collectives are queued on the GPU. Buffers may be in GPU or host memory. A
 * collective on GPU memory is ordered in the program's CUDA stream: it begins after the
 * work that is in the stream, and work that is queued after crun_wait, or after a call
 * with `work` NULL, begins after the collective. The host does not wait; a failure is
 * reported by the next call. The host waits for results in host memory and for
 * barriers.
 *
 * When a rank fails, collectives on the GPUs of the others may end with wrong values
 * and no error. Values in GPU memory, and what was computed from them, are proven right
 * by a barrier, or a collective on host memory, that is called after them and returns
 * CRUN_OK; crun_checkpoint_save and the info of crun_optim_step need none, as they
 * prove what they write or return.
 *
 * crun_set_stream (a cudaStream_t) applies to later calls; before it, the stream is
 * CUDA's default stream. CRUN_UNSUPPORTED: this backend has no streams. While the
 * stream is captured into a CUDA graph, operations are refused with CRUN_UNSUPPORTED,
 * which does not end the world; captures of other streams are not disturbed.
 */
CRUN_API CRUN_CHECK crun_status crun_set_stream(crun_world *world, void *stream);
/* The GPU in use, or -1. crun_init makes it the calling thread's current device. */
CRUN_API int crun_device(const crun_world *world);
/*
 * 0, or CRUN_EXIT_STUCK if this process hangs in NCCL or in the GPU's driver and this
 * could not be aborted. exit() may then hang, so end the process by _exit() with this
 * code, before any call that may wait for the GPU. The library does so itself after
 * $CRUN_STUCK_EXIT seconds (5; 0: never), because the program may hang as well.
 */
CRUN_API int crun_exit_code(void);
#define CRUN_EXIT_STUCK 76
/* A program that would fail again, as after CRUN_STALE, exits with this code: crun ends
 * the job, even if restarts are left. */
#define CRUN_EXIT_FINAL 78

/*
 * Ends all communication of this world, on this rank at once and on the other ranks as
 * soon as they learn of it. Calls in progress and later calls return CRUN_ABORTED with
 * this reason; in shared memory the text also names the ranks that were waited for. Any
 * thread may call it; the first reason counts. A signal handler may call
 * crun_abort_signal instead.
 */
CRUN_API void crun_abort(crun_world *world, const char *reason);
CRUN_API void crun_abort_signal(crun_world *world);

/*
 * Divides the world into groups: ranks of the same color form one, in the order of
 * (key, rank). A negative color: no group, *group is NULL. All ranks call it together.
 * A group is a world of its own, with the same timeouts and stream, and the ranks,
 * nodes and local ranks of its members; all functions that take a world accept it,
 * crun_split included. Messages name ranks by their numbers in the world of crun_init.
 * Its backend is the parent's, or the part of shm+tcp that it needs; "self" in a group
 * of one without a GPU.
 *
 * Ranks that share several worlds call the operations of all these worlds in one order:
 * with nccl each operation of a process waits on the GPU for the one before it, in
 * whatever world, so two ranks with different orders wait until the timeout.
 *
 * The first failure in a world or in any of its groups ends all of them, on all ranks.
 * A group is finalized before its parent. A parent that is finalized first is an error:
 * it ends all of them with CRUN_ABORTED, and lives until its groups are finalized.
 */
CRUN_API CRUN_CHECK crun_status crun_split(crun_world *world, int color, int key,
                                           crun_world **group);

/* -- memory ------------------------------------------------------------------------ */

/*
 * Allocates memory in which collectives need no copy: shared with the ranks of this
 * node, page-aligned and zeroed; with nccl, GPU memory. All ranks call it together with
 * the same size. With nccl, if a GPU has too little memory, all ranks return
 * CRUN_NO_MEMORY and may continue. Collectives also work on any other memory.
 *
 * With nccl, crun_free waits until the program's stream has done all work that is
 * queued in it.
 */
CRUN_API CRUN_CHECK crun_status crun_alloc(crun_world *world, size_t bytes,
                                           void **memory);
CRUN_API void crun_free(crun_world *world, void *memory); /* NULL is fine */

/* -- collectives ------------------------------------------------------------------- */

typedef enum crun_dtype {
    CRUN_F32,
    CRUN_F64,
    CRUN_F16,
    CRUN_BF16,
    CRUN_I32,
    CRUN_I64,
    CRUN_U8,
    CRUN_DTYPE_COUNT
} crun_dtype;

typedef enum crun_op {
    CRUN_SUM,
    CRUN_MEAN, /* not of integers: the sum would wrap around, as with NCCL */
    CRUN_MIN,
    CRUN_MAX,
    CRUN_PRODUCT,
    CRUN_OP_COUNT
} crun_op;

CRUN_API size_t crun_dtype_size(crun_dtype t);
CRUN_API const char *crun_dtype_name(crun_dtype t); /* "f32" */
CRUN_API const char *crun_op_name(crun_op op);      /* "sum" */

/* Converts f32 to bf16 or f16, rounding to nearest even, and back. */
CRUN_API CRUN_CHECK crun_status crun_narrow(void *to, const float *from, size_t count,
                                            crun_dtype type);
CRUN_API CRUN_CHECK crun_status crun_widen(float *to, const void *from, size_t count,
                                           crun_dtype type);

/*
 * All ranks call the same collectives in the same order. With `work` NULL the call
 * returns when the result is complete. Otherwise it returns at once; the buffers then
 * belong to the library until crun_wait, which must be called for `*work`. The buffers
 * of a call are the same memory (in place) or do not overlap: others are refused. Sums
 * and products of integers wrap around. Counts are in elements.
 * f16 and bf16 are added in f32 and rounded once. All ranks get the same bits on every
 * run. (With nccl, NCCL adds, in the type itself and in its own order.)
 */
typedef struct crun_work crun_work;

/* Returns the collective's status and frees the work in any case. */
CRUN_API CRUN_CHECK crun_status crun_wait(crun_work *work);
CRUN_API bool crun_is_done(const crun_work *work);

CRUN_API CRUN_CHECK crun_status crun_all_reduce(crun_world *world, const void *in,
                                                void *out, size_t count,
                                                crun_dtype type, crun_op op,
                                                crun_work **work);
CRUN_API CRUN_CHECK crun_status crun_broadcast(crun_world *world, void *buffer,
                                               size_t count, crun_dtype type, int root,
                                               crun_work **work);
/* in: count * size elements; out: this rank's `count` elements of the result. In place:
 * out is in + rank * count. */
CRUN_API CRUN_CHECK crun_status crun_reduce_scatter(crun_world *world, const void *in,
                                                    void *out, size_t count,
                                                    crun_dtype type, crun_op op,
                                                    crun_work **work);
/* in: count elements; out: count * size. In place: in is out + rank * count. */
CRUN_API CRUN_CHECK crun_status crun_all_gather(crun_world *world, const void *in,
                                                void *out, size_t count,
                                                crun_dtype type, crun_work **work);
/* in and out: count * size elements; part r goes to rank r. Not in place. */
CRUN_API CRUN_CHECK crun_status crun_all_to_all(crun_world *world, const void *in,
                                                void *out, size_t count,
                                                crun_dtype type, crun_work **work);
CRUN_API CRUN_CHECK crun_status crun_barrier(crun_world *world, crun_work **work);
/* Between two ranks; calls match in the order in which these two ranks make them. */
CRUN_API CRUN_CHECK crun_status crun_send(crun_world *world, const void *buffer,
                                          size_t count, crun_dtype type, int to);
CRUN_API CRUN_CHECK crun_status crun_receive(crun_world *world, void *buffer,
                                             size_t count, crun_dtype type, int from);

/*
 * Several operations as one. Between the two calls this world's collectives and
 * messages (with `work` NULL) are only recorded, and their arguments checked;
 * crun_group_end runs them all, and its `work` is that of the group. Until that is
 * done, no buffer of the group may be used. Collectives of a group are in the same
 * order on all ranks. Messages need no order, except between the same two ranks: all of
 * them progress together, so that a ring of sends and receives cannot block.
 * crun_alloc, crun_split, crun_ddp_*, crun_optim_* and crun_checkpoint* cannot be in a
 * group. After an error in a group its later calls, and crun_group_end, return the same
 * error, and none of them is run.
 */
CRUN_API CRUN_CHECK crun_status crun_group_begin(crun_world *world);
CRUN_API CRUN_CHECK crun_status crun_group_end(crun_world *world, crun_work **work);

/*
 * The last operations of this rank, one line each, newest last: the text that is
 * written to $CRUN_FLIGHT_DIR, if set, when a collective fails. Any thread. Returns
 * what snprintf would return.
 */
CRUN_API size_t crun_flight_record(crun_world *world, char *text, size_t size);

/* -- data-parallel training -------------------------------------------------------- */

/*
 * The gradient reducer. After registration it owns one flat arena for parameters and
 * one for gradients (in memory of crun_alloc), and the program computes in views of
 * them. Parameters are registered in the order of the forward pass; buckets are filled
 * from the end of it.
 *
 * If crun_alloc returns GPU memory, the functions of a step queue their work in the
 * stream of crun_set_stream. No step waits for the GPU, except that crun_ddp_finish
 * waits for the step before the last one. So a missing gradient is reported two steps
 * later, and find_unused names only this rank's unused parameters.
 */
typedef struct crun_ddp crun_ddp;

/* Consecutive gradients, which the ranks exchange together. */
typedef struct crun_ddp_bucket {
    unsigned number; /* from 0; it has the same gradients in each step */
    void *gradients; /* in the memory of crun_alloc */
    size_t count;    /* elements, with padding, which is 0 */
    crun_dtype type;
} crun_ddp_bucket;

/*
 * What exchanges a bucket in place of the reducer, for example compressed. When `end`
 * has returned, the gradients must be the mean over all ranks, the same bits on each.
 * All ranks have the same hook; a world of one rank calls none.
 *
 * begin is called when the gradients are ready, for one bucket after the other, in one
 * order on all ranks, by the thread that calls crun_ddp_ready or crun_ddp_finish. It
 * may start a collective on memory of its own and set *work, for which the reducer
 * waits. It calls no other function of the reducer. end, which may be NULL, is called
 * by crun_ddp_finish, in the order of the numbers. A failure is that of
 * crun_ddp_finish. On a GPU both queue their work in the stream of crun_set_stream.
 */
typedef struct crun_ddp_hook {
    crun_status (*begin)(void *arg, crun_world *world, const crun_ddp_bucket *bucket,
                         crun_work **work);
    crun_status (*end)(void *arg, crun_world *world, const crun_ddp_bucket *bucket);
    void *arg;
} crun_ddp_hook;

typedef struct crun_ddp_options {
    size_t first_bucket_bytes; /* 0: 1 MiB */
    size_t bucket_bytes;       /* 0: 25 MiB */
    crun_dtype grad_type;      /* CRUN_F32, or CRUN_BF16, CRUN_F16 with f32 masters */
    /* 1, ZeRO-1: each rank has the optimizer state of its part. 2, ZeRO-2: and only its
     * part of the gradients, see crun_ddp_gradient. */
    int shard;
    /* In shared memory: each rank steps its part for all ranks, and checkpoints have
     * the state of all ranks. */
    bool share_step;
    bool find_unused; /* a missing gradient counts as zero and is no error */
    bool keep_half;   /* the optimizer keeps a copy of the parameters in grad_type */
    /* With shard and keep_half, for programs that compute with half values alone: after
     * a step the ranks exchange only these, half as many bytes. The f32 values are then
     * current only in this rank's part, until crun_ddp_gather. */
    bool gather_half;
    crun_ddp_hook hook; /* begin NULL: none. Not with shard; share_step has no effect */
} crun_ddp_options;

CRUN_API CRUN_CHECK crun_status crun_ddp_create(crun_ddp **ddp, crun_world *world,
                                                const crun_ddp_options *options);
CRUN_API void crun_ddp_destroy(crun_ddp *ddp); /* before crun_finalize; NULL is fine */

/* Returns the parameter's number, from 0, or -1; then crun_error_text has the reason. A
 * buffer has no gradient; crun_ddp_broadcast_buffers makes it equal on all ranks. */
CRUN_API int crun_ddp_parameter(crun_ddp *ddp, const char *name, size_t count);
CRUN_API int crun_ddp_buffer(crun_ddp *ddp, const char *name, size_t count);
/*
 * Ends the registration: lays out the arenas and compares the layout with the other
 * ranks' (CRUN_MISMATCH names the first difference). CRUN_BAD_ARGUMENT: two names are
 * equal, or files of checkpoints cannot have one: it has more than 255 bytes, is not
 * UTF-8, ends with @ and a number, or is "optimizer.m", "optimizer.v" or
 * "__metadata__".
 */
CRUN_API CRUN_CHECK crun_status crun_ddp_seal(crun_ddp *ddp);

/* Views, valid from crun_ddp_seal until crun_ddp_destroy: parameters and buffers in
 * f32, gradients in grad_type. After a failure their values are undefined. */
CRUN_API float *crun_ddp_value(const crun_ddp *ddp, int parameter);
/* With shard 2 the memory of a bucket's gradients is used again for others: ask for it
 * in each step, after crun_ddp_begin. It is zero then, and valid until crun_ddp_ready
 * of the parameter; NULL outside of this time, and without memory. begin cannot have
 * sync false. */
CRUN_API void *crun_ddp_gradient(const crun_ddp *ddp, int parameter);
CRUN_API const uint16_t *crun_ddp_half_value(const crun_ddp *ddp, int parameter);
CRUN_API float *crun_ddp_buffer_value(const crun_ddp *ddp, int buffer);
CRUN_API size_t crun_ddp_count(const crun_ddp *ddp); /* elements of all parameters */
CRUN_API float *
crun_ddp_values(const crun_ddp *ddp); /* the whole arena; padding is 0, or NaN after
                                       * clipping of a NaN */

/* With gather_half all ranks get all f32 values. All ranks call it together.
 * crun_checkpoint_save does it too, so that a checkpoint has all f32 values. */
CRUN_API CRUN_CHECK crun_status crun_ddp_gather(crun_ddp *ddp);
/* All ranks get root's parameters and buffers. */
CRUN_API CRUN_CHECK crun_status crun_ddp_broadcast(crun_ddp *ddp, int root);
CRUN_API CRUN_CHECK crun_status crun_ddp_broadcast_buffers(crun_ddp *ddp, int root);

/*
 * One step: begin, compute the gradients and announce each when it is ready (any
 * thread, any order), finish. With sync false nothing is communicated, and the program
 * adds the gradients of the next backward pass to the present ones. The communication
 * of ready gradients overlaps with the computation of others; in shared memory only if
 * each rank has a second core, since it would otherwise slow down the computation.
 * finish waits for all communication; then the gradients are the mean over all ranks
 * (with shard or share_step only in this rank's part, which its optimizer steps).
 *
 * For gradients on a GPU they are the sum over all ranks in steps that begin while the
 * reducer has an optimizer, which then divides them: NCCL adds faster than it averages.
 * Without an optimizer, and in f16 without loss_scaling, they are the mean. The last
 * bucket begins in finish, together with the count of missing gradients.
 */
CRUN_API CRUN_CHECK crun_status crun_ddp_begin(crun_ddp *ddp, bool sync);
CRUN_API CRUN_CHECK crun_status crun_ddp_ready(crun_ddp *ddp, int parameter);
CRUN_API CRUN_CHECK crun_status crun_ddp_finish(crun_ddp *ddp);
CRUN_API void crun_ddp_zero(crun_ddp *ddp); /* all gradients */

typedef struct crun_ddp_stats {
    uint64_t steps;
    /* Total seconds of all steps but the last, whose times are exchanged with the next
     * step's gradients. For gradients on a GPU, as measured by this rank's host. */
    double communication_s; /* in collectives, on the rank that waited least in them */
    double exposed_s;       /* the part of it that even the last rank waited for; on a
                             * GPU it has the computation, too */
    double skew_s;          /* waiting longer than that, for slower ranks */
    unsigned buckets;
    const char *unused; /* names of the last step's unused parameters; "": none */
} crun_ddp_stats;
CRUN_API void crun_ddp_get_stats(crun_ddp *ddp, crun_ddp_stats *stats);

/* -- optimizers -------------------------------------------------------------------- */

typedef enum crun_optimizer { CRUN_SGD, CRUN_ADAM, CRUN_ADAMW } crun_optimizer;

typedef struct crun_optim_options {
    crun_optimizer kind;
    float lr;
    float momentum;          /* SGD */
    bool nesterov;           /* SGD */
    float beta1, beta2, eps; /* Adam; all 0: 0.9, 0.999, 1e-8 */
    float weight_decay;      /* added to the gradient; AdamW: decoupled */
    /* Limit for the norm of the whole gradient; 0: none. It lets NaN through. */
    float clip_norm;
    bool loss_scaling; /* dynamic, for f16 gradients */
} crun_optim_options;

/* Updates the parameters of a sealed ddp from its mean gradients. All ranks create and
 * destroy it between the same steps, with the same options (CRUN_MISMATCH names the
 * difference). */
typedef struct crun_optim crun_optim;

CRUN_API CRUN_CHECK crun_status crun_optim_create(crun_optim **optim, crun_ddp *ddp,
                                                  const crun_optim_options *options);
CRUN_API void crun_optim_destroy(crun_optim *optim); /* before its ddp */
/* The same on all ranks. */
CRUN_API CRUN_CHECK crun_status crun_optim_set_lr(crun_optim *optim, float lr);
/* The factor for the loss before the backward pass; 1 without loss scaling. */
CRUN_API float crun_optim_scale(const crun_optim *optim);
/* The same in GPU memory, for kernels, without waiting; NULL without a GPU. */
CRUN_API const float *crun_optim_scale_on_device(const crun_optim *optim);

typedef struct crun_step_info {
    float grad_norm; /* of the mean gradient before clipping; NaN: not computed */
    /* With loss_scaling: a gradient was infinite or NaN, so no rank has changed its
     * parameters. */
    bool skipped;
    float scale;
} crun_step_info;
/* After crun_ddp_finish of a step with sync true. info may be NULL; the norm in it
 * costs one more pass over the gradients, and waits for a GPU. */
CRUN_API CRUN_CHECK crun_status crun_optim_step(crun_optim *optim,
                                                crun_step_info *info);

/* -- sampler ----------------------------------------------------------------------- */

/*
 * Distributes the numbers 0 to samples-1 to all ranks: each exactly once in a pass, in
 * a random order that depends on (seed, pass) and needs no memory.
 */
typedef struct crun_sampler crun_sampler;

typedef enum crun_remainder {
    CRUN_PAD,  /* the last round repeats samples, so that all ranks get equally many */
    CRUN_DROP, /* the last, incomplete round is left out */
    CRUN_EXACT /* ranks may differ by one sample */
} crun_remainder;

typedef struct crun_sampler_options {
    uint64_t samples, seed;
    int rank, size;
    bool in_order; /* not shuffled */
    crun_remainder remainder;
} crun_sampler_options;

CRUN_API CRUN_CHECK crun_status
crun_sampler_create(crun_sampler **sampler, const crun_sampler_options *options);
CRUN_API void crun_sampler_destroy(crun_sampler *sampler);
CRUN_API void crun_sampler_set_pass(crun_sampler *sampler, uint64_t pass);
/* Writes up to `count` numbers for this rank to index. Returns how many; 0: the pass is
 * over. */
CRUN_API size_t crun_sampler_next(crun_sampler *sampler, uint64_t *index, size_t count);
/* The number of samples left for this rank in the pass. */
CRUN_API uint64_t crun_sampler_left(const crun_sampler *sampler);

/*
 * The position of all ranks together: the same on each rank if all have drawn equally
 * many samples. It may be restored in a world of another size, which then distributes
 * the rest of the pass, each sample exactly once.
 */
typedef struct crun_sampler_state {
    uint64_t samples, seed, pass, dealt;
} crun_sampler_state;
CRUN_API void crun_sampler_save(const crun_sampler *sampler, crun_sampler_state *state);
CRUN_API CRUN_CHECK crun_status crun_sampler_restore(crun_sampler *sampler,
                                                     const crun_sampler_state *state);

/* -- checkpoints ------------------------------------------------------------------- */

/*
 * A directory of checkpoints, written by one start of a job at a time: opening it
 * claims its next generation, and a writer of an older generation gets CRUN_STALE, also
 * if the directory was removed and made anew.
 * Files are in the safetensors format, which other programs can read.
 *
 * All ranks call open, save, wait and load together, and get the same status, unless it
 * says otherwise: a failure of one rank is that of all, whose texts name the rank.
 * Checkpoints are ordered by generation, then by the order in which they were saved,
 * whatever their steps: after going back to an older checkpoint, the next one that is
 * saved is the newest. Two saves of the same step are two checkpoints.
 */
typedef struct crun_checkpoints crun_checkpoints;

typedef struct crun_checkpoint_options {
    const char *directory; /* NULL: none, to load files only */
    int keep;              /* how many of the newest are kept; 0: 3 */
    bool blocking;         /* crun_checkpoint_save waits as crun_checkpoint_wait does */
    /* Called on rank 0, by crun_checkpoint_load, with one sentence about checkpoints
     * that are passed over: damaged ones, and parts that were never completed; and on a
     * rank that cannot have checkpoints in memory. Or NULL. */
    void (*warn)(void *arg, const char *text);
    void *arg;
    int memory_every; /* steps, of crun_checkpoint_step; 0: none in memory */
} crun_checkpoint_options;

/* Rank 0's options count. CRUN_BAD_ARGUMENT: not all ranks see rank 0's directory, as
 * when each node has its own. */
CRUN_API CRUN_CHECK crun_status
crun_checkpoints_open(crun_checkpoints **checkpoints, crun_world *world,
                      const crun_checkpoint_options *options);
/* Waits until what this rank writes is on disk, or has failed. */
CRUN_API void crun_checkpoints_close(crun_checkpoints *checkpoints);

/* An extra value of the program in a checkpoint. Text in UTF-8. */
typedef struct crun_extra {
    const char *key; /* 1 to 127 bytes */
    char value[256]; /* up to 255 bytes and NUL */
} crun_extra;

/*
 * Saves parameters, buffers, optimizer state, sampler (may be NULL) and extras at a
 * step. The sampler and the extras are those of rank 0. The ranks first compare, in one
 * all-reduce, what they are about to save: CRUN_MISMATCH for other steps or models,
 * and CRUN_BAD_ARGUMENT if an extra of any rank is invalid, save nothing. The call
 * returns when this rank's state is copied; a thread then writes the copy, after the
 * previous one is written. The status is that of the previous checkpoint on all ranks,
 * or that of this rank's copy. With `blocking` it is that of this checkpoint.
 *
 * Only ranks that write copy something: rank 0, and all ranks if any of them has state
 * that others do not, as with shard. From a GPU the state is copied to pinned memory
 * while the training continues: the call waits for the steps so far, not for the copy,
 * and the next crun_optim_step waits for the copy on the GPU. Until then the program
 * may write to buffers, but not to parameters. Without an optimizer all later work in
 * the program's stream waits for it.
 */
CRUN_API CRUN_CHECK crun_status crun_checkpoint_save(
    crun_checkpoints *checkpoints, uint64_t step, crun_ddp *ddp, crun_optim *optim,
    const crun_sampler *sampler, const crun_extra *extra, size_t extras);
/* CRUN_OK: all parts of the last checkpoint are on disk. Else the failure of one of its
 * writers, when all have ended. */
CRUN_API CRUN_CHECK crun_status crun_checkpoint_wait(crun_checkpoints *checkpoints);
/*
 * After a step: each memory_every steps the state, as crun_checkpoint_save has it, goes
 * to memory of crun, which outlives this process; after a failure, also of a whole
 * node, crun_checkpoint_load goes on from there. Steps only rise within a start of the
 * program, and one crun_checkpoints of a process saves to memory. The call returns when
 * this rank's state is copied. It saves nothing if the copies of the step before are
 * not safe yet; if crun keeps no memory for all ranks, as under torchrun; in a group;
 * and if some rank could not save, from then on: `warn` says why on that rank. All
 * ranks together; the status is that of the world.
 */
CRUN_API CRUN_CHECK crun_status crun_checkpoint_step(
    crun_checkpoints *checkpoints, uint64_t step, crun_ddp *ddp, crun_optim *optim,
    const crun_sampler *sampler, const crun_extra *extra, size_t extras);
/*
 * Loads the newest complete checkpoint (file ""), or this file (rank 0's argument),
 * which may be the first part of several. What is still being written counts, too.
 * Values belong to the names of parameters, those of the optimizer's state as well:
 * the order of registration may differ, and so may the number of ranks. Extras whose
 * key is not in it become "".
 *
 * CRUN_NOT_FOUND: there is none that is complete; the text, and `warn`, say whether
 * there are parts. CRUN_CORRUPT: a file is damaged; for "", all are. CRUN_MISMATCH: it
 * is of another model, optimizer or sampler, or has no position of a sampler though
 * there is one. These change nothing. A failure of the world in the middle may leave
 * part of the state loaded.
 *
 * "" loads what is in memory (crun_checkpoint_step), unless a file has a later step or
 * memory is not whole.
 */
CRUN_API CRUN_CHECK crun_status crun_checkpoint_load(crun_checkpoints *checkpoints,
                                                     const char *file, uint64_t *step,
                                                     crun_ddp *ddp, crun_optim *optim,
                                                     crun_sampler *sampler,
                                                     crun_extra *extra, size_t extras);

/* Whether what was loaded last is from memory. */
CRUN_API bool crun_checkpoint_in_memory(const crun_checkpoints *checkpoints);

/* -- progress ---------------------------------------------------------------------- */

typedef enum crun_phase {
    CRUN_PHASE_UNKNOWN,
    CRUN_PHASE_TRAINING,
    CRUN_PHASE_EVALUATING,
    CRUN_PHASE_CHECKPOINTING,
    CRUN_PHASE_COMMUNICATING,
    CRUN_PHASE_LOADING,
    CRUN_PHASE_DONE
} crun_phase;

/* Reports this rank's progress to the launcher: a few stores to shared memory; no
 * effect without a launcher that wants it. loss: NaN if it is not known. Any thread. */
CRUN_API void crun_progress(crun_world *world, crun_phase phase, uint64_t step,
                            uint64_t steps, uint64_t samples, double loss);
/* Whether the launcher wants a checkpoint, and within what time (may be NULL). */
CRUN_API bool crun_checkpoint_wanted(crun_world *world, uint32_t *within_ms);
/* Reports that the wanted checkpoint is on disk. */
CRUN_API void crun_checkpoint_done(crun_world *world);

#ifdef __cplusplus
}
#endif

#endif
