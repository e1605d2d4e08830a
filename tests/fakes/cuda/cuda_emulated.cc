/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/fakes/cuda/cuda_runtime.h"

/* See cuda_runtime.h beside this file. */

thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace
{

#define ARENA_BYTES ((size_t)16 << 30)
#define PAGE 4096

struct recorded { /* one call of cudaEventRecord */
    bool reached;
    cudaStream_t in;
};
using moment = std::shared_ptr<recorded>;

struct item {
    std::function<void()> run; /* empty: wait for, or reach, `when` */
    moment when;
    bool waits;
};

std::recursive_mutex lock;
char *arena, *top;
std::map<char *, size_t> used, unused; /* pieces of the arena */
std::map<char *, size_t> pinned;
int opened; /* so many accesses to the arena are under way */

} // namespace

struct CUstream_st {
    std::deque<item> items;
};

struct CUevent_st {
    moment last;
};

namespace
{

CUstream_st default_stream;

CUstream_st *of(cudaStream_t s)
{
    return s ? s : &default_stream;
}

/* While one of these exists, what the device would touch can be touched. */
struct device_access {
    device_access()
    {
        if (opened++ == 0 && arena)
            mprotect(arena, ARENA_BYTES, PROT_READ | PROT_WRITE);
    }
    ~device_access()
    {
        if (--opened == 0 && arena)
            mprotect(arena, ARENA_BYTES, PROT_NONE);
    }
};

void run_until(CUstream_st *s, const moment &when);

void run_first(CUstream_st *s)
{
    item i = std::move(s->items.front());

    s->items.pop_front();
    if (i.run)
        i.run();
    else if (i.waits)
        run_until(of(i.when->in), i.when);
    else
        i.when->reached = true;
}

void run_until(CUstream_st *s, const moment &when)
{
    while (!when->reached && !s->items.empty())
        run_first(s);
}

void run_all(CUstream_st *s)
{
    device_access access;

    while (!s->items.empty())
        run_first(s);
}

void queue(cudaStream_t s, std::function<void()> run)
{
    std::lock_guard<std::recursive_mutex> guard(lock);

    of(s)->items.push_back({ std::move(run), nullptr, false });
}

bool is_within(const std::map<char *, size_t> &pieces, const void *memory)
{
    auto after = pieces.upper_bound((char *)memory);

    if (after == pieces.begin())
        return false;
    --after;
    return (char *)memory < after->first + after->second;
}

/* -- the threads of a block ------------------------------------------------- */

#define STACK_BYTES 65536

struct turn {
    ucontext_t context;
    dim3 index;
    bool done;
};

thread_local std::vector<turn> turns;
thread_local std::vector<char> stacks;
thread_local ucontext_t scheduler;
thread_local size_t current;
thread_local const std::function<void()> *body;

void run_turn(void)
{
    (*body)();
    turns[current].done = true;
    swapcontext(&turns[current].context, &scheduler);
}

/* Each runs up to the next barrier, in turns, until all are done. */
void run_together(size_t threads)
{
    bool left = true;

    if (stacks.size() < threads * STACK_BYTES)
        stacks.resize(threads * STACK_BYTES);
    turns.assign(threads, turn());
    for (size_t i = 0; i < threads; i++) {
        turn &t = turns[i];

        t.index = dim3(i % blockDim.x, i / blockDim.x % blockDim.y,
                       i / blockDim.x / blockDim.y);
        getcontext(&t.context);
        t.context.uc_stack.ss_sp = stacks.data() + i * STACK_BYTES;
        t.context.uc_stack.ss_size = STACK_BYTES;
        t.context.uc_link = NULL;
        makecontext(&t.context, run_turn, 0);
    }
    while (left) {
        left = false;
        for (size_t i = 0; i < threads; i++) {
            if (turns[i].done)
                continue;
            current = i;
            threadIdx = turns[i].index;
            swapcontext(&scheduler, &turns[i].context);
            left |= !turns[i].done;
        }
    }
}

void run_block(const std::function<void()> &thread, bool together)
{
    body = &thread;
    if (together) {
        run_together((size_t)blockDim.x * blockDim.y * blockDim.z);
        return;
    }
    for (threadIdx.z = 0; threadIdx.z < blockDim.z; threadIdx.z++)
        for (threadIdx.y = 0; threadIdx.y < blockDim.y; threadIdx.y++)
            for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)
                thread();
}

} // namespace

void cuda_emulated_barrier(void)
{
    swapcontext(&turns[current].context, &scheduler);
}

void cuda_emulated_launch(cudaStream_t s, dim3 grid, dim3 block, bool together,
                          std::function<void()> thread)
{
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x * block.y * block.z > 1024)
        abort(); /* an invalid configuration */
    queue(s, [=] {
        blockDim = block;
        gridDim = grid;
        for (unsigned z = 0; z < grid.z; z++)
            for (unsigned y = 0; y < grid.y; y++)
                for (unsigned x = 0; x < grid.x; x++) {
                    blockIdx = dim3(x, y, z);
                    run_block(thread, together);
                }
    });
}

void cuda_emulated_queue(cudaStream_t s, void (*run)(void *arg), void *arg)
{
    queue(s, [=] {
        run(arg);
        free(arg);
    });
}

