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
 * The worker library: what one rank of a data-parallel job needs. A world of ranks, the
 * collectives between them, and on top of those the reducer of gradients, optimizers, a
 * sampler and checkpoints.
 *
 * Every function that can fail returns a status; crun_error_text() then says in one
 * sentence what was wrong, in this thread. Nothing here exits, prints or waits without
 * a deadline. One thread at a time may call functions of the same object; crun_abort,
 * crun_ddp_ready and the functions that say so may be called from any thread.
 */
#define CRUN_API __attribute__((visibility("default")))
#define CRUN_CHECK __attribute__((warn_unused_result))

typedef enum crun_status {
    CRUN_OK = 0,
    CRUN_BAD_ARGUMENT,    /* a mistake of the caller, nothing was done */
    CRUN_BAD_ENVIRONMENT, /* RANK and its like make no sense */
    CRUN_NO_MEMORY,
    CRUN_SYSTEM,      /* the operating system refused; the text has its words */
    CRUN_TIMEOUT,     /* the deadline passed; the text says for whom was waited */
    CRUN_PEER_LOST,   /* another rank is gone; the text says which */
    CRUN_MISMATCH,    /* ranks called different things; the text has both */
    CRUN_ABORTED,     /* crun_abort, here or in another rank */
    CRUN_UNSUPPORTED, /* not in this build, or not by this backend */
    CRUN_NOT_FOUND,   /* no such file, no checkpoint */
    CRUN_CORRUPT,     /* a file is damaged, or not what it should be */
    CRUN_NO_SPACE,    /* the disk is full; what was there before is intact */
    CRUN_STALE,       /* a newer life of the job writes these checkpoints */
    CRUN_STATUS_COUNT
} crun_status;

CRUN_API const char *crun_status_name(crun_status s); /* "timeout" */
/* About the last call of this thread that failed; "" before. */
CRUN_API const char *crun_error_text(void);
CRUN_API const char *crun_version(void);

/* -- the world ----------------------------------------------------------------------
 */

typedef struct crun_world crun_world;

typedef struct crun_options {
    /* "auto", "shm", "tcp", "shm+tcp", "nccl", "cuda-host"; NULL: $CRUN_BACKEND or auto
     */
    const char *backend;
    /* This rank's GPU: its number, or "auto" for $CRUN_DEVICE or else the local rank's.
     * NULL: the program computes on the host; "auto" above then is never nccl. */
    const char *device;
    double timeout_s;      /* of every collective; 0: $CRUN_TIMEOUT or 1800 */
    double init_timeout_s; /* for all ranks to meet; 0: 300 */
} crun_options;

/*
 * Meet the other ranks. The environment says who we are: torchrun's variables (under
 * crun and torchrun), else those of Open MPI, MPICH's hydra, PMIx or Slurm; with none
 * of them this is a world of one. options may be NULL. A process may have worlds one
 * after another or beside each other: all ranks call this as often, in the same order.
 */
CRUN_API CRUN_CHECK crun_status crun_init(crun_world **world,
                                          const crun_options *options);
/*
 * Leave. Work under way is aborted where it has not been waited for. All memory of
 * crun_alloc must have been freed. NULL is fine.
 */
CRUN_API void crun_finalize(crun_world *world);

CRUN_API int crun_rank(const crun_world *world);
CRUN_API int crun_size(const crun_world *world);
CRUN_API int crun_local_rank(const crun_world *world);
CRUN_API int crun_local_size(const crun_world *world);
CRUN_API int crun_node(const crun_world *world);
CRUN_API int crun_nodes(const crun_world *world);
CRUN_API int crun_restarts(const crun_world *world);
/* "shm", "tcp", "shm+tcp", "nccl", "cuda-host", or "self" in a world of one. */
CRUN_API const char *crun_backend(const crun_world *world);

