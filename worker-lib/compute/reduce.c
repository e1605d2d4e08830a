/* SPDX-License-Identifier: MIT */
/*
 * The inputs are combined block by block, so that a block stays in the L1 cache. Until
 * the last input it is in a buffer, since the output may be one of the inputs.
 */
#include "worker-lib/compute/reduce.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "worker-lib/compute/reduce_kernels.h"

#define BLOCK_BYTES 8192
#define HALF_BLOCK (BLOCK_BYTES / sizeof(float)) /* elements of 16 bits */

static const struct {
    enum reduce_number number; /* the type of the arithmetic */
    int half;                  /* enum reduce_half of the type in memory; or -1 */
} types[CRUN_DTYPE_COUNT] = {
    [CRUN_F32] = { NUMBER_F32, -1 },       [CRUN_F64] = { NUMBER_F64, -1 },
    [CRUN_F16] = { NUMBER_F32, HALF_F16 }, [CRUN_BF16] = { NUMBER_F32, HALF_BF16 },
    [CRUN_I32] = { NUMBER_I32, -1 },       [CRUN_I64] = { NUMBER_I64, -1 },
    [CRUN_U8] = { NUMBER_U8, -1 },
};

static const enum reduce_step steps[CRUN_OP_COUNT] = {
    [CRUN_SUM] = STEP_SUM, [CRUN_MEAN] = STEP_SUM,        [CRUN_MIN] = STEP_MIN,
    [CRUN_MAX] = STEP_MAX, [CRUN_PRODUCT] = STEP_PRODUCT,
};

static const struct reduce_kernels *choose_kernels(void)
{
#if defined(__x86_64__)
    if (reduce_avx512 && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return reduce_avx512;
    if (reduce_avx2 &&
        __builtin_cpu_supports("avx2")) /* these processors have F16C, too */
        return reduce_avx2;
#endif
    return reduce_plain;
}

struct reduction {
    const struct reduce_kernels *kernels;
    void *const *out;
    unsigned outputs;
    const void *const *in;
    unsigned inputs;
    crun_dtype type;
    crun_op op;
    unsigned divisor;
};

static char *reduction_out(const struct reduction *j, unsigned which, size_t offset)
{
    return (char *)j->out[which] + offset;
}

static void copy_to_outputs(const struct reduction *j, unsigned first, size_t offset,
                            size_t count)
{
    for (unsigned i = first; i < j->outputs; i++)
        if (j->out[i] != j->out[0])
            memcpy(reduction_out(j, i, offset), reduction_out(j, 0, offset),
                   count * crun_dtype_size(j->type));
}

/* The last input and the division in one pass, if there is a kernel for it. */
static bool reduction_finish_mean(const struct reduction *j, const void *so_far,
                                  size_t offset, size_t count)
{
    enum reduce_number number = types[j->type].number;
    bool mean = j->op == CRUN_MEAN, both = j->outputs > 1;

    if (j->inputs < 2 || !j->kernels->mean[number] ||
        !(mean || (both && j->op == CRUN_SUM)))
        return false;
    j->kernels->mean[number](
        reduction_out(j, 0, offset), reduction_out(j, both, offset), so_far,
        (const char *)j->in[j->inputs - 1] + offset, count, mean ? j->divisor : 1);
    copy_to_outputs(j, 2, offset, count);
    return true;
}

static void reduction_block(const struct reduction *j, size_t offset, size_t count)
{
    _Alignas(64) char sum[BLOCK_BYTES];
    enum reduce_number number = types[j->type].number;
    void (*combine)(void *, const void *, const void *,
                    size_t) = j->kernels->combine[number][steps[j->op]];
    const void *so_far = (const char *)j->in[0] + offset;
    char *out = reduction_out(j, 0, offset);

    for (unsigned p = 1; p + 1 < j->inputs; p++, so_far = sum)
        combine(sum, so_far, (const char *)j->in[p] + offset, count);
    if (reduction_finish_mean(j, so_far, offset, count))
        return;
    if (j->inputs > 1) {
        combine(out, so_far, (const char *)j->in[j->inputs - 1] + offset, count);
        so_far = out;
    }
    if (j->op == CRUN_MEAN)
        j->kernels->divide[number](out, so_far, count, j->divisor);
    else if (so_far != out)
        memcpy(out, so_far, count * crun_dtype_size(j->type));
    copy_to_outputs(j, 1, offset, count);
}

static void reduction_block_half(const struct reduction *j, size_t offset, size_t count)
{
    float sum[HALF_BLOCK], next[HALF_BLOCK];
    int half = types[j->type].half;

    j->kernels->widen[half](
        sum, (const uint16_t *)(const void *)((const char *)j->in[0] + offset), count);
    for (unsigned p = 1; p < j->inputs; p++) {
        j->kernels->widen[half](
            next, (const uint16_t *)(const void *)((const char *)j->in[p] + offset),
            count);
        j->kernels->combine[NUMBER_F32][steps[j->op]](sum, sum, next, count);
    }
    if (j->op == CRUN_MEAN)
        j->kernels->divide[NUMBER_F32](sum, sum, count, j->divisor);
    j->kernels->narrow[half]((uint16_t *)(void *)reduction_out(j, 0, offset), sum,
                             count);
    copy_to_outputs(j, 1, offset, count);
}

void reduce_with(const struct reduce_kernels *kernels, void *const out[],
                 unsigned outputs, const void *const in[], unsigned inputs,
                 size_t count, crun_dtype type, crun_op op, unsigned divisor)
{
    const struct reduction j = { kernels, out, outputs, in, inputs, type, op, divisor };
    size_t size = crun_dtype_size(type);
    bool half = types[type].half >= 0;
    size_t block = half ? HALF_BLOCK : BLOCK_BYTES / size;

    for (size_t done = 0; done < count; done += block) {
        size_t n = count - done < block ? count - done : block;

        if (half)
            reduction_block_half(&j, done * size, n);
        else
            reduction_block(&j, done * size, n);
    }
}

static const struct reduce_kernels *reduce_kernels_chosen(void)
{
    static const struct reduce_kernels *_Atomic kernels;
    const struct reduce_kernels *k = atomic_load_explicit(&kernels,
                                                          memory_order_relaxed);

    if (!k) {
        k = choose_kernels();
        atomic_store_explicit(&kernels, k, memory_order_relaxed);
    }
    return k;
}

void reduce_inputs(void *out, const void *const in[], unsigned inputs, size_t count,
                   crun_dtype type, crun_op op, unsigned divisor)
{
    reduce_with(reduce_kernels_chosen(), &out, 1, in, inputs, count, type, op, divisor);
}

void reduce_to_all(void *const out[], unsigned outputs, const void *const in[],
                   unsigned inputs, size_t count, crun_dtype type, crun_op op,
                   unsigned divisor)
{
    reduce_with(reduce_kernels_chosen(), out, outputs, in, inputs, count, type, op,
                divisor);
}

void reduce_widen(float *to, const void *from, size_t count, crun_dtype type)
{
    reduce_kernels_chosen()->widen[types[type].half](to, from, count);
}

void reduce_narrow(void *to, const float *from, size_t count, crun_dtype type)
{
    reduce_kernels_chosen()->narrow[types[type].half](to, from, count);
}
