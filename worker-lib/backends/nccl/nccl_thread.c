/* SPDX-License-Identifier: MIT */
/*
 * The communication thread, the only one that calls NCCL. Its communicator does not
 * block: a call returns, and its progress is polled, so that the thread can abandon it
 * at the end. With CRUN_NCCL_BLOCKING calls return when they are done, or when the
 * watch has the communicator aborted.
 */
#include <sched.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/thread.h"
#include "worker-lib/backends/nccl/backend_nccl.h"
#include "worker-lib/engine/flight_recorder.h"

#define LOOK_MS 100 /* how often to ask for NCCL's asynchronous errors */
#define TURNS_BUSY 200
#define PAUSE_US_MIN 20
#define PAUSE_US_MAX 5000

/* -- calls of NCCL ----------------------------------------------------------------- */

void nccl_enter(struct nccl *n, const char *call)
{
    atomic_store(&n->call_ms, clock_ms());
    atomic_store(&n->call, call);
}

/* The watch sets `aborting` and then looks at the call, in this order. */
bool nccl_enter_comm(struct nccl *n, const char *call)
{
    nccl_enter(n, call);
    if (!atomic_load(&n->aborting))
        return true;
    atomic_store(&n->call, NULL);
    return false;
}

int nccl_leave(struct nccl *n, int code)
{
    atomic_store(&n->call, NULL);
    return code;
}

crun_status nccl_settle_gpu(struct nccl *n, const char *call, int code, struct err *e)
{
    return nccl_leave(n, code) == GPU_OK
               ? CRUN_OK
               : gpu_calls_failed(n->gpu.cuda, n->gpu.device, call, code, e);
}

static crun_status fail_nccl(struct nccl *n, const char *call, int result,
                             struct err *e)
{
    const struct nccl_calls *nccl = n->gpu.nccl;
    const char *more = nccl->last_error(atomic_load(&n->comm));

    err_set(e, "%s: %s on %s%s%s", call, nccl->error_string(result),
            gpu_calls_name(n->gpu.device), more && *more ? ": " : "", more ? more : "");
    return result == NCCL_REMOTE_ERROR ? CRUN_PEER_LOST : CRUN_SYSTEM;
}

static struct abort_word *abort_word_of(struct nccl *n)
{
    return atomic_load(&n->outlives) ? &n->last_word : n->team.aborted;
}

crun_status nccl_fail_ended(struct nccl *n, struct err *e)
{
    crun_status s = abort_error(abort_word_of(n), e);

    return s == CRUN_OK ? CRUN_ABORTED : s;
}

bool nccl_is_ending(struct nccl *n)
{
    return abort_get(abort_word_of(n)) != CRUN_OK;
}

/* Asynchronous errors, in NCCL's own threads or on the GPU. */
static crun_status check_async_error(struct nccl *n, int *result, struct err *e)
{
    int code;

    *result = NCCL_OK;
    n->looked_ms = clock_ms();
    if (!atomic_load(&n->comm))
        return CRUN_OK;
    if (!nccl_enter_comm(n, "ncclCommGetAsyncError"))
        return nccl_fail_ended(n, e);
    code = nccl_leave(n, n->gpu.nccl->async_error(atomic_load(&n->comm), result));
    if (code != NCCL_OK)
        return fail_nccl(n, "ncclCommGetAsyncError", code, e);
    if (*result != NCCL_OK && *result != NCCL_IN_PROGRESS)
        return fail_nccl(n, "NCCL", *result, e);
    return CRUN_OK;
}

/* For about a hundredth of the time that it has waited. */
static void sleep_briefly(unsigned *turn)
{
    unsigned long us = PAUSE_US_MIN;

    if ((*turn)++ < TURNS_BUSY) {
        sched_yield();
        return;
    }
    us <<= (*turn - TURNS_BUSY) / 100 < 8 ? (*turn - TURNS_BUSY) / 100 : 8;
    usleep((useconds_t)(us < PAUSE_US_MAX ? us : PAUSE_US_MAX));
}

crun_status nccl_pause(struct nccl *n, unsigned *turn, struct err *e)
{
    crun_status s;
    int result;

    if (nccl_is_ending(n))
        return nccl_fail_ended(n, e);
    sleep_briefly(turn);
    if (clock_ms() - n->looked_ms < LOOK_MS)
        return CRUN_OK;
    s = nccl_retire(n, e);
    return s == CRUN_OK ? check_async_error(n, &result, e) : s;
}

