/* SPDX-License-Identifier: MIT */
#include "worker-lib/compute/reduce_kernels.h"

#if defined(__AVX2__)
#include "worker-lib/compute/reduce_kernels_body.h"

const struct reduce_kernels *const reduce_avx2 = &kernels;
#else
const struct reduce_kernels *const reduce_avx2 = NULL;
#endif
