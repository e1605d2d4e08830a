/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * Ranges of time for profilers that know NVTX, as Nsight Systems does: steps, buckets
 * and operations. Only with CRUN_NVTX=1, and if this build has found NVTX's header,
 * which loads what the profiler has put into the environment. Any thread.
 */
bool ranges_are_on(void);
/* Another thread may end it. Returns its number; 0: there is none. */
__attribute__((format(printf, 1, 2))) uint64_t range_begin(const char *format, ...);
void range_end(uint64_t range); /* 0 is fine */
