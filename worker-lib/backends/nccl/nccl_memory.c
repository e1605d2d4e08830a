/* SPDX-License-Identifier: MIT */
/* Memory of the GPU: that of crun_alloc, and staging buffers for host memory. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "worker-lib/backends/nccl/backend_nccl.h"

#define ALIGNMENT 4096 /* of a window */
#define STAGING_MIN 65536
#define AREAS_MIN 16
#define PAUSE_US 1000

/* -- the areas --------------------------------------------------------------------- */

/* The number of areas that begin at or before this address. */
static size_t count_areas_before(const struct nccl *n, const void *memory)
{
    size_t low = 0, high = n->area_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if ((uintptr_t)n->area[middle]->memory <= (uintptr_t)memory)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* NULL: it is not memory of crun_alloc. Under the lock. */
static struct nccl_area *find_area(const struct nccl *n, const void *memory)
{
    size_t before = count_areas_before(n, memory);
    struct nccl_area *a = before ? n->area[before - 1] : NULL;

    return a && (uintptr_t)memory - (uintptr_t)a->memory < a->bytes ? a : NULL;
}

bool nccl_owns(struct nccl *n, const void *memory)
{
    bool owns;

    pthread_mutex_lock(&n->lock);
    owns = find_area(n, memory) != NULL;
    pthread_mutex_unlock(&n->lock);
    return owns;
}

bool nccl_has_area(struct nccl *n, const void *memory)
{
    const struct nccl_area *a;

    pthread_mutex_lock(&n->lock);
    a = find_area(n, memory);
    pthread_mutex_unlock(&n->lock);
    return a && a->memory == memory;
}

/* Room for one more. */
static bool reserve_area(struct nccl *n)
{
    size_t room = n->area_room ? 2 * n->area_room : AREAS_MIN;
    struct nccl_area **area;

    if (n->area_count < n->area_room)
        return true;
    pthread_mutex_lock(&n->lock);
    area = realloc(n->area, room * sizeof(struct nccl_area *));
    if (area) {
        n->area = area;
        n->area_room = room;
    }
    pthread_mutex_unlock(&n->lock);
    return area != NULL;
}

static void insert_area(struct nccl *n, struct nccl_area *a)
{
    size_t at;

    pthread_mutex_lock(&n->lock);
    at = count_areas_before(n, a->memory);
    memmove(&n->area[at + 1], &n->area[at], (n->area_count - at) * sizeof(n->area[0]));
    n->area[at] = a;
    n->area_count++;
    pthread_mutex_unlock(&n->lock);
}

/* NULL: there is none at this address. */
static struct nccl_area *take_area(struct nccl *n, const void *memory)
{
    struct nccl_area *a;
    size_t after;

    pthread_mutex_lock(&n->lock);
    a = find_area(n, memory);
    if (a) {
        after = count_areas_before(n, memory);
        n->area_count--;
        memmove(&n->area[after - 1], &n->area[after],
                (n->area_count + 1 - after) * sizeof(n->area[0]));
    }
    pthread_mutex_unlock(&n->lock);
    return a;
}

/* -- crun_alloc -------------------------------------------------------------------- */

/* NCCL has no result code for lack of memory: its last error has CUDA's text. */
static bool is_out_of_memory(struct nccl *n, int result, size_t bytes)
{
    size_t available = 0, total = 0;
    const char *text;

    if (result != NCCL_CUDA_ERROR)
        return false;
    text = n->gpu.nccl->last_error(NULL);
    return (text && strstr(text, "out of memory")) ||
           (n->gpu.cuda->memory_info(&available, &total) == GPU_OK &&
            available < bytes);
}

static crun_status alloc_memory(struct nccl *n, struct nccl_area *a, struct err *e)
{
    void *memory = NULL;
    int result;

    nccl_enter(n, "ncclMemAlloc");
    result = n->gpu.nccl->mem_alloc(&memory, a->bytes);
    if (is_out_of_memory(n, nccl_leave(n, result), a->bytes))
        return gpu_calls_no_memory(n->gpu.cuda, "ncclMemAlloc", n->gpu.device, a->bytes,
                                   e);
    if (result == NCCL_OK)
        a->memory = memory;
    return nccl_settle(n, "ncclMemAlloc", result, e);
}

/*
 * Whether all ranks have the memory, and ask for the same size: otherwise some ranks
 * would wait in the registration for ever. The ranks compute the minimum of each
 * number. `mine` is this rank's own success. The host waits for the result, so
 * afterwards the zeros are written as well.
 */
static crun_status nccl_agree_on_area(struct nccl *n, struct nccl_work *w,
                                      crun_status mine, size_t bytes, struct err *e)
{
    int64_t size = n->team.size;
    int64_t least[3] = { mine == CRUN_OK ? size : n->team.rank, (int64_t)bytes,
                         -(int64_t)bytes };
    struct err of_run;
    crun_status s;

    w->op.kind = OP_ALL_REDUCE;
    w->op.type = CRUN_I64;
    w->op.op = CRUN_MIN;
    w->op.count = 3;
    w->op.in = w->op.out = least;
    s = nccl_run(n, w, &of_run);
    if (s != CRUN_OK) {
        *e = of_run;
        return s;
    }
    if (least[1] != -least[2]) {
        err_set(e,
                "ranks call crun_alloc with different sizes, from %lld to %lld bytes",
                (long long)least[1], -(long long)least[2]);
        return CRUN_MISMATCH;
    }
    if (mine == CRUN_OK && least[0] < size) {
        err_set(e, "crun_alloc: rank %u has no memory for %zu bytes on its GPU",
                n->team.world_rank[least[0]], bytes);
        return CRUN_NO_MEMORY;
    }
    return mine;
}

static bool wants_registration(const struct nccl *n)
{
    const char *windows = getenv("CRUN_NCCL_WINDOWS");

    return n->team.size > 1 && !(windows && windows[0] == '0');
}

/* The user wants copy engines for all operations in windows, which then cannot be
 * aborted. */
static bool is_for_copy_engines(void)
{
    const char *policy = getenv("NCCL_CTA_POLICY");

    return policy && (strstr(policy, "ZERO") || atoi(policy) & 2);
}

/*
 * As a symmetric window if NCCL has them. As a buffer otherwise, also if NCCL returns
 * no window because this communicator cannot have any.
 */
static crun_status register_area(struct nccl *n, struct nccl_area *a, struct err *e)
{
    const struct nccl_calls *c = n->gpu.nccl;
    struct nccl_comm *comm = atomic_load(&n->comm);
    crun_status s = CRUN_OK;

    if (!wants_registration(n))
        return CRUN_OK;
    if (c->window_register && !is_for_copy_engines())
        s = NCCL_CALL(n, "ncclCommWindowRegister",
                      c->window_register(comm, a->memory, a->bytes, &a->window,
                                         NCCL_WINDOW_SYMMETRIC));
    if (s == CRUN_OK && !a->window)
        s = NCCL_CALL(n, "ncclCommRegister",
                      c->comm_register(comm, a->memory, a->bytes, &a->registration));
    return s;
}

/* The memory of a failed communicator is freed when it is closed. */
static crun_status fill_area(struct nccl *n, struct nccl_work *w, struct nccl_area *a,
                             size_t bytes, struct err *e)
{
    crun_status s = CRUN_NO_MEMORY;

    if (a->bytes > bytes && reserve_area(n))
        s = alloc_memory(n, a, e);
    else
        err_set(e, "no memory for %zu bytes", bytes);
    if (s == CRUN_OK) {
        insert_area(n, a);
        s = GPU_CALL(n, "cudaMemsetAsync",
                     n->gpu.cuda->zero(a->memory, a->bytes, n->stream));
    }
    if (s == CRUN_OK || s == CRUN_NO_MEMORY)
        s = nccl_agree_on_area(n, w, s, bytes, e);
    return s == CRUN_OK ? register_area(n, a, e) : s;
}

/* The windows of a destroyed communicator do not exist any more. */
static void unregister_area(struct nccl *n, const struct nccl_area *a)
{
    struct nccl_comm *comm = atomic_load(&n->comm);

    if (!comm || atomic_load(&n->lost))
        return;
    if (a->window && nccl_enter_comm(n, "ncclCommWindowDeregister"))
        (void)nccl_leave(n, n->gpu.nccl->window_deregister(comm, a->window));
    if (a->registration && nccl_enter_comm(n, "ncclCommDeregister"))
        (void)nccl_leave(n, n->gpu.nccl->comm_deregister(comm, a->registration));
}

static void free_area(struct nccl *n, struct nccl_area *a)
{
    if (a->memory) {
        unregister_area(n, a);
        nccl_enter(n, "ncclMemFree");
        (void)nccl_leave(n, n->gpu.nccl->mem_free(a->memory));
    }
    free(a);
}

/* All ranks call this for the same size, so that NCCL may register it on all ranks
 * together. */
crun_status nccl_add_area(struct nccl *n, struct nccl_work *w, struct err *e)
{
    struct nccl_area *a = calloc(1, sizeof(*a));
    crun_status s;

    if (!a) {
        err_set(e, "no memory");
        return CRUN_SYSTEM; /* the other ranks learn it only from this */
    }
    a->bytes = (w->bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    s = nccl_idle(n, e);
    if (s == CRUN_OK)
        s = fill_area(n, w, a, w->bytes, e);
    w->memory = a->memory;
    if (s == CRUN_NO_MEMORY || !a->memory) {
        if (a->memory)
            (void)take_area(n, a->memory);
        free_area(n, a);
        w->memory = NULL;
    }
    return s;
}

/* -- crun_free --------------------------------------------------------------------- */

static bool has_ended(struct nccl *n)
{
    bool ended;

    pthread_mutex_lock(&n->lock);
    ended = n->ended;
    pthread_mutex_unlock(&n->lock);
    return ended;
}

static bool is_pending(struct nccl *n, struct gpu_event *event)
{
    nccl_enter(n, "cudaEventQuery");
    return nccl_leave(n, n->gpu.cuda->event_query(event)) == GPU_NOT_READY;
}

/*
 * ncclMemFree unmaps memory at once: unlike cudaFree it does not wait for work of the
 * GPU that still uses it. So this waits for the program's stream, in which `ready` was
 * recorded, and for ours. It also waits after the world's end: work that waited for
 * NCCL's kernels continues when these are aborted. False: the memory must stay.
 */
static bool await_unused(struct nccl *n, struct nccl_work *w)
{
    uint64_t until = clock_ms() + nccl_leave_ms(n);
    bool pending = true, unknown = w->is_unknown;
    struct err e;
    crun_status s;

    if (n->stream) {
        nccl_enter(n, "cudaEventRecord");
        unknown |= nccl_leave(n, n->gpu.cuda->event_record(w->done, n->stream)) !=
                   GPU_OK;
    }
    if (unknown && !has_ended(n))
        return false;
    atomic_store(&w->is_behind, true);
    s = nccl_idle(n, &e);
    if (s == CRUN_OK)
        s = nccl_await(n, w->ready, &e);
    if (s == CRUN_OK)
        s = nccl_await(n, w->done, &e);
    atomic_store(&w->is_behind, false);
    if (s == CRUN_OK)
        return true;
    while (pending && has_ended(n) && clock_ms() < until) {
        pending = is_pending(n, w->ready) || is_pending(n, w->done);
        if (pending)
            usleep(PAUSE_US);
    }
    return !pending;
}

void nccl_remove_area(struct nccl *n, struct nccl_work *w)
{
    struct nccl_area *a = await_unused(n, w) ? take_area(n, w->memory) : NULL;

    if (a)
        free_area(n, a);
}

/* -- staging ----------------------------------------------------------------------- */

/* cudaFree waits for all work of the GPU. */
static void free_staging(struct nccl *n, int which)
{
    if (n->staging[which]) {
        nccl_enter(n, "cudaFree");
        (void)nccl_leave(n, n->gpu.cuda->free(n->staging[which]));
    }
    n->staging[which] = NULL;
    n->staging_bytes[which] = 0;
}

crun_status nccl_stage(struct nccl *n, int which, size_t bytes, void **memory,
                       struct err *e)
{
    size_t room = bytes < STAGING_MIN ? STAGING_MIN : bytes;
    crun_status s = CRUN_OK;

    if (n->staging_bytes[which] < bytes) {
        free_staging(n, which);
        s = GPU_CALL(n, "cudaMalloc", n->gpu.cuda->alloc(&n->staging[which], room));
        if (s == CRUN_NO_MEMORY)
            s = gpu_calls_no_memory(n->gpu.cuda, "cudaMalloc", n->gpu.device, room, e);
        if (s == CRUN_OK)
            n->staging_bytes[which] = room;
    }
    *memory = n->staging[which];
    return s;
}

/* What the GPU may still use stays mapped. */
void nccl_free_memory(struct nccl *n, struct nccl_work *w)
{
    bool unused = await_unused(n, w);

    for (size_t i = 0; i < n->area_count; i++)
        if (unused)
            free_area(n, n->area[i]);
        else
            free(n->area[i]);
    free(n->area);
    n->area = NULL;
    n->area_count = n->area_room = 0;
    for (int i = 0; i < 2 && unused; i++)
        free_staging(n, i);
}
