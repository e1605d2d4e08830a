/* SPDX-License-Identifier: MIT */
/* Memory of the GPU: that of crun_alloc, and staging buffers for host memory. */
#include <stdlib.h>
#include <unistd.h>

#include "worker-lib/backends/nccl/backend_nccl.h"

#define ALIGNMENT 4096 /* of a window */
#define STAGING_MIN 65536

/* -- crun_alloc -------------------------------------------------------------------- */

static bool wants_windows(const struct nccl *n)
{
    const char *windows = getenv("CRUN_NCCL_WINDOWS");

    return n->team.size > 1 && n->gpu.nccl->window_register &&
           n->gpu.nccl->window_deregister && !(windows && windows[0] == '0');
}

/* The stream was empty before, so the wait is short. */
static crun_status settle_memory(struct nccl *n, struct err *e)
{
    const struct gpu_calls *cuda = n->gpu.cuda;
    struct gpu_event *event = NULL;
    crun_status s = GPU_CALL(n, "cudaEventCreate", cuda->event_create(&event));

    if (s == CRUN_OK)
        s = GPU_CALL(n, "cudaEventRecord", cuda->event_record(event, n->stream));
    if (s == CRUN_OK)
        s = nccl_await(n, event, e);
    if (event)
        cuda->event_destroy(event);
    return s;
}

/* All ranks call this for the same size, so that NCCL may register it on all ranks
 * together. */
static crun_status fill_area(struct nccl *n, struct nccl_area *a, size_t bytes,
                             struct err *e)
{
    const struct nccl_calls *c = n->gpu.nccl;
    crun_status s = NCCL_CALL(n, "ncclMemAlloc", c->mem_alloc(&a->memory, bytes));

    if (s == CRUN_OK)
        s = GPU_CALL(n, "cudaMemsetAsync",
                     n->gpu.cuda->zero(a->memory, bytes, n->stream));
    if (s == CRUN_OK)
        s = settle_memory(n, e);
    if (s == CRUN_OK && wants_windows(n))
        s = NCCL_CALL(n, "ncclCommWindowRegister",
                      c->window_register(atomic_load(&n->comm), a->memory, bytes,
                                         &a->window, NCCL_WINDOW_SYMMETRIC));
    return s;
}

crun_status nccl_add_area(struct nccl *n, size_t bytes, void **memory, struct err *e)
{
    size_t whole = (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    struct nccl_area *a = whole > bytes ? calloc(1, sizeof(*a)) : NULL;
    crun_status s;

    if (!a) {
        err_set(e, "no memory for %zu bytes", bytes);
        return CRUN_NO_MEMORY;
    }
    s = nccl_idle(n, e);
    if (s == CRUN_OK)
        s = fill_area(n, a, whole, e);
    if (s != CRUN_OK && !a->memory) {
        free(a);
        return s;
    }
    pthread_mutex_lock(&n->lock);
    a->next = n->areas;
    n->areas = a;
    pthread_mutex_unlock(&n->lock);
    *memory = a->memory;
    return s;
}

/* The windows of a destroyed communicator do not exist any more. */
static void free_area(struct nccl *n, struct nccl_area *a)
{
    struct nccl_comm *comm = atomic_load(&n->comm);

    if (a->window && comm && !atomic_load(&n->lost)) {
        nccl_enter(n, "ncclCommWindowDeregister");
        (void)n->gpu.nccl->window_deregister(comm, a->window);
    }
    nccl_enter(n, "ncclMemFree");
    (void)n->gpu.nccl->mem_free(a->memory);
    atomic_store(&n->call, NULL);
    free(a);
}

bool nccl_has_area(const struct nccl *n, const void *memory)
{
    for (const struct nccl_area *a = n->areas; a; a = a->next)
        if (a->memory == memory)
            return true;
    return false;
}

void nccl_remove_area(struct nccl *n, void *memory)
{
    struct nccl_area **at = &n->areas, *a;
    struct err e;

    (void)!nccl_idle(n, &e); /* or everything has ended */
    pthread_mutex_lock(&n->lock);
    while (*at && (*at)->memory != memory)
        at = &(*at)->next;
    a = *at;
    if (a)
        *at = a->next;
    pthread_mutex_unlock(&n->lock);
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
        if (s == CRUN_OK)
            n->staging_bytes[which] = room;
    }
    *memory = n->staging[which];
    return s;
}

void nccl_free_memory(struct nccl *n)
{
    while (n->areas)
        nccl_remove_area(n, n->areas->memory);
    for (int i = 0; i < 2; i++)
        free_staging(n, i);
}
