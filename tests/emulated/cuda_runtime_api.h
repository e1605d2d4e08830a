/* SPDX-License-Identifier: MIT */
#include "tests/emulated/cuda_runtime.h"
