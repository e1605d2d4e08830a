/* SPDX-License-Identifier: MIT */
/* Sums as NCCL's ring computes them. */
#include <string.h>

#include "tests/fakes/nccl/group.h"
#include "worker-lib/compute/reduce.h"

static const crun_dtype types[] = {
    [NCCL_U8] = CRUN_U8,     [NCCL_I32] = CRUN_I32, [NCCL_I64] = CRUN_I64,
    [NCCL_F16] = CRUN_F16,   [NCCL_F32] = CRUN_F32, [NCCL_F64] = CRUN_F64,
    [NCCL_BF16] = CRUN_BF16,
};

/* The elements of a mean are scaled before the addition, or divided after it. */
static const crun_op ops[] = {
    [NCCL_SUM] = CRUN_SUM, [NCCL_PRODUCT] = CRUN_PRODUCT, [NCCL_MAX] = CRUN_MAX,
    [NCCL_MIN] = CRUN_MIN, [NCCL_MEAN] = CRUN_SUM,
};

#define BATCH 256

size_t operation_item(int type)
{
    return crun_dtype_size(types[type]);
}

static void scale_halves(char *elements, size_t count, crun_dtype type, int ranks)
{
    float factor = (float)(1.0 / ranks), batch[BATCH];
    unsigned short rounded;

    reduce_narrow(&rounded, &factor, 1, type);
    reduce_widen(&factor, &rounded, 1, type);
    for (size_t at = 0; at < count; at += BATCH) {
        size_t some = count - at < BATCH ? count - at : BATCH;

        reduce_widen(batch, elements + at * 2, some, type);
        for (size_t i = 0; i < some; i++)
            batch[i] *= factor;
        reduce_narrow(elements + at * 2, batch, some, type);
    }
}

void sum_scale(void *elements, size_t count, int type, int op, int ranks)
{
    if (op != NCCL_MEAN)
        return;
    if (type == NCCL_F16 || type == NCCL_BF16)
        scale_halves(elements, count, types[type], ranks);
    for (size_t i = 0; i < count && type == NCCL_F32; i++)
        ((float *)elements)[i] *= (float)(1.0 / ranks);
    for (size_t i = 0; i < count && type == NCCL_F64; i++)
        ((double *)elements)[i] *= 1.0 / ranks;
}

/* Of elements whose sums all end with rank `owner`. */
static void sum_chunk(char *out, const void *const in[], size_t offset, int ranks,
                      size_t count, int owner, int type, int op)
{
    bool integer = type == NCCL_U8 || type == NCCL_I32 || type == NCCL_I64;
    const void *pair[2];

    memmove(out, (const char *)in[(owner + 1) % ranks] + offset,
            count * operation_item(type));
    pair[0] = out;
    for (int hop = 2; hop <= ranks; hop++) {
        pair[1] = (const char *)in[(owner + hop) % ranks] + offset;
        reduce_inputs(out, pair, 2, count, types[type], ops[op], 1);
    }
    if (op == NCCL_MEAN && integer)
        reduce_inputs(out, pair, 1, count, types[type], CRUN_MEAN, (unsigned)ranks);
}

void sum_in_ring(void *out, const void *const in[], int ranks, size_t begin,
                 size_t count, size_t whole, int owner, int type, int op)
{
    size_t chunk = (whole + (size_t)ranks - 1) / (size_t)ranks, done = 0;
    size_t item = operation_item(type);

    while (done < count) {
        size_t at = begin + done, some = chunk - at % chunk;
        int last = owner >= 0 ? owner : (int)(at / chunk);

        if (owner >= 0 || some > count - done)
            some = count - done;
        sum_chunk((char *)out + done * item, in, done * item, ranks, some, last, type,
                  op);
        done += some;
    }
}