/*
 * With nccl, work is queued on the GPU. Buffers may be its memory or the host's. Calls
 * on the GPU's memory take their place in the program's CUDA stream: they begin when
 * what the stream has is done; what is put there after crun_wait, or after a call with
 * `work` NULL, begins when they are done; and the host goes on meanwhile. Of a failure
 * the next call tells. Results in the host's memory, and barriers, are waited for by
 * the host.
 *
 * The stream is CUDA's default one until crun_set_stream, which later calls follow
 * (a cudaStream_t). CRUN_UNSUPPORTED: this backend knows no streams.
 */
CRUN_API CRUN_CHECK crun_status crun_set_stream(crun_world *world, void *stream);
/* The GPU in use, made the current one of the thread that called crun_init; or -1. */
CRUN_API int crun_device(const crun_world *world);
/*
 * 0; or CRUN_EXIT_STUCK once something of this process hangs in NCCL or the GPU and
 * could not be aborted. exit() may then wait for ever, so leave by _exit() with it.
 */
CRUN_API int crun_exit_code(void);
#define CRUN_EXIT_STUCK 76

/*
 * End all communication of this world, here at once and in the other ranks as soon as
 * they hear of it: everything under way and everything later returns CRUN_ABORTED with
 * this reason, and in shared memory says for which ranks it was waiting. From any
 * thread; the first reason wins. Not from a signal handler: that may call
 * crun_abort_signal instead.
 */
CRUN_API void crun_abort(crun_world *world, const char *reason);
CRUN_API void crun_abort_signal(crun_world *world);

/* -- memory -------------------------------------------------------------------------
 */

/*
 * Memory in which collectives need no copy: shared with the ranks of this node, aligned
 * to a page and zeroed. All ranks call it together with the same size. Any other memory
 * works too. With nccl it is memory of the GPU.
 */
CRUN_API CRUN_CHECK crun_status crun_alloc(crun_world *world, size_t bytes,
                                           void **memory);
CRUN_API void crun_free(crun_world *world, void *memory); /* NULL is fine */

/* -- collectives --------------------------------------------------------------------
 */

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
    CRUN_MEAN,
    CRUN_MIN,
    CRUN_MAX,
    CRUN_PRODUCT,
    CRUN_OP_COUNT
} crun_op;

CRUN_API size_t crun_dtype_size(crun_dtype t);
CRUN_API const char *crun_dtype_name(crun_dtype t); /* "f32" */
CRUN_API const char *crun_op_name(crun_op op);      /* "sum" */

/* f32 as bf16 or f16, to the nearest, ties to even, and back. */
CRUN_API CRUN_CHECK crun_status crun_narrow(void *to, const float *from, size_t count,
                                            crun_dtype type);
CRUN_API CRUN_CHECK crun_status crun_widen(float *to, const void *from, size_t count,
                                           crun_dtype type);

/*
 * All ranks call the same collectives in the same order. With `work` NULL the call
 * returns when the result is there; else it returns at once, the buffers belong to the
 * library until crun_wait, and `*work` must be waited for. Buffers of one call are the
 * same memory (in place) or do not overlap. Counts are elements. Sums of f16 and bf16
 * are made in f32 and rounded once. Every rank gets the same bits, on every run. (With
 * nccl NCCL adds, in the type itself and in its own order.)
 */
typedef struct crun_work crun_work;

/* Returns the collective's status and frees the work, whatever it was. */
CRUN_API CRUN_CHECK crun_status crun_wait(crun_work *work);
CRUN_API bool crun_is_done(const crun_work *work);

CRUN_API CRUN_CHECK crun_status crun_all_reduce(crun_world *world, const void *in,
                                                void *out, size_t count,
                                                crun_dtype type, crun_op op,
                                                crun_work **work);
CRUN_API CRUN_CHECK crun_status crun_broadcast(crun_world *world, void *buffer,
                                               size_t count, crun_dtype type, int root,
                                               crun_work **work);
/* in: count * size elements; out: this rank's count of the result. In place: out is
 * in + rank * count. */
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
/* Between two ranks; matched in the order of the calls between those two. */
CRUN_API CRUN_CHECK crun_status crun_send(crun_world *world, const void *buffer,
                                          size_t count, crun_dtype type, int to);
CRUN_API CRUN_CHECK crun_status crun_receive(crun_world *world, void *buffer,
                                             size_t count, crun_dtype type, int from);

