/* SPDX-License-Identifier: MIT */
#include "tests/fakes/cuda/emulator.h"

#include <string.h>

/* Whether all of it is within a piece, or in host memory. */
static bool is_whole(const void *memory, size_t bytes, bool *device)
{
    piece_ref p = find_piece(memory);

    *device = is_arena(memory);
    return !*device || (p && (size_t)(p->at + p->bytes - (char *)memory) >= bytes);
}

static bool fits_kind(enum cudaMemcpyKind kind, bool to_device, bool from_device)
{
    if (kind == cudaMemcpyDefault)
        return true;
    return to_device ==
               (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) &&
           from_device ==
               (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice);
}

static item copy_item(std::function<void()> run)
{
    item i{};

    i.kind = ITEM_RUN;
    i.run = std::move(run);
    i.peers = true;
    return i;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s)
{
    ENTER("cudaMemsetAsync", CALL_DEVICE);
    locked guard;
    stream_ref stream = find_stream(s);
    bool device;

    if (!stream)
        return end_call(cudaErrorInvalidResourceHandle);
    if (!is_whole(to, bytes, &device) || (!device && !is_pinned(to)))
        return end_call(cudaErrorInvalidValue);
    return end_call(queue_item(stream, copy_item([=] { memset(to, value, bytes); })));
}

/* To or from memory of the program that is not pinned: done when the call returns. In a
 * capture, each launch accesses it. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t s)
{
    ENTER("cudaMemcpyAsync", CALL_DEVICE);
    locked guard;
    stream_ref stream = find_stream(s);
    bool to_device, from_device;

    if (!stream)
        return end_call(cudaErrorInvalidResourceHandle);
    if (!is_whole(to, bytes, &to_device) || !is_whole(from, bytes, &from_device) ||
        !fits_kind(kind, to_device, from_device))
        return end_call(cudaErrorInvalidValue);
    if (to_device && !from_device && !is_pinned(from) && !stream->capture) {
        auto copy = std::make_shared<std::vector<char>>((const char *)from,
                                                        (const char *)from + bytes);
        return end_call(
            queue_item(stream, copy_item([=] { memcpy(to, copy->data(), bytes); })));
    }
    cudaError_t code = queue_item(stream, copy_item([=] { memcpy(to, from, bytes); }));
    if (code == cudaSuccess && !to_device && !is_pinned(to) && !stream->capture)
        code = await_moment(queue_moment(stream));
    return end_call(code);
}
