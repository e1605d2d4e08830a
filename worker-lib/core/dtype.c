/* SPDX-License-Identifier: MIT */
#include "worker-lib/crun/worker.h"

static const struct {
    const char *name;
    size_t size;
} types[CRUN_DTYPE_COUNT] = {
    [CRUN_F32] = { "f32", 4 },   [CRUN_F64] = { "f64", 8 }, [CRUN_F16] = { "f16", 2 },
    [CRUN_BF16] = { "bf16", 2 }, [CRUN_I32] = { "i32", 4 }, [CRUN_I64] = { "i64", 8 },
    [CRUN_U8] = { "u8", 1 },
};

static const char *const ops[CRUN_OP_COUNT] = {
    [CRUN_SUM] = "sum", [CRUN_MEAN] = "mean",       [CRUN_MIN] = "min",
    [CRUN_MAX] = "max", [CRUN_PRODUCT] = "product",
};

size_t crun_dtype_size(crun_dtype t)
{
    return (unsigned)t < CRUN_DTYPE_COUNT ? types[t].size : 0;
}

const char *crun_dtype_name(crun_dtype t)
{
    return (unsigned)t < CRUN_DTYPE_COUNT ? types[t].name : "unknown";
}

const char *crun_op_name(crun_op op)
{
    return (unsigned)op < CRUN_OP_COUNT ? ops[op] : "unknown";
}
