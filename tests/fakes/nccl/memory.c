/* SPDX-License-Identifier: MIT */
/* Memory that NCCL allocates, and memory that is registered with a communicator. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fakes/nccl/group.h"

#define PAGE 4096
#define WINDOW_ALIGNMENT 4096
#define REGISTER_US 5000
#define SYMMETRIC 1

struct piece {
    struct piece *next;
    char *memory;
    size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct piece *pieces;

bool memory_is_reachable(const struct nccl_comm *c, const void *memory)
{
    struct cudaPointerAttributes a = { 0 };

    if (cudaPointerGetAttributes(&a, memory) != cudaSuccess)
        return false;
    return a.type == cudaMemoryTypeDevice ? a.device == c->device
                                          : a.type != cudaMemoryTypeUnregistered;
}

/* -- ncclMemAlloc ------------------------------------------------------------------ */

COMM_API int ncclMemAlloc(void **memory, size_t bytes)
{
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    struct piece *piece;
    int result;

    (void)standin_fault("ncclMemAlloc", -1, &result);
    if (result != NCCL_OK) {
        standin_warn("%s", standin_last_error());
        return result;
    }
    if (!memory || bytes == 0) /* its fallback is cudaMalloc */
        return memory && cudaMalloc(memory, bytes) == cudaSuccess ? NCCL_OK
                                                                  : NCCL_CUDA_ERROR;
    if (cuda_emulated_map(memory, whole) != cudaSuccess) {
        standin_warn("Cuda failure 2 'out of memory'");
        return NCCL_CUDA_ERROR;
    }
    piece = malloc(sizeof(*piece));
    if (!piece)
        abort();
    pthread_mutex_lock(&lock);
    *piece = (struct piece){ pieces, *memory, whole };
    pieces = piece;
    pthread_mutex_unlock(&lock);
    return NCCL_OK;
}

COMM_API int ncclMemFree(void *memory)
{
    struct piece **at = &pieces, *piece;
    int result;

    (void)standin_fault("ncclMemFree", -1, &result);
    if (result != NCCL_OK || !memory)
        return result;
    pthread_mutex_lock(&lock);
    while (*at && (*at)->memory != memory)
        at = &(*at)->next;
    piece = *at;
    if (piece)
        *at = piece->next;
    pthread_mutex_unlock(&lock);
    free(piece);
    if (!piece)
        return cudaFree(memory) == cudaSuccess ? NCCL_OK : NCCL_CUDA_ERROR;
    return cuda_emulated_unmap(memory) == cudaSuccess ? NCCL_OK : NCCL_CUDA_ERROR;
}

/* The piece that holds this address: false if ncclMemAlloc did not give it. */
static bool find_piece(const void *memory, struct piece *found)
{
    const char *m = memory;
    bool there = false;

    pthread_mutex_lock(&lock);
    for (const struct piece *p = pieces; p && !there; p = p->next)
        if (m >= p->memory && m < p->memory + p->bytes) {
            *found = *p;
            there = true;
        }
    pthread_mutex_unlock(&lock);
    return there;
}

/* -- windows ----------------------------------------------------------------------- */

static struct window *add_window(struct nccl_comm *c, const void *memory, size_t bytes,
                                 bool symmetric)
{
    struct window *w = malloc(sizeof(*w));

    if (!w)
        abort();
    pthread_mutex_lock(&lock);
    *w = (struct window){ c->windows, memory, bytes, symmetric };
    c->windows = w;
    pthread_mutex_unlock(&lock);
    return w;
}

static bool remove_window(struct nccl_comm *c, const void *window)
{
    struct window **at = &c->windows, *w;

    pthread_mutex_lock(&lock);
    while (*at && *at != window)
        at = &(*at)->next;
    w = *at;
    if (w)
        *at = w->next;
    pthread_mutex_unlock(&lock);
    free(w);
    return w;
}

void memory_forget_windows(struct nccl_comm *c)
{
    while (c->windows)
        remove_window(c, c->windows);
}

bool memory_is_symmetric(const struct nccl_comm *c, const void *memory)
{
    const char *m = memory;
    bool symmetric = false;

    pthread_mutex_lock(&lock);
    for (const struct window *w = c->windows; w; w = w->next)
        symmetric = symmetric ||
                    (w->symmetric && m >= w->memory && m < w->memory + w->bytes);
    pthread_mutex_unlock(&lock);
    return symmetric;
}

struct registration {
    struct task task;
    void *memory;
    size_t bytes;
    struct nccl_window **out;
    int flags;
};