/*
 * The last operations of this rank, newest last, one line each, as they are dumped
 * (to $CRUN_FLIGHT_DIR, if set) when a collective fails. Any thread. Returns what
 * snprintf would.
 */
CRUN_API size_t crun_flight_record(crun_world *world, char *text, size_t size);

/* -- data-parallel training ---------------------------------------------------------
 */

/*
 * The reducer. Parameters are registered, then it owns one flat arena for parameters
 * and one for gradients (in memory of crun_alloc); the caller computes into views of
 * them. Registered order is the order of the forward pass; buckets are filled from its
 * end.
 *
 * Where crun_alloc gives memory of a GPU, all that is said here of steps is about their
 * place in the stream of crun_set_stream; no step waits for the GPU, but
 * crun_ddp_finish for the step before the last one. So a gradient that is missing is
 * told two steps later, and find_unused names this rank's own.
 */
typedef struct crun_ddp crun_ddp;

typedef struct crun_ddp_options {
    size_t first_bucket_bytes; /* 0: 1 MiB */
    size_t bucket_bytes;       /* 0: 25 MiB */
    crun_dtype grad_type;      /* CRUN_F32, or CRUN_BF16, CRUN_F16 with f32 masters */
    bool shard;       /* ZeRO-1: each rank keeps the optimizer state of its part */
    bool share_step;  /* in shared memory: each rank steps its part for all of them, and
                       * checkpoints hold what all have together */
    bool find_unused; /* parameters without a gradient are zero, not an error */
    bool keep_half;   /* the optimizer keeps a copy of the parameters in grad_type */
} crun_ddp_options;

CRUN_API CRUN_CHECK crun_status crun_ddp_create(crun_ddp **ddp, crun_world *world,
                                                const crun_ddp_options *options);
CRUN_API void crun_ddp_destroy(crun_ddp *ddp); /* before crun_finalize; NULL is fine */

/* Returns the parameter's number, from 0, or -1; then crun_error_text says why. A
 * buffer has no gradient and is kept equal by crun_ddp_broadcast_buffers. */
CRUN_API int crun_ddp_parameter(crun_ddp *ddp, const char *name, size_t count);
CRUN_API int crun_ddp_buffer(crun_ddp *ddp, const char *name, size_t count);
/*
 * All parameters are known: lay out the arenas and compare the layout with the other
 * ranks' (CRUN_MISMATCH names the first difference).
 */
CRUN_API CRUN_CHECK crun_status crun_ddp_seal(crun_ddp *ddp);

/* Views; valid from crun_ddp_seal until destroy. f32 masters, and gradients of
 * grad_type. */
CRUN_API float *crun_ddp_value(const crun_ddp *ddp, int parameter);
CRUN_API void *crun_ddp_gradient(const crun_ddp *ddp, int parameter);
CRUN_API const uint16_t *crun_ddp_half_value(const crun_ddp *ddp, int parameter);
CRUN_API float *crun_ddp_buffer_value(const crun_ddp *ddp, int buffer);
CRUN_API size_t crun_ddp_count(const crun_ddp *ddp);  /* of all parameters' elements */
CRUN_API float *crun_ddp_values(const crun_ddp *ddp); /* the whole arena, padding 0 */

/* Rank root's parameters and buffers become everybody's. */
CRUN_API CRUN_CHECK crun_status crun_ddp_broadcast(crun_ddp *ddp, int root);
CRUN_API CRUN_CHECK crun_status crun_ddp_broadcast_buffers(crun_ddp *ddp, int root);

/*
 * One step: begin, compute gradients and say of each when it is ready (any thread, any
 * order), finish. begin with sync false accumulates: nothing is communicated, and the
 * gradients of the next backward are to be added by the caller. What is ready travels
 * while the rest is computed; in shared memory only where each rank has a second core,
 * because there it would take the core from the program. finish waits for what is under
 * way; gradients then are the mean over all ranks (sharded, or with share_step: those
 * of this rank's part, which is what its optimizer steps).
 */
