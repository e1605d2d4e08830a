/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/compute/optim_step.h"
#include "worker-lib/crun/worker.h"

/*
 * The arrays of a training, and the operations on them: in the memory of the host, or
 * of a GPU. Work for a GPU is queued in a stream, in the order of the calls, and the
 * host continues; only put, fetch, read_note and free_queue wait. On the host there is
 * no queue, and everything is done when the call returns.
 *
 * Arrays of elements are aligned to 16 bytes, and counts of step, squares and narrow
 * are multiples of DEVICE_ELEMENTS, as the reducer's positions are.
 */
#define DEVICE_ELEMENTS 8

/* The arguments of one step for a range of its arrays. */
struct step_arrays {
    float *p, *m, *v; /* m and v: NULL if the optimizer has none */
    const void *g;
    crun_dtype type; /* of g, and of half */
    uint16_t *half;  /* a copy of p in g's type; or NULL */
};

#define SQUARES_BLOCKS 512

/* The working memory of squares; zero before the first call. */
struct squares_work {
    uint32_t ticket, pad[3];
    double part[SQUARES_BLOCKS];
};

/* A few bytes on their way to the host. */
struct device_note;
#define NOTE_BYTES 64

struct device_ops {
    const char *name;
    bool queued;
    /* This thread uses this device; without it CUDA may open the first one. */
    crun_status (*set_device)(int device);
    crun_status (*alloc)(size_t bytes, void **memory); /* zeroed */
    void (*free)(void *memory);                        /* NULL is fine */
    crun_status (*zero)(void *queue, void *to, size_t bytes);
    crun_status (*copy)(void *queue, void *to, const void *from, size_t bytes);
    /* From, and to, the program's memory, which may be reused when the call returns. */
    crun_status (*put)(void *queue, void *to, const void *from, size_t bytes);
    crun_status (*fetch)(void *queue, void *to, const void *from, size_t bytes);
    crun_status (*put_word)(void *queue, int32_t *to, int32_t value);

    /* Memory of the host that is pinned: copy uses it without the host's help. */
    crun_status (*host_alloc)(size_t bytes, void **memory);
    void (*host_free)(void *memory); /* NULL is fine */
    /* Another queue, whose work overlaps with that of the program's; NULL on the
     * host. */
    crun_status (*make_queue)(void **queue);
    void (*free_queue)(void *queue); /* waits for its work; NULL is fine */
    /* Later work of `queue` begins after the work that is in `earlier` now. */
    crun_status (*follow)(void *queue, void *earlier);

    /* Takes a copy of the bytes at this place of the queue, to be read later. */
    struct device_note *(*make_note)(void);
    void (*free_note)(struct device_note *n);
    crun_status (*write_note)(void *queue, struct device_note *n, const void *from,
                              size_t bytes); /* 0: only a place to wait for */
    /* Waits; valid until the next write. NULL: an error. */
    const void *(*read_note)(struct device_note *n);

    /* Adds the squares of g to *sum, always in the same order. */
    crun_status (*squares)(void *queue, struct squares_work *work, double *sum,
                           const void *g, size_t count, crun_dtype type);
    crun_status (*prepare)(void *queue, struct optim_control *c,
                           const struct optim_request *r, const double *sums);
    crun_status (*step)(void *queue, const struct optim_control *c,
                        enum optim_rule rule, const struct step_arrays *a,
                        size_t count);
    /* f32 to f16 or bf16, rounded to the nearest. */
    crun_status (*narrow)(void *queue, uint16_t *to, const float *from, size_t count,
                          crun_dtype type);
};

/* How long fetch, put and read_note may wait for a GPU, in this process. */
void device_limit_waits(uint64_t ms);

extern const struct device_ops device_cpu;
/* That of a GPU; NULL: this machine, or this build, has none. */
const struct device_ops *device_gpu(void);
