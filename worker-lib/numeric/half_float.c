/* SPDX-License-Identifier: MIT */
/* Arrays of f32 and of 16-bit numbers, for programs that compute in the one and
 * exchange the other. */
#include "worker-lib/numeric/reduce.h"
#include "worker-lib/core/status.h"

static bool is_half(crun_dtype type)
{
    return type == CRUN_BF16 || type == CRUN_F16;
}

static crun_status refuse(crun_dtype type)
{
    return fail(CRUN_BAD_ARGUMENT, "%s is not a type of 16 bits: bf16 or f16",
                crun_dtype_name(type));
}

crun_status crun_narrow(void *to, const float *from, size_t count, crun_dtype type)
{
    if (!is_half(type))
        return refuse(type);
    reduce_narrow(to, from, count, type);
    return CRUN_OK;
}

crun_status crun_widen(float *to, const void *from, size_t count, crun_dtype type)
{
    if (!is_half(type))
        return refuse(type);
    reduce_widen(to, from, count, type);
    return CRUN_OK;
}