/* -- devices ---------------------------------------------------------------- */

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    return cudaDriverGetVersion(version);
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr, int)
{
    *value = 4;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int)
{
    strncpy(text, "0000:00:00.0", (size_t)size);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaErrorNotSupported; /* nothing here should need it */
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "emulated error";
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaSuccess ? "cudaSuccess" : "cudaErrorEmulated";
}

/* -- memory ----------------------------------------------------------------- */

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    *available = *total = (size_t)1 << 30;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    size_t whole = (bytes + PAGE) / PAGE * PAGE;

    if (!arena) {
        arena = (char *)mmap(NULL, ARENA_BYTES, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arena == MAP_FAILED)
            abort();
        top = arena;
    }
    char *at = NULL;
    for (auto &piece : unused)
        if (piece.second == whole)
            at = piece.first;
    if (at) {
        unused.erase(at);
    } else {
        at = top;
        if (top + whole > arena + ARENA_BYTES)
            return cudaErrorMemoryAllocation;
        top += whole;
    }
    used[at] = whole;
    device_access access;
    memset(at, 0xdb, whole); /* not cleared */
    *memory = at;
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    auto piece = used.find((char *)memory);

    if (!memory)
        return cudaSuccess;
    if (piece == used.end())
        return cudaErrorInvalidValue;
    unused[piece->first] = piece->second;
    used.erase(piece);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a,
                                     const void *memory)
{
    std::lock_guard<std::recursive_mutex> guard(lock);

    a->type = is_within(used, memory)     ? cudaMemoryTypeDevice
              : is_within(pinned, memory) ? cudaMemoryTypeHost
                                          : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
    std::lock_guard<std::recursive_mutex> guard(lock);

    *memory = aligned_alloc(PAGE, (bytes + PAGE) / PAGE * PAGE);
    if (!*memory)
        return cudaErrorMemoryAllocation;
    pinned[(char *)*memory] = bytes;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    std::lock_guard<std::recursive_mutex> guard(lock);

    if (memory && !pinned.erase((char *)memory))
        return cudaErrorInvalidValue;
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned)
{
    std::lock_guard<std::recursive_mutex> guard(lock);

    if (is_within(pinned, memory))
        return cudaErrorHostMemoryAlreadyRegistered;
    pinned[(char *)memory] = bytes;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
    std::lock_guard<std::recursive_mutex> guard(lock);

    return pinned.erase((char *)memory) ? cudaSuccess
                                        : cudaErrorHostMemoryNotRegistered;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s)
{
    queue(s, [=] { memset(to, value, bytes); });
    return cudaSuccess;
}

/* To or from memory of the program that is not pinned: done when the call returns. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            enum cudaMemcpyKind, cudaStream_t s)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    bool from_device = is_within(used, from), to_device = is_within(used, to);

    if (to_device && !from_device && !is_within(pinned, from)) {
        auto copy = std::make_shared<std::vector<char>>((const char *)from,
                                                        (const char *)from + bytes);
        queue(s, [=] { memcpy(to, copy->data(), bytes); });
        return cudaSuccess;
    }
    queue(s, [=] { memcpy(to, from, bytes); });
    if (!to_device && !is_within(pinned, to))
        run_all(of(s));
    return cudaSuccess;
}

/* -- streams and events ----------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    *s = new CUstream_st();
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(s, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    std::lock_guard<std::recursive_mutex> guard(lock);

    run_all(of(s)); /* so does the real one, later */
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    std::lock_guard<std::recursive_mutex> guard(lock);

    run_all(of(s));
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned)
{
    std::lock_guard<std::recursive_mutex> guard(lock);

    if (event->last && !event->last->reached)
        of(s)->items.push_back({ nullptr, event->last, true });
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = new CUevent_st();
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s)
{
    std::lock_guard<std::recursive_mutex> guard(lock);

    event->last = std::make_shared<recorded>(recorded{ false, s });
    of(s)->items.push_back({ nullptr, event->last, false });
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    device_access access;

    if (event->last && !event->last->reached)
        run_until(of(event->last->in), event->last);
    return cudaSuccess;
}

/* Each query does one step of the stream, so that polling comes to an end. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    device_access access;

    if (!event->last || event->last->reached)
        return cudaSuccess;
    if (!of(event->last->in)->items.empty())
        run_first(of(event->last->in));
    return event->last->reached ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    std::lock_guard<std::recursive_mutex> guard(lock);

    if (!from->last || !to->last)
        return cudaErrorInvalidResourceHandle;
    if (!from->last->reached || !to->last->reached)
        return cudaErrorNotReady;
    *ms = 0;
    return cudaSuccess;
}

/* -- graphs ----------------------------------------------------------------- */

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *)
{
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, enum cudaStreamCaptureStatus *status)
{
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t, enum cudaStreamCaptureMode)
{
    return cudaErrorNotSupported;
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *)
{
    return cudaErrorNotSupported;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *, cudaGraph_t, unsigned long long)
{
    return cudaErrorNotSupported;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t)
{
    return cudaErrorNotSupported;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t)
{
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t)
{
    return cudaSuccess;
}
