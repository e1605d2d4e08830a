/* SPDX-License-Identifier: MIT */
/*
 * Memory of devices. A device's is a file in memory that is mapped twice: the
 * program's addresses cannot be touched, and waiting kernels use the other ones. A
 * piece that work of the device touches is opened by the fault, until no work runs.
 */
#include "tests/fakes/cuda/emulator.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fakes/cuda/fault.h"

#define ARENA_BYTES ((size_t)64 << 30)
#define DEFAULT_BYTES ((size_t)16 << 30)
#define PAGE ((size_t)4096)
#define ALIGNMENT ((size_t)256)
#define FILL 0xdb
#define FILL_MAX ((size_t)16 << 20) /* not the workspace of cuBLASLt, for time */

static thread_local running_kernel *running;

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* -- touching ---------------------------------------------------------------------- */

static void protect_piece(piece *p, bool open)
{
    if (p->opened == open)
        return;
    p->opened = open;
    if (mprotect(p->base, p->pages, open ? PROT_READ | PROT_WRITE : PROT_NONE) < 0)
        abort();
}

/* Only its page counts, as on a GPU. */
static piece_ref find_page(void *memory)
{
    char *page = (char *)memory - (uintptr_t)memory % PAGE;
    auto after = state().pieces.upper_bound(page + PAGE - 1);

    if (after == state().pieces.begin())
        return nullptr;
    --after;
    const piece_ref &p = after->second;
    return page < p->base + p->pages ? p : nullptr;
}

bool open_piece(const device_access &a, void *memory)
{
    locked_briefly guard;
    piece_ref p = find_page(memory);

    for (device *d : a.open)
        if (p && d == p->device) {
            if (!p->opened)
                d->opened.push_back(p);
            protect_piece(p.get(), true);
            return true;
        }
    return false;
}

void device_access::add(device *d)
{
    for (device *had : open)
        if (had == d)
            return;
    open.push_back(d);
    d->working++;
}

static void close_pieces(device *d)
{
    for (const piece_ref &p : d->opened)
        protect_piece(p.get(), false);
    d->opened.clear();
}

void device_access::close(void)
{
    for (device *d : open)
        if (--d->working == 0)
            close_pieces(d);
    open.clear();
}

/* -- pieces ------------------------------------------------------------------------ */

static char *map_memory(const device *d, int protection)
{
    void *at = mmap(NULL, ARENA_BYTES, protection, MAP_SHARED | MAP_NORESERVE,
                    d->memory, 0);

    if (at == MAP_FAILED)
        abort();
    return (char *)at;
}

static void reserve_arena(device *d)
{
    d->memory = memfd_create("cuda-emulated", MFD_CLOEXEC);
    if (d->memory < 0 || ftruncate(d->memory, (off_t)ARENA_BYTES) < 0)
        abort();
    d->arena = map_memory(d, PROT_NONE);
    d->view = map_memory(d, PROT_READ | PROT_WRITE);
    d->top = d->arena;
}

/* Of an address for so many pages and a page behind; NULL: there is none. */
static char *take_address(device *d, size_t pages)
{
    char *at = d->top;

    if (!d->arena)
        reserve_arena(d), at = d->top;
    if ((size_t)(d->arena + ARENA_BYTES - d->top) >= pages + PAGE) {
        d->top += pages + PAGE;
        return at;
    }
    auto had = d->unused.find(pages);
    if (had == d->unused.end())
        return NULL;
    at = had->second;
    d->unused.erase(had);
    return at;
}

static char *view_of(const device *d, const char *memory)
{
    return d->view + (memory - d->arena);
}

/* The program can no longer use it. */
static void unmap_piece(const piece_ref &p)
{
    device *d = p->device;

    protect_piece(p.get(), false);
    d->used -= p->pages;
    state().pieces.erase(p->at);
    if (p->seen > 0)
        fail_device(d, cudaErrorIllegalAddress);
}

/* With the lock. Waiting kernels that have seen it are over as well. */
piece::~piece()
{
    if (!base)
        return;
    device->unused.insert({ pages, base });
    if (fallocate(device->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  base - device->arena, (off_t)pages) < 0)
        abort();
}

static size_t device_bytes(void)
{
    const char *text = getenv("CRUN_STANDIN_MEMORY");

    return text && *text ? strtoull(text, NULL, 10) : DEFAULT_BYTES;
}

