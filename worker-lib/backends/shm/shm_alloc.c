/* SPDX-License-Identifier: MIT */
/*
 * Memory of crun_alloc: a further range of the team's file, in which each rank has a
 * part. All ranks map all of it, so that each can reach the others' parts. Ranges are
 * never reused, and are allocated in the same order in all ranks. The pages of a part
 * are returned to the system when its rank frees it. The range is unmapped when all
 * ranks have freed it, so that until then all ranks can reach the same memory. The
 * first page counts the ranks that have freed it.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "worker-lib/backends/shm/backend_shm.h"

#define PAGE 4096u

static size_t area_bytes(const struct shm *s, size_t stride)
{
    return PAGE + stride * s->team.size;
}

static size_t own_at(const struct shm *s, const struct shm_area *a)
{
    return PAGE + s->team.rank * a->stride;
}

static _Atomic uint32_t *freed_by(const struct shm_area *a)
{
    return (_Atomic uint32_t *)(void *)a->address;
}

/* All ranks set the same size, in any order. The file does not shrink when a larger
 * range could not be mapped before: its size is sealed against that. */
static bool grow_file(const struct shm *s, size_t size)
{
    struct stat st;

    return fstat(s->fd, &st) == 0 &&
           (st.st_size >= (off_t)size || ftruncate(s->fd, (off_t)size) == 0);
}

/* Maps further pages of the file. NULL: it failed. */
static struct shm_area *map_area(struct shm *s, size_t stride)
{
    size_t bytes = area_bytes(s, stride);
    struct shm_area *a = calloc(1, sizeof(*a));
    void *address = MAP_FAILED;

    if (a && grow_file(s, s->end + bytes))
        address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd,
                       (off_t)s->end);
    if (address == MAP_FAILED) {
        free(a);
        return NULL;
    }
    a->offset = s->end;
    a->stride = stride;
    a->address = address;
    madvise(address, bytes, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
    madvise(a->address + own_at(s, a), stride, MADV_POPULATE_WRITE);
#endif
    return a;
}

static void unmap_area(const struct shm *s, struct shm_area *a)
{
    munmap(a->address, area_bytes(s, a->stride));
    free(a);
}

/* Unmaps areas that all ranks have freed. */
static void unmap_freed(struct shm *s)
{
    for (struct shm_area **at = &s->areas; *at;) {
        struct shm_area *a = *at;

        if (atomic_load(freed_by(a)) < s->team.size) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        unmap_area(s, a);
    }
}

/* Whether all ranks have succeeded. */
static crun_status agree_on_area(struct shm *s, struct op *op, bool could,
                                 struct err *e)
{
    bool all = true;
    crun_status status;

    shm_arrive(s, op, could, 0);
    status = shm_meet(s, op, e);
    for (unsigned p = 0; p < s->team.size && status == CRUN_OK; p++)
        all = all && shm_call_of(s, p)->in;
    if (status == CRUN_OK && !all) {
        err_set(e, "no shared memory for %zu bytes in each of %u ranks", op->count,
                s->team.size);
        status = CRUN_NO_MEMORY;
    }
    return status;
}

crun_status shm_area_add(struct shm *s, size_t bytes, uint64_t deadline_ms,
                         void **memory, struct err *e)
{
    uint64_t now = clock_ms();
    struct op op = { .kind = OP_KIND_COUNT,
                     .type = CRUN_U8,
                     .count = bytes,
                     .deadline_ms = deadline_ms,
                     .timeout_ms = deadline_ms > now ? deadline_ms - now : 0 };
    size_t pages = bytes / PAGE + (bytes % PAGE != 0 || bytes == 0);
    struct shm_area *a = NULL;
    crun_status status;

    shm_arrive(s, &op, 0, 0);
    status = shm_meet(s, &op, e);
    if (status != CRUN_OK)
        return status;
    unmap_freed(s);
    if (pages <= (SIZE_MAX >> 1) / PAGE / s->team.size)
        a = map_area(s, pages * PAGE);
    status = agree_on_area(s, &op, a != NULL, e);
    if (status != CRUN_OK) {
        if (a)
            unmap_area(s, a);
        return status;
    }
    s->end += area_bytes(s, a->stride);
    a->next = s->areas;
    s->areas = a;
    *memory = a->address + own_at(s, a);
    return CRUN_OK;
}

bool shm_area_remove(struct shm *s, void *memory)
{
    struct shm_area *a = s->areas;

    while (a && (a->freed || a->address + own_at(s, a) != (char *)memory))
        a = a->next;
    if (!a)
        return false;
    a->freed = true;
    fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              (off_t)(a->offset + own_at(s, a)), (off_t)a->stride);
    atomic_fetch_add(freed_by(a), 1);
    return true;
}

void shm_area_close(struct shm *s)
{
    while (s->areas) {
        struct shm_area *a = s->areas;

        s->areas = a->next;
        unmap_area(s, a);
    }
}

uint64_t shm_area_find(const struct shm *s, const void *memory, size_t bytes)
{
    for (const struct shm_area *a = s->areas; a; a = a->next) {
        size_t begin = own_at(s, a);
        uintptr_t at = (uintptr_t)memory - (uintptr_t)a->address;

        if (!a->freed && at >= begin && at - begin <= a->stride &&
            bytes <= a->stride - (at - begin))
            return a->offset + at;
    }
    return 0;
}

void *shm_area_at(const struct shm *s, uint64_t offset)
{
    for (const struct shm_area *a = s->areas; a; a = a->next)
        if (offset >= a->offset && offset - a->offset < area_bytes(s, a->stride))
            return a->address + (offset - a->offset);
    return NULL;
}