CRUN_API CRUN_CHECK crun_status crun_ddp_begin(crun_ddp *ddp, bool sync);
CRUN_API CRUN_CHECK crun_status crun_ddp_ready(crun_ddp *ddp, int parameter);
CRUN_API CRUN_CHECK crun_status crun_ddp_finish(crun_ddp *ddp);
CRUN_API void crun_ddp_zero(crun_ddp *ddp); /* all gradients */

typedef struct crun_ddp_stats {
    uint64_t steps;
    /* Seconds, in all, of the steps but the last: the ranks compare them with the next
     * one's gradients. Where gradients are a GPU's, what this rank's host has seen. */
    double communication_s; /* the collectives took; where they waited least */
    double exposed_s;       /* they were waited for, by the last rank to come to it */
    double skew_s;          /* this rank has waited beyond that, for slower ranks */
    unsigned buckets;
    const char *unused; /* names of the last step's unused parameters, "" : none */
} crun_ddp_stats;
CRUN_API void crun_ddp_get_stats(crun_ddp *ddp, crun_ddp_stats *stats);

/* -- optimizers ---------------------------------------------------------------------
 */

typedef enum crun_optimizer { CRUN_SGD, CRUN_ADAM, CRUN_ADAMW } crun_optimizer;

typedef struct crun_optim_options {
    crun_optimizer kind;
    float lr;
    float momentum;          /* SGD */
    bool nesterov;           /* SGD */
    float beta1, beta2, eps; /* Adam; all 0: 0.9, 0.999, 1e-8 */
    float weight_decay;      /* added to the gradient; AdamW: decoupled */
    float clip_norm;         /* of the whole gradient; 0: none */
    bool loss_scaling;       /* dynamic, for f16 gradients */
} crun_optim_options;

/* Steps the parameters of a sealed ddp with its averaged gradients. */
typedef struct crun_optim crun_optim;

CRUN_API CRUN_CHECK crun_status crun_optim_create(crun_optim **optim, crun_ddp *ddp,
                                                  const crun_optim_options *options);
CRUN_API void crun_optim_destroy(crun_optim *optim); /* before its ddp */
CRUN_API void crun_optim_set_lr(crun_optim *optim, float lr);
/* What the loss is to be multiplied with before backward; 1 without loss scaling. */
CRUN_API float crun_optim_scale(const crun_optim *optim);
/* The same for kernels, without waiting for the GPU; NULL where there is none. */
CRUN_API const float *crun_optim_scale_on_device(const crun_optim *optim);

typedef struct crun_step_info {
    float
        grad_norm; /* over all ranks' mean gradient, before clipping; NaN: not asked */
    bool skipped;  /* with loss_scaling: a gradient was infinite or NaN, nothing was
                      changed, anywhere */
    float scale;
} crun_step_info;
/* After crun_ddp_finish. info may be NULL; asking for the norm costs one more pass, and
 * waits for a GPU. */
CRUN_API CRUN_CHECK crun_status crun_optim_step(crun_optim *optim,
                                                crun_step_info *info);

/* -- sampler ------------------------------------------------------------------------
 */

/*
 * Deals the numbers 0 to samples-1 to all ranks: each exactly once in a pass, in an
 * order that (seed, pass) fixes, without holding it in memory.
 */
typedef struct crun_sampler crun_sampler;

typedef enum crun_remainder {
    CRUN_PAD,  /* the last round repeats samples, so that all ranks get as many */
    CRUN_DROP, /* the last, incomplete round is left out */
    CRUN_EXACT /* ranks may differ by one sample */
} crun_remainder;

typedef struct crun_sampler_options {
    uint64_t samples, seed;
    int rank, size;
    bool in_order; /* no shuffling */
    crun_remainder remainder;
} crun_sampler_options;

CRUN_API CRUN_CHECK crun_status
crun_sampler_create(crun_sampler **sampler, const crun_sampler_options *options);
CRUN_API void crun_sampler_destroy(crun_sampler *sampler);
CRUN_API void crun_sampler_set_pass(crun_sampler *sampler, uint64_t pass);
/* Up to `count` numbers of this rank into index; 0 at the end of the pass. */
CRUN_API size_t crun_sampler_next(crun_sampler *sampler, uint64_t *index, size_t count);
/* What is left of the pass for this rank. */
CRUN_API uint64_t crun_sampler_left(const crun_sampler *sampler);

