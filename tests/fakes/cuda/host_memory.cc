/* SPDX-License-Identifier: MIT */
/* Memory of the host that devices can read and write. */
#include "tests/fakes/cuda/emulator.h"

#include <stdlib.h>

#define PAGE ((size_t)4096)

using pieces = std::map<char *, size_t>;

static bool is_within(const pieces &all, const void *memory)
{
    auto after = all.upper_bound((char *)memory);

    if (after == all.begin())
        return false;
    --after;
    return (char *)memory < after->first + after->second;
}

bool is_pinned(const void *memory)
{
    return is_within(state().pinned, memory) || is_within(state().registered, memory);
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
    ENTER("cudaHostAlloc", CALL_DEVICE | CALL_UNSAFE);
    locked guard;

    *memory = aligned_alloc(PAGE, (bytes + PAGE) / PAGE * PAGE);
    if (!*memory)
        return end_call(cudaErrorMemoryAllocation);
    state().pinned[(char *)*memory] = bytes;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    ENTER("cudaFreeHost", CALL_DEVICE | CALL_UNSAFE);
    locked guard;
    cudaError_t code = cudaSuccess;

    if (!memory)
        return cudaSuccess;
    if (!state().pinned.count((char *)memory))
        return end_call(cudaErrorInvalidValue);
    for (device &d : state().devices)
        if (d.made && code == cudaSuccess)
            code = await_device(&d);
    if (code != cudaSuccess)
        return end_call(code);
    state().pinned.erase((char *)memory);
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned)
{
    ENTER("cudaHostRegister", CALL_DEVICE | CALL_UNSAFE);
    locked guard;

    if (!memory || bytes == 0)
        return end_call(cudaErrorInvalidValue);
    if (is_pinned(memory) || is_pinned((char *)memory + bytes - 1))
        return end_call(cudaErrorHostMemoryAlreadyRegistered);
    state().registered[(char *)memory] = bytes;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
    ENTER("cudaHostUnregister", CALL_DEVICE | CALL_UNSAFE);
    locked guard;

    return end_call(state().registered.erase((char *)memory)
                        ? cudaSuccess
                        : cudaErrorHostMemoryNotRegistered);
}
