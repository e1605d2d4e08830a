#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# takes: 3 s
# sanitizers: no, the compiler of GPU code has none
#
# What nvcc makes of the kernels. Many GPUs have one unit for f64 beside 64 for f32: the
# kernel that adds squares converts to f64 only the sum of many of them.
cd "$(dirname "$0")/../../.." || exit 1
nvcc=$(command -v nvcc || ls /usr/local/cuda*/bin/nvcc 2>/dev/null) || {
    echo "skipped: there is no nvcc" && exit 77
}
"${nvcc%%$'\n'*}" -std=c++17 -O3 -I. -Iworker-lib -DCRUN_CUDA -fmad=false -arch=sm_80 -ptx \
    -o /dev/stdout worker-lib/compute/device_kernels.cu |
    awk '/\.entry/ { squares = /squares_kernel/; kernels += squares }
        squares && /cvt\.f64\.f32/ { count++ }
        END {
            printf "%d conversions to f64 in %d kernels that add squares\n", count, kernels
            exit !(kernels == 3 && count <= 3 * kernels)
        }'