/*
 * Where all ranks together stand: the same on each when all have drawn as much.
 * Restored at another world size, what is left of the pass is dealt anew, exactly once.
 */
typedef struct crun_sampler_state {
    uint64_t samples, seed, pass, dealt;
} crun_sampler_state;
CRUN_API void crun_sampler_save(const crun_sampler *sampler, crun_sampler_state *state);
CRUN_API CRUN_CHECK crun_status crun_sampler_restore(crun_sampler *sampler,
                                                     const crun_sampler_state *state);

/* -- checkpoints --------------------------------------------------------------------
 */

/*
 * A directory of checkpoints that several lives of a job write, one at a time: opening
 * it for writing claims its next generation, and a writer that finds a newer one is
 * refused (CRUN_STALE). Files are safetensors; who reads them needs nothing of ours.
 */
typedef struct crun_checkpoints crun_checkpoints;

typedef struct crun_checkpoint_options {
    const char *directory; /* NULL: none, only files are loaded */
    int keep;              /* newest ones kept; 0: 3 */
    bool blocking;         /* crun_checkpoint_save returns when it is on disk */
    void (*warn)(void *arg, const char *text); /* damaged files passed over; or NULL */
    void *arg;
} crun_checkpoint_options;

/* All ranks together. */
CRUN_API CRUN_CHECK crun_status
crun_checkpoints_open(crun_checkpoints **checkpoints, crun_world *world,
                      const crun_checkpoint_options *options);
CRUN_API void crun_checkpoints_close(crun_checkpoints *checkpoints); /* waits */

/* What the program wants to find again, beside the parameters. Text in UTF-8. */
typedef struct crun_extra {
    const char *key;
    char value[256];
} crun_extra;

/*
 * Parameters, buffers, optimizer state, sampler (may be NULL) and extras, at a step.
 * All ranks together. The copy is taken before it returns, writing goes on beside the
 * training; the status is that of the last one written.
 */
CRUN_API CRUN_CHECK crun_status crun_checkpoint_save(
    crun_checkpoints *checkpoints, uint64_t step, crun_ddp *ddp, crun_optim *optim,
    const crun_sampler *sampler, const crun_extra *extra, size_t extras);
/* Until the last one is safe on disk, or has failed. */
CRUN_API CRUN_CHECK crun_status crun_checkpoint_wait(crun_checkpoints *checkpoints);
/* The newest that is whole ("" file), or the one of this path. Extras whose key is not
 * there become "". CRUN_NOT_FOUND: there is none. All ranks together get the same. */
CRUN_API CRUN_CHECK crun_status crun_checkpoint_load(crun_checkpoints *checkpoints,
                                                     const char *file, uint64_t *step,
                                                     crun_ddp *ddp, crun_optim *optim,
                                                     crun_sampler *sampler,
                                                     crun_extra *extra, size_t extras);

/* -- progress -----------------------------------------------------------------------
 */

typedef enum crun_phase {
    CRUN_PHASE_UNKNOWN,
    CRUN_PHASE_TRAINING,
    CRUN_PHASE_EVALUATING,
    CRUN_PHASE_CHECKPOINTING,
    CRUN_PHASE_COMMUNICATING,
    CRUN_PHASE_LOADING,
    CRUN_PHASE_DONE
} crun_phase;

/* Tell the launcher how far this rank is: a few stores into shared memory, and nothing
 * at all where no launcher asked for it. Any thread. */
CRUN_API void crun_progress(crun_world *world, crun_phase phase, uint64_t step,
                            uint64_t steps, uint64_t samples, double loss);
/* The launcher wants a checkpoint, and until when (ms from now, may be NULL). */
CRUN_API bool crun_checkpoint_wanted(crun_world *world, uint32_t *within_ms);
/* The checkpoint that was wanted is safe on disk. */
CRUN_API void crun_checkpoint_done(crun_world *world);

#ifdef __cplusplus
}
#endif

#endif
