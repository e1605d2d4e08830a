/* SPDX-License-Identifier: MIT */
#include "worker-lib/compute/reduce_kernels_body.h"

const struct reduce_kernels *const reduce_plain = &kernels;
