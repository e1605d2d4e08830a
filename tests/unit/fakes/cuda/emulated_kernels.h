/* SPDX-License-Identifier: MIT */
#pragma once

#include <cuda_runtime.h>

/* Kernels for the emulated GPU's test. */
#ifdef __cplusplus
extern "C" {
#endif

void launch_add(int *to, int more, cudaStream_t s);
/* 16 bytes at once. */
void launch_store_wide(void *to, cudaStream_t s);
/* The numbers of the blocks, or of the threads of one block, in the order in which they
 * run. */
void launch_note_blocks(int *order, unsigned *ticket, unsigned blocks, cudaStream_t s);
void launch_note_threads(int *order, unsigned *ticket, unsigned threads,
                         cudaStream_t s);
/* With barriers: the sum of 0 to threads - 1. */
void launch_sum(int *sum, unsigned threads, cudaStream_t s);
void launch_too_wide(int *to, cudaStream_t s);

#ifdef __cplusplus
}
#endif
