/* SPDX-License-Identifier: MIT */
/* Communicators: their state, and how they end. */
#include "tests/fakes/nccl/comm.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/fakes/nccl/group.h"

#define WAIT_US 100
#define POLL_NS 1000000
#define HUNG_MS 500 /* a call that does not block takes less */

/* -- states ------------------------------------------------------------------------ */

int comm_state(struct nccl_comm *c)
{
    int state = atomic_load(&c->state);

    if (state == NCCL_OK)
        group_join_job(c);
    return state;
}

void comm_set_state(struct nccl_comm *c, int state)
{
    if (state == NCCL_OK && atomic_load(&c->breaks))
        state = NCCL_REMOTE_ERROR;
    atomic_store(&c->state, state);
    word_wake(&c->state);
}

bool comm_is_aborted(const struct nccl_comm *c)
{
    return link_is_aborted(&c->link);
}

int comm_ready(struct nccl_comm *c)
{
    int state;

    if (comm_is_aborted(c)) {
        group_join_job(c);
        return NCCL_OK;
    }
    state = comm_state(c);
    if (state != NCCL_IN_PROGRESS)
        return state;
    standin_warn("Attempt to use communicator before the previous operation returned "
                 "ncclSuccess");
    return NCCL_BAD_ARGUMENT;
}

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void comm_note_call(struct nccl_comm *c, const char *call)
{
    atomic_fetch_add(&c->inside, 1);
    atomic_store(&c->call, call);
    atomic_store(&c->call_ms, now_ms());
}

int comm_enter(struct nccl_comm *c, const char *call, enum fault *fault)
{
    int result;

    *fault = FAULT_NONE;
    if (!c || c->magic != COMM_MAGIC)
        standin_refuse("%s: the communicator is NULL or was freed", call);
    if (!c->blocking && atomic_load(&c->aborting))
        standin_refuse("%s while another thread is in ncclCommAbort", call);
    comm_note_call(c, call);
    *fault = standin_fault(call, c->rank, &result);
    if (result == NCCL_OK)
        return NCCL_OK;
    standin_warn("%s", standin_last_error());
    return comm_leave(c, FAULT_NONE, group_note_error(result));
}

int comm_break(struct nccl_comm *c, int result)
{
    if (!c->blocking)
        comm_set_state(c, result);
    return result;
}

int comm_leave(struct nccl_comm *c, enum fault fault, int result)
{
    if (fault == FAULT_ASYNC) {
        atomic_store(&c->breaks, true);
        if (atomic_load(&c->state) == NCCL_OK)
            comm_set_state(c, NCCL_REMOTE_ERROR);
    }
    atomic_fetch_sub(&c->inside, 1);
    return result;
}

COMM_API int ncclCommGetAsyncError(struct nccl_comm *c, int *state)
{
    enum fault fault;
    int result = comm_enter(c, "ncclCommGetAsyncError", &fault);

    if (result != NCCL_OK)
        return result;
    result = comm_leave(c, fault, NCCL_OK);
    *state = comm_state(c);
    if (*state == NCCL_IN_PROGRESS) {
        if (atomic_fetch_add(&c->looks, 1) == 0)
            word_wake(&c->looks);
        /* a caller that polls lets the threads run for which it waits */
        word_await(&c->state, NCCL_IN_PROGRESS, POLL_NS);
    }
    return result;
}

/* -- leaving ----------------------------------------------------------------------- */

static void await_kernels(struct nccl_comm *c)
{
    while (atomic_load(&c->kernels) > 0)
        usleep(WAIT_US);
}

static int run_finalize(struct task *t)
{
    struct nccl_comm *c = t->comm;

    await_kernels(c);
    return comm_is_aborted(c) || link_host_barrier(&c->link) ? NCCL_OK
                                                             : NCCL_INTERNAL_ERROR;
}

COMM_API int ncclCommFinalize(struct nccl_comm *c)
{
    struct task *t;
    enum fault fault;
    int result = comm_enter(c, "ncclCommFinalize", &fault), ended;

    if (result != NCCL_OK)
        return comm_break(c, result);
    group_begin();
    result = comm_ready(c);
    if (result == NCCL_OK && c->finalized)
        result = NCCL_BAD_ARGUMENT;
    if (result == NCCL_OK) {
        c->finalized = true;
        t = calloc(1, sizeof(*t));
        if (!t)
            abort();
        t->comm = c;
        t->run = run_finalize;
        atomic_store(&c->breaks, fault == FAULT_ASYNC);
        result = group_add(t);
    }
    if (result != NCCL_OK && !c->blocking)
        comm_set_state(c, result);
    group_note_error(result);
    ended = group_finish();
    if (ended != NCCL_OK && ended != NCCL_IN_PROGRESS)
        return comm_leave(c, FAULT_NONE, ended);
    if (!c->blocking)
        result = comm_state(c);
    return comm_leave(c, FAULT_NONE, result);
}

/* The struct stays, so that a later use is recognised. */
static void free_comm(struct nccl_comm *c)
{
    await_kernels(c);
    group_join_job(c);
    memory_forget_windows(c);
    if (c->last_kernel)
        cudaEventDestroy(c->last_kernel);
    if (c->joint)
        cudaEventDestroy(c->joint);
    area_leave(&c->link);
    c->magic = 0;
}

COMM_API int ncclCommDestroy(struct nccl_comm *c)
{
    enum fault fault;
    int result;

    if (!c)
        return NCCL_OK;
    result = comm_enter(c, "ncclCommDestroy", &fault);
    if (result == NCCL_OK) {
        result = comm_ready(c);
        comm_leave(c, fault, result);
    }
    if (result == NCCL_OK)
        free_comm(c);
    return result;
}

COMM_API int ncclCommRevoke(struct nccl_comm *c, int flags)
{
    enum fault fault;
    int result = comm_enter(c, "ncclCommRevoke", &fault);

    if (result != NCCL_OK)
        return result;
    if (!rule_has_revoke(c->version))
        standin_refuse("version %d has no ncclCommRevoke", c->version);
    if (flags != 0 || c->finalized || comm_is_aborted(c))
        return comm_leave(c, fault, NCCL_BAD_ARGUMENT);
    atomic_store(&c->link.aborted, true);
    await_kernels(c);
    return comm_leave(c, fault, NCCL_OK);
}

/* Whether a thread is in a call that uses what an abort frees: rule 27. */
static bool is_in_use(const struct nccl_comm *c)
{
    const char *call = atomic_load(&c->call);

    if (atomic_load(&c->inside) == 0)
        return false;
    return c->blocking ? rule_has_revoke(c->version) &&
                             strcmp(call, "ncclCommInitRankConfig") != 0
                       : now_ms() < atomic_load(&c->call_ms) + HUNG_MS;
}

/* Waits for the threads that are in a call. With a blocking communicator they leave
 * it. */
COMM_API int ncclCommAbort(struct nccl_comm *c)
{
    int result;

    if (!c)
        return NCCL_OK;
    if (c->magic != COMM_MAGIC || atomic_exchange(&c->aborting, true))
        standin_refuse("ncclCommAbort of a communicator that was freed or aborted");
    (void)standin_fault("ncclCommAbort", c->rank, &result);
    if (is_in_use(c))
        standin_refuse("ncclCommAbort while a thread is in %s", atomic_load(&c->call));
    atomic_store(&c->link.aborted, true);
    while (atomic_load(&c->inside) > 0)
        usleep(WAIT_US);
    group_join_job(c);
    free_comm(c);
    return result;
}