/* After an error of the GPU every query fails, even that of an event of earlier
 * work. */
static crun_status query_event(struct nccl *n, struct gpu_event *event, bool *reached,
                               struct err *e)
{
    int code;

    nccl_enter(n, "cudaEventQuery");
    code = nccl_leave(n, n->gpu.cuda->event_query(event));
    *reached = code == GPU_OK;
    return code == GPU_OK || code == GPU_NOT_READY
               ? CRUN_OK
               : gpu_calls_failed(n->gpu.cuda, n->gpu.device, NULL, code, e);
}

crun_status nccl_await(struct nccl *n, struct gpu_event *event, struct err *e)
{
    unsigned turn = 0;
    bool reached = false;
    crun_status s = query_event(n, event, &reached, e);

    while (s == CRUN_OK && !reached) {
        s = nccl_pause(n, &turn, e);
        if (s == CRUN_OK)
            s = query_event(n, event, &reached, e);
    }
    return s;
}

crun_status nccl_settle(struct nccl *n, const char *call, int result, struct err *e)
{
    crun_status s = CRUN_OK;
    unsigned turn = 0;

    atomic_store(&n->call, NULL);
    if (nccl_is_ending(n))
        return nccl_fail_ended(n, e);
    /* some calls, as ncclCommWindowRegister, return success while NCCL's thread runs */
    if (result == NCCL_OK)
        s = check_async_error(n, &result, e);
    while (result == NCCL_IN_PROGRESS && s == CRUN_OK) {
        s = check_async_error(n, &result, e);
        if (s == CRUN_OK && result == NCCL_IN_PROGRESS)
            s = nccl_pause(n, &turn, e);
    }
    if (s == CRUN_OK && result != NCCL_OK)
        return fail_nccl(n, call, result, e);
    return s;
}

crun_status nccl_settle_in_group(struct nccl *n, const char *call, int result,
                                 struct err *e)
{
    atomic_store(&n->call, NULL);
    if (nccl_is_ending(n))
        return nccl_fail_ended(n, e);
    return result == NCCL_OK || result == NCCL_IN_PROGRESS
               ? CRUN_OK
               : fail_nccl(n, call, result, e);
}

/* -- the thread -------------------------------------------------------------------- */

