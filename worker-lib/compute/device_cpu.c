/* SPDX-License-Identifier: MIT */
#include "worker-lib/compute/device.h"

#include <stdlib.h>

#include "worker-lib/compute/optim_kernels.h"
#include "worker-lib/compute/reduce.h"
#include "worker-lib/core/status.h"

/* The host's memory. The GPU's kernels are tested against this file. */

#define ALIGN 64
#define BLOCK 2048 /* elements: a few arrays of them fit in a first-level cache */

static crun_status cpu_set_device(int device)
{
    return CRUN_OK;
}

static crun_status cpu_alloc(size_t bytes, void **memory)
{
    size_t whole = (bytes + ALIGN - 1) / ALIGN * ALIGN;

    *memory = whole < bytes ? NULL : aligned_alloc(ALIGN, whole ? whole : ALIGN);
    if (!*memory)
        return status_fail(CRUN_NO_MEMORY, "no memory for %zu bytes", bytes);
    memset(*memory, 0, whole);
    return CRUN_OK;
}

static crun_status cpu_zero(void *queue, void *to, size_t bytes)
{
    memset(to, 0, bytes);
    return CRUN_OK;
}

static crun_status cpu_copy(void *queue, void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return CRUN_OK;
}

static crun_status cpu_put_word(void *queue, int32_t *to, int32_t value)
{
    *to = value;
    return CRUN_OK;
}

static crun_status cpu_make_queue(void **queue)
{
    *queue = NULL;
    return CRUN_OK;
}

static void cpu_free_queue(void *queue)
{
}

static crun_status cpu_follow(void *queue, void *earlier)
{
    return CRUN_OK;
}

/* A note is its bytes. */
static struct device_note *cpu_make_note(void)
{
    return calloc(1, NOTE_BYTES);
}

static void cpu_free_note(struct device_note *n)
{
    free(n);
}

static crun_status cpu_write_note(void *queue, struct device_note *n, const void *from,
                                  size_t bytes)
{
    return bytes ? cpu_copy(queue, n, from, bytes) : CRUN_OK;
}

static const void *cpu_read_note(struct device_note *n)
{
    return n;
}

/* Gradients as f32: f32 is used in place, other types are converted a block at a
 * time. */
static void each_block(const void *from, crun_dtype type, size_t count,
                       void (*each)(void *arg, size_t at, const float *g, size_t count),
                       void *arg)
{
    _Alignas(64) float block[BLOCK];

    if (type == CRUN_F32) {
        each(arg, 0, from, count);
        return;
    }
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        const uint16_t *half = (const uint16_t *)from + at;

        if (type == CRUN_F16)
            kernel_from_f16(block, half, n);
        else
            kernel_from_bf16(block, half, n);
        each(arg, at, block, n);
    }
}

static void add_squares(void *arg, size_t at, const float *g, size_t count)
{
    *(double *)arg += kernel_squares(g, count);
}

static crun_status cpu_squares(void *queue, struct squares_work *work, double *sum,
                               const void *g, size_t count, crun_dtype type)
{
    each_block(g, type, count, add_squares, sum);
    return CRUN_OK;
}

static crun_status cpu_prepare(void *queue, struct optim_control *c,
                               const struct optim_request *r, const double *sums)
{
    optim_prepare(c, r, sums);
    return CRUN_OK;
}

static crun_status cpu_narrow(void *queue, uint16_t *to, const float *from,
                              size_t count, crun_dtype type)
{
    reduce_narrow(to, from, count, type);
    return CRUN_OK;
}

/* The state of a pass over a range. */
struct cpu_pass {
    const struct optim_control *control;
    enum optim_rule rule;
    const struct step_arrays *a;
};

static void step_block(void *arg, size_t at, const float *g, size_t count)
{
    const struct cpu_pass *pass = arg;
    const struct step_arrays *a = pass->a;

    if (pass->rule == RULE_ADAM)
        kernel_adam(&pass->control->use.adam, a->p + at, a->m + at, a->v + at, g,
                    count);
    else if (pass->rule == RULE_MOMENTUM)
        kernel_momentum(&pass->control->use.sgd, a->p + at, a->m + at, g, count);
    else
        kernel_sgd(&pass->control->use.sgd, a->p + at, g, count);
    if (a->half)
        reduce_narrow(a->half + at, a->p + at, count, a->type);
}

static crun_status cpu_step(void *queue, const struct optim_control *c,
                            enum optim_rule rule, const struct step_arrays *a,
                            size_t count)
{
    struct cpu_pass pass = { c, rule, a };

    if (!c->skip)
        each_block(a->g, a->type, count, step_block, &pass);
    return CRUN_OK;
}

const struct device_ops device_cpu = {
    .name = "cpu",
    .set_device = cpu_set_device,
    .alloc = cpu_alloc,
    .free = free,
    .zero = cpu_zero,
    .copy = cpu_copy,
    .put = cpu_copy,
    .fetch = cpu_copy,
    .put_word = cpu_put_word,
    .host_alloc = cpu_alloc,
    .host_free = free,
    .make_queue = cpu_make_queue,
    .free_queue = cpu_free_queue,
    .follow = cpu_follow,
    .make_note = cpu_make_note,
    .free_note = cpu_free_note,
    .write_note = cpu_write_note,
    .read_note = cpu_read_note,
    .squares = cpu_squares,
    .prepare = cpu_prepare,
    .step = cpu_step,
    .narrow = cpu_narrow,
};
