/* SPDX-License-Identifier: MIT */
/* crun_narrow and crun_widen: for programs that compute in f32 and exchange f16 or
 * bf16. */
#include "worker-lib/compute/reduce.h"
#include "worker-lib/core/status.h"

static bool is_half_type(crun_dtype type)
{
    return type == CRUN_BF16 || type == CRUN_F16;
}

static crun_status fail_not_half(crun_dtype type)
{
    return status_fail(CRUN_BAD_ARGUMENT, "%s is not bf16 or f16",
                       crun_dtype_name(type));
}

crun_status crun_narrow(void *to, const float *from, size_t count, crun_dtype type)
{
    if (!is_half_type(type))
        return fail_not_half(type);
    reduce_narrow(to, from, count, type);
    return CRUN_OK;
}

crun_status crun_widen(float *to, const void *from, size_t count, crun_dtype type)
{
    if (!is_half_type(type))
        return fail_not_half(type);
    reduce_widen(to, from, count, type);
    return CRUN_OK;
}