static void retire_work(struct nccl *n, struct nccl_work *w)
{
    float ms = 0;

    if (w->begun) {
        nccl_enter(n, "cudaEventElapsedTime");
        if (nccl_leave(n, n->gpu.cuda->event_elapsed(&ms, w->begun, w->done)) == GPU_OK)
            atomic_fetch_add(&n->backend.busy_us, (uint64_t)(ms * 1000));
    }
    pthread_mutex_lock(&n->lock);
    n->flight_first = w->next;
    if (!w->next)
        n->flight_last = NULL;
    if (n->team.flight)
        flight_recorder_end(n->team.flight, w->entry, CRUN_OK, clock_us());
    w->stage = STAGE_OVER;
    if (w->finished) {
        w->next = n->spare;
        n->spare = w;
    }
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

/* The time limit of the first work in flight starts when all earlier work is done,
 * including the program's. */
static crun_status query_flight(struct nccl *n, struct nccl_work *w, bool *done,
                                struct err *e)
{
    crun_status s = query_event(n, w->done, done, e);
    bool ready = false;

    if (s == CRUN_OK && !*done && atomic_load(&w->running_ms) == 0)
        s = query_event(n, w->ready, &ready, e);
    if (ready) {
        n->progress_ms = clock_ms();
        atomic_store(&w->running_ms, n->progress_ms);
    }
    atomic_store(&n->flight_seen_ms, clock_ms());
    return s;
}

/* Only this thread changes the works in flight, so it reads them without the lock. */
crun_status nccl_retire(struct nccl *n, struct err *e)
{
    crun_status s = CRUN_OK;
    bool done = true;

    while (s == CRUN_OK && done && n->flight_first) {
        s = query_flight(n, n->flight_first, &done, e);
        if (s == CRUN_OK && done) {
            retire_work(n, n->flight_first);
            n->progress_ms = clock_ms();
        }
    }
    return s;
}

crun_status nccl_idle(struct nccl *n, struct err *e)
{
    crun_status s = nccl_retire(n, e);
    unsigned turn = 0;

    while (s == CRUN_OK && n->flight_first) {
        /* each earlier work has its own time limit */
        if (n->progress_ms > atomic_load(&n->current->running_ms))
            atomic_store(&n->current->running_ms, n->progress_ms);
        s = nccl_pause(n, &turn, e);
        if (s == CRUN_OK)
            s = nccl_retire(n, e);
    }
    return s;
}

static crun_status perform_work(struct nccl *n, struct nccl_work *w)
{
    bool frees = w->task == TASK_FREE || w->task == TASK_CLOSE;
    crun_status s = CRUN_OK;

    if (!frees)
        s = nccl_is_ending(n) ? nccl_fail_ended(n, &w->e) : nccl_retire(n, &w->e);
    if (s != CRUN_OK)
        return s;
    switch (w->task) {
    case TASK_OPEN:
        return nccl_comm_open(n, w, &w->e);
    case TASK_ALLOC:
        return nccl_add_area(n, w, &w->e);
    case TASK_FREE:
        nccl_remove_area(n, w);
        return CRUN_OK;
    case TASK_SPLIT:
        return nccl_comm_split(n, w, &w->e);
    case TASK_CLOSE:
        return nccl_comm_close(n, w, &w->e);
    default:
        return nccl_run(n, w, &w->e);
    }
}

/* If a rank had no memory for crun_alloc, no rank has changed anything. */
static bool ends_world(const struct nccl_work *w, crun_status s)
{
    return s != CRUN_OK && s != CRUN_BAD_ARGUMENT && w->task != TASK_CLOSE &&
           !(s == CRUN_NO_MEMORY && w->task == TASK_ALLOC);
}

/* Marks it as launched and in flight, or as over; reports a failure to the watch. */
static void settle_work(struct nccl *n, struct nccl_work *w, crun_status s)
{
    bool launched = s == CRUN_OK && w->task == TASK_OPERATION && !w->host;

    if (ends_world(w, s)) {
        abort_set_error(abort_word_of(n), s, &w->e);
        n->backend.calls->abort(&n->backend);
    }
    nccl_turn_give_back(n->line, &w->turn, n, NULL); /* it was not launched */
    pthread_mutex_lock(&n->lock);
    w->status = s;
    w->stage = launched ? STAGE_LAUNCHED : STAGE_OVER;
    n->current = NULL;
    n->busy = false;
    if (launched) {
        atomic_store(&w->running_ms, 0);
        w->next = NULL;
        if (n->flight_last)
            n->flight_last->next = w;
        else
            n->flight_first = w;
        n->flight_last = w;
    } else if (n->team.flight && w->task == TASK_OPERATION && w->entry != UINT64_MAX)
        flight_recorder_end(n->team.flight, w->entry, s, clock_us());
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

/* The next work, or NULL if there was none for a while. */
static struct nccl_work *take_work(struct nccl *n)
{
    struct nccl_work *w;

    pthread_mutex_lock(&n->lock);
    if (!n->first || (n->aborting && !n->ended))
        (void)thread_wait_until(&n->queue_changed, &n->lock, clock_ms() + LOOK_MS);
    w = n->aborting && !n->ended ? NULL : n->first;
    if (w) {
        n->first = w->next;
        if (!n->first)
            n->last = NULL;
        w->stage = STAGE_RUNNING;
        w->entry = UINT64_MAX;
        n->current = w;
    }
    n->busy = w || !n->aborting;
    pthread_mutex_unlock(&n->lock);
    return w;
}

/* Without a task: checks works in flight, and for errors. */
static void check_while_idle(struct nccl *n)
{
    struct err e;
    int result;
    crun_status s = nccl_is_ending(n) ? CRUN_OK : nccl_retire(n, &e);

    if (s == CRUN_OK && !nccl_is_ending(n) && clock_ms() - n->looked_ms >= LOOK_MS)
        s = check_async_error(n, &result, &e);
    if (s != CRUN_OK) {
        abort_set_error(abort_word_of(n), s, &e);
        n->backend.calls->abort(&n->backend);
    }
    pthread_mutex_lock(&n->lock);
    n->busy = false;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

void *nccl_communicate(void *arg)
{
    struct nccl *n = arg;
    bool last = false;

    while (!last) {
        struct nccl_work *w = take_work(n);

        if (!w) {
            check_while_idle(n);
            continue;
        }
        last = w->task == TASK_CLOSE;
        atomic_store(&w->running_ms, clock_ms());
        settle_work(n, w, perform_work(n, w));
    }
    pthread_mutex_lock(&n->lock);
    n->gone = true;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
    return NULL;
}
