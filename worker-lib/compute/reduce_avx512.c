/* SPDX-License-Identifier: MIT */
#include "worker-lib/compute/reduce_kernels.h"

#if defined(__AVX512BW__)
#include "worker-lib/compute/reduce_kernels_body.h"

const struct reduce_kernels *const reduce_avx512 = &kernels;
#else
const struct reduce_kernels *const reduce_avx512 = NULL;
#endif
