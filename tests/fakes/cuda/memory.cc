/* SPDX-License-Identifier: MIT */
/*
 * Memory of devices. Every piece is a file in memory that is mapped twice: the
 * program's address cannot be touched but while work of the device runs, and waiting
 * kernels use the other. Around pieces, and in place of freed ones, is a file without
 * bytes, which nobody can touch.
 */
#include "tests/fakes/cuda/emulator.h"

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

static thread_local running_kernel *running;

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* -- touching ------------------------------------------------------------------- */

static void protect_arena(device *d, int protection)
{
    if (d->arena && d->top > d->arena)
        mprotect(d->arena, (size_t)(d->top - d->arena), protection);
}

void device_access::add(device *d)
{
    for (device *had : open)
        if (had == d)
            return;
    open.push_back(d);
    if (d->opened++ == 0)
        protect_arena(d, PROT_READ | PROT_WRITE);
}

void device_access::close(void)
{
    for (device *d : open)
        if (--d->opened == 0)
            protect_arena(d, PROT_NONE);
    open.clear();
}

/* -- pieces --------------------------------------------------------------------- */

static int empty_file(void)
{
    static int fd = memfd_create("cuda-emulated-nothing", MFD_CLOEXEC);

    return fd;
}

static void reserve_arena(device *d)
{
    d->arena = (char *)mmap(NULL, ARENA_BYTES, PROT_NONE, MAP_SHARED | MAP_NORESERVE,
                            empty_file(), 0);
    if (d->arena == MAP_FAILED)
        abort();
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

static bool map_piece(piece *p)
{
    int fd = memfd_create("cuda-emulated", MFD_CLOEXEC);
    int protection = p->device->opened ? PROT_READ | PROT_WRITE : PROT_NONE;
    void *at, *view;

    if (fd < 0 || ftruncate(fd, (off_t)p->pages) < 0)
        abort();
    at = mmap(p->base, p->pages, protection, MAP_SHARED | MAP_FIXED, fd, 0);
    view = mmap(NULL, p->pages, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED || view == MAP_FAILED)
        return false;
    p->view = (char *)view;
    return true;
}

/* No longer the program's. */
static void unmap_piece(const piece_ref &p)
{
    device *d = p->device;

    mmap(p->base, p->pages, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
         empty_file(), p->base - d->arena);
    d->unused.insert({ p->pages, p->base });
    d->used -= p->pages;
    state().pieces.erase(p->at);
    if (p->seen > 0)
        fail_device(d, cudaErrorIllegalAddress);
}

piece::~piece()
{
    if (view)
        munmap(view, pages);
}

static size_t device_bytes(void)
{
    const char *text = getenv("CRUN_STANDIN_MEMORY");

    return text && *text ? strtoull(text, NULL, 10) : DEFAULT_BYTES;
}

/* Its end is as near to the guarding page as the alignment allows. */
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
    if (!p->base || !map_piece(p.get()))
        return cudaErrorMemoryAllocation;
    p->at = p->base + p->pages - whole;
    d->used += p->pages;
    memset(p->view, FILL, p->pages);
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

/* -- the calls ------------------------------------------------------------------ */

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

/* -- views ---------------------------------------------------------------------- */

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
    return p->view + ((char *)memory - p->base);
}