/* All ranks register together. */
static int run_registration(struct task *task)
{
    struct registration *t = (struct registration *)(void *)task;
    struct nccl_comm *c = task->comm;
    struct piece piece;
    bool there = find_piece(t->memory, &piece);

    if (c->nodes > 1) {
        *t->out = (struct nccl_window *)add_window(c, t->memory, t->bytes, false);
        return NCCL_OK;
    }
    if (!there) {
        standin_warn("Cuda failure 1 'invalid argument'");
        return NCCL_CUDA_ERROR;
    }
    if (((char *)t->memory - piece.memory) % WINDOW_ALIGNMENT != 0) {
        standin_warn("Window address must be suitably aligned.");
        return NCCL_BAD_ARGUMENT;
    }
    usleep(REGISTER_US);
    if (!link_host_barrier(&c->link))
        return NCCL_INTERNAL_ERROR;
    *t->out = (struct nccl_window *)add_window(c, t->memory, t->bytes,
                                               t->flags & SYMMETRIC);
    return NCCL_OK;
}

static int add_registration(struct nccl_comm *c, void *memory, size_t bytes,
                            struct nccl_window **window, int flags)
{
    struct registration *t = calloc(1, sizeof(*t));

    if (!t)
        abort();
    *t = (struct registration){
        { .comm = c, .stage = STAGE_REGISTER, .run = run_registration },
        memory,
        bytes,
        window,
        flags
    };
    return group_add(&t->task);
}

/* 2.27 checks the memory in the call. *skip: there is nothing to do. */
static int check_window(const struct nccl_comm *c, void *memory, size_t bytes,
                        bool *skip)
{
    struct piece piece;

    *skip = false;
    if (rule_window_needs_one_node(c->version)) {
        *skip = c->nodes > 1;
        return memory && bytes > 0 ? NCCL_OK : NCCL_BAD_ARGUMENT;
    }
    *skip = !memory || bytes == 0;
    if (*skip || rule_window_returns_early(c->version))
        return NCCL_OK;
    if (!find_piece(memory, &piece)) {
        standin_warn("Cuda failure 1 'invalid argument'");
        return NCCL_CUDA_ERROR;
    }
    *skip = (char *)memory + bytes > piece.memory + piece.bytes;
    return NCCL_OK;
}

COMM_API int ncclCommWindowRegister(struct nccl_comm *c, void *memory, size_t bytes,
                                    struct nccl_window **window, int flags)
{
    enum fault fault;
    int result = comm_enter(c, "ncclCommWindowRegister", &fault), ended;
    bool skip = false;

    if (result != NCCL_OK)
        return result;
    if (!rule_has_windows(c->version))
        standin_refuse("version %d has no ncclCommWindowRegister", c->version);
    if (!window)
        return comm_leave(c, fault, NCCL_BAD_ARGUMENT);
    *window = NULL;
    group_begin();
    result = comm_ready(c);
    if (result == NCCL_OK)
        result = check_window(c, memory, bytes, &skip);
    if (result == NCCL_OK && !skip) {
        atomic_store(&c->breaks, fault == FAULT_ASYNC);
        result = add_registration(c, memory, bytes, window, flags);
    }
    group_note_error(result);
    ended = group_finish();
    if (result == NCCL_OK &&
        !(ended == NCCL_IN_PROGRESS && rule_window_returns_early(c->version)))
        result = ended;
    return comm_leave(c, FAULT_NONE, result);
}

COMM_API int ncclCommWindowDeregister(struct nccl_comm *c, struct nccl_window *window)
{
    enum fault fault;
    int result = comm_enter(c, "ncclCommWindowDeregister", &fault);

    if (result != NCCL_OK)
        return result;
    if (!rule_has_windows(c->version))
        standin_refuse("version %d has no ncclCommWindowDeregister", c->version);
    if (window) {
        result = comm_ready(c);
        if (result == NCCL_OK && !remove_window(c, window))
            result = NCCL_BAD_USAGE;
    }
    return comm_leave(c, fault, result);
}

/* -- local registration ------------------------------------------------------------ */

COMM_API int ncclCommRegister(struct nccl_comm *c, void *memory, size_t bytes,
                              void **handle)
{
    enum fault fault;
    int result = comm_enter(c, "ncclCommRegister", &fault);

    if (result != NCCL_OK)
        return result;
    result = memory && bytes > 0 && handle ? comm_ready(c) : NCCL_BAD_ARGUMENT;
    if (result == NCCL_OK)
        *handle = add_window(c, memory, bytes, false);
    return comm_leave(c, fault, result);
}

COMM_API int ncclCommDeregister(struct nccl_comm *c, void *handle)
{
    enum fault fault;
    int result = comm_enter(c, "ncclCommDeregister", &fault);

    if (result != NCCL_OK)
        return result;
    result = comm_ready(c);
    if (result == NCCL_OK && !handle)
        result = rule_null_handle_refused(c->version) ? NCCL_BAD_ARGUMENT : NCCL_OK;
    else if (result == NCCL_OK && !remove_window(c, handle))
        result = NCCL_BAD_USAGE;
    return comm_leave(c, fault, result);
}