/* Its end is as close to the guard page as the alignment allows. */
static cudaError_t make_piece(void **memory, size_t bytes, bool mapped)
{
    piece_ref p = std::make_shared<piece>();
    device *d = current_device();
    size_t whole = round_up(bytes, mapped ? PAGE : ALIGNMENT);

    p->device = d;
    p->bytes = bytes;
    p->mapped = mapped;
    p->pages = round_up(whole, PAGE);
    if (whole < bytes || p->pages > device_bytes() ||
        d->used > device_bytes() - p->pages)
        return cudaErrorMemoryAllocation;
    p->base = take_address(d, p->pages);
    if (!p->base)
        return cudaErrorMemoryAllocation;
    p->at = p->base + p->pages - whole;
    d->used += p->pages;
    if (p->pages <= FILL_MAX)
        memset(view_of(d, p->base), FILL, p->pages);
    state().pieces[p->at] = p;
    *memory = p->at;
    return cudaSuccess;
}

piece_ref find_piece(const void *memory)
{
    auto after = state().pieces.upper_bound((char *)memory);

    if (after == state().pieces.begin())
        return nullptr;
    --after;
    const piece_ref &p = after->second;
    return (char *)memory < p->at + p->bytes ? p : nullptr;
}

bool is_arena(const void *memory)
{
    for (const device &d : state().devices)
        if (d.arena && (char *)memory >= d.arena &&
            (char *)memory < d.arena + ARENA_BYTES)
            return true;
    return false;
}

/* -- the calls --------------------------------------------------------------------- */

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    ENTER("cudaMemGetInfo", CALL_DEVICE);
    locked guard;
    *total = device_bytes();
    *available = *total - current_device()->used;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    ENTER("cudaMalloc", CALL_DEVICE | CALL_UNSAFE);
    locked guard;
    *memory = NULL;
    return end_call(bytes ? make_piece(memory, bytes, false) : cudaSuccess);
}

cudaError_t cudaFree(void *memory)
{
    ENTER("cudaFree", CALL_DEVICE | CALL_UNSAFE);
    locked guard;
    auto found = state().pieces.find((char *)memory);
    if (!memory)
        return cudaSuccess;
    if (found == state().pieces.end() || found->second->mapped)
        return end_call(cudaErrorInvalidValue);
    piece_ref p = found->second;
    cudaError_t code = await_device(p->device);
    if (code == cudaSuccess)
        unmap_piece(p);
    return end_call(code);
}

cudaError_t cuda_emulated_map(void **memory, size_t bytes)
{
    ENTER("cuMemMap", CALL_DEVICE | CALL_UNSAFE);
    locked guard;
    *memory = NULL;
    return bytes ? make_piece(memory, bytes, true) : cudaErrorInvalidValue;
}

cudaError_t cuda_emulated_unmap(void *memory)
{
    ENTER("cuMemUnmap", CALL_DEVICE | CALL_UNSAFE);
    locked guard;
    auto found = state().pieces.find((char *)memory);
    if (found == state().pieces.end() || !found->second->mapped)
        return cudaErrorInvalidValue;
    piece_ref p = found->second;
    unmap_piece(p);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a,
                                     const void *memory)
{
    ENTER("cudaPointerGetAttributes", CALL_DEVICE);
    locked guard;
    piece_ref p = find_piece(memory);
    bool pinned = is_pinned(memory);

    a->type = p        ? cudaMemoryTypeDevice
              : pinned ? cudaMemoryTypeHost
                       : cudaMemoryTypeUnregistered;
    a->device = p ? p->device->number : pinned ? current_device()->number : -2;
    a->devicePointer = p || pinned ? (void *)memory : NULL;
    a->hostPointer = p ? NULL : (void *)memory;
    return cudaSuccess;
}

/* -- views ------------------------------------------------------------------------- */

void begin_running(running_kernel *k)
{
    running = k;
}

void end_running(running_kernel *k)
{
    for (const piece_ref &p : k->seen)
        p->seen--;
    k->seen.clear();
    running = NULL;
}

int cuda_emulated_stopped(void)
{
    locked guard;

    return running && running->on->failed != cudaSuccess;
}

void *cuda_emulated_view(const void *memory)
{
    locked guard;
    piece_ref p = find_piece(memory);
    bool had = false;

    if (!p)
        return is_arena(memory) ? NULL : (void *)memory;
    for (size_t i = 0; running && i < running->seen.size(); i++)
        had = had || running->seen[i] == p;
    if (running && !had) {
        running->seen.push_back(p);
        p->seen++;
    }
    return view_of(p->device, (char *)memory);
}
