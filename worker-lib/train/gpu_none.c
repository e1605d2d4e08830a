/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/compute.h"

#ifndef CRUN_CUDA
const struct compute *compute_on_gpu(size_t capacity, crun_dtype precision,
                                     struct err *e)
{
    err_set(e, "this build of train is without CUDA");
    return NULL;
}
#endif
