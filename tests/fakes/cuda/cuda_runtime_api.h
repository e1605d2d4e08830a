/* SPDX-License-Identifier: MIT */
#include "tests/fakes/cuda/cuda_runtime.h"
