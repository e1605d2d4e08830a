/* SPDX-License-Identifier: MIT */
#include "worker-lib/core/profiler_ranges.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#define HAS_NVTX
#include <nvtx3/nvToolsExt.h>
#endif
#endif

#ifdef HAS_NVTX
bool ranges_are_on(void)
{
    static _Atomic int wanted = -1;

    if (atomic_load(&wanted) < 0) {
        const char *variable = getenv("CRUN_NVTX");

        atomic_store(&wanted, variable && atoi(variable) != 0);
    }
    return atomic_load(&wanted) > 0;
}

uint64_t range_begin(const char *format, ...)
{
    char name[160];
    va_list args;

    if (!ranges_are_on())
        return 0;
    va_start(args, format);
    vsnprintf(name, sizeof(name), format, args);
    va_end(args);
    return nvtxRangeStartA(name);
}

void range_end(uint64_t range)
{
    if (range)
        nvtxRangeEnd(range);
}
#else
bool ranges_are_on(void)
{
    return false;
}

uint64_t range_begin(const char *format, ...)
{
    return 0;
}

void range_end(uint64_t range)
{
}
#endif
