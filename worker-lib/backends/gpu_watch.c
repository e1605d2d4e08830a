/* SPDX-License-Identifier: MIT */
#include "worker-lib/backends/gpu_watch.h"

#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/thread.h"
#include "worker-lib/core/stuck.h"

#define TICK_MS 100
#define TURNS_BUSY 200
#define PAUSE_US_MIN 20
#define PAUSE_US_MAX 500
#define AT_ONCE_MS 50 /* for a stream to end, before the other ranks are informed */
#define LEAVE_MS_MIN 1000
#define LEAVE_MS_MAX 10000
#define PATIENCE_MS 60000

/* The call of CUDA that a thread is in. */
struct watched_call {
    struct watched_call *next, **from;
    const char *name;
    uint64_t since_ms;
};

static _Thread_local struct watched_call this_call;

/* -- calls ------------------------------------------------------------------------- */

void gpu_watch_enter(struct gpu_watch *w, const char *call)
{
    struct watched_call *c = &this_call;

    c->name = call;
    c->since_ms = clock_ms();
    pthread_mutex_lock(&w->lock);
    c->next = w->under_way;
    c->from = &w->under_way;
    if (c->next)
        c->next->from = &c->next;
    w->under_way = c;
    pthread_mutex_unlock(&w->lock);
}

int gpu_watch_leave(struct gpu_watch *w, int code)
{
    struct watched_call *c = &this_call;

    pthread_mutex_lock(&w->lock);
    *c->from = c->next;
    if (c->next)
        c->next->from = c->from;
    pthread_mutex_unlock(&w->lock);
    return code;
}

crun_status gpu_watch_check(struct gpu_watch *w, const char *call, int code,
                            struct err *e)
{
    return code == GPU_OK ? CRUN_OK
                          : gpu_calls_failed(w->gpu, GPU_CALLS_DEVICE, call, code, e);
}

/* -- waits ------------------------------------------------------------------------- */

static void pause_in_wait(unsigned turn)
{
    unsigned doubled = turn < TURNS_BUSY ? 0 : (turn - TURNS_BUSY) / 100;
    useconds_t us = PAUSE_US_MIN << (doubled < 5 ? doubled : 5);

    if (turn < TURNS_BUSY)
        sched_yield();
    else
        usleep(us < PAUSE_US_MAX ? us : PAUSE_US_MAX);
}

static int query_watched(struct gpu_watch *w, struct gpu_event *event)
{
    gpu_watch_enter(w, "cudaEventQuery");
    return gpu_watch_leave(w, w->gpu->event_query(event));
}

crun_status gpu_watch_await(struct gpu_watch *w, struct gpu_event *event,
                            uint64_t deadline_ms, struct err *e)
{
    int code = query_watched(w, event);

    for (unsigned turn = 0; code == GPU_NOT_READY; turn++) {
        if (abort_get(w->team->aborted))
            return abort_error(w->team->aborted, e);
        if (clock_ms() >= deadline_ms) {
            err_set(e, "GPU %d of rank %u has not done its work", w->device,
                    w->team->world_rank[w->team->rank]);
            return CRUN_TIMEOUT;
        }
        pause_in_wait(turn);
        code = query_watched(w, event);
    }
    return gpu_watch_check(w, "the GPU", code, e);
}

/* Waits until the stream is idle. That of a GPU that has failed is idle, too. */
static bool rests_by(struct gpu_watch *w, struct gpu_event *event, uint64_t deadline_ms)
{
    int code = query_watched(w, event);

    for (unsigned turn = 0; code == GPU_NOT_READY && clock_ms() < deadline_ms; turn++) {
        pause_in_wait(turn);
        code = query_watched(w, event);
    }
    return code != GPU_NOT_READY;
}

/* -- the end ----------------------------------------------------------------------- */

static uint64_t time_limit_ms(const struct gpu_watch *w)
{
    return w->team->timeout_ms ? w->team->timeout_ms : PATIENCE_MS;
}

static void inform_ranks(struct gpu_watch *w, crun_status s, const struct err *e)
{
    abort_set_error(w->team->aborted, s, e);
    w->informs->calls->abort(w->informs);
    if (w->team->failed)
        w->team->failed(w->team->failed_arg);
}

static void be_stuck(struct gpu_watch *w)
{
    atomic_store(&w->stuck, true);
    stuck_set();
}

crun_status gpu_watch_settle(struct gpu_watch *w, struct gpu_stream *stream,
                             struct gpu_event *event, crun_status s, struct err *e)
{
    uint64_t leave_ms = time_limit_ms(w);
    int code;

    if (leave_ms < LEAVE_MS_MIN)
        leave_ms = LEAVE_MS_MIN;
    if (leave_ms > LEAVE_MS_MAX)
        leave_ms = LEAVE_MS_MAX;
    gpu_watch_enter(w, "cudaEventRecord");
    code = gpu_watch_leave(w, w->gpu->event_record(event, stream));
    if (code != GPU_OK || rests_by(w, event, clock_ms() + AT_ONCE_MS))
        return s;
    inform_ranks(w, s, e);
    if (!rests_by(w, event, clock_ms() + leave_ms)) {
        struct err reason;

        be_stuck(w);
        s = abort_error(w->team->aborted, &reason);
        err_set(e, "%s; GPU %d hangs: this process must end", reason.text, w->device);
        err_set_code(e, ERROR_ABORTED, 0);
    }
    return s;
}

/* -- the watch --------------------------------------------------------------------- */

/* Under the lock. */
static bool has_hanging_call(const struct gpu_watch *w, struct err *e)
{
    uint64_t now = clock_ms(), limit_ms = time_limit_ms(w);

    for (const struct watched_call *c = w->under_way; c; c = c->next)
        if (now > c->since_ms && now - c->since_ms > limit_ms) {
            err_set(e, "%s has not returned for %.3g s on GPU %d of rank %u", c->name,
                    (double)limit_ms / 1000, w->device,
                    w->team->world_rank[w->team->rank]);
            return true;
        }
    return false;
}

static void wait_for_tick(struct gpu_watch *w)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += TICK_MS * 1000000l;
    until.tv_sec += until.tv_nsec / 1000000000l;
    until.tv_nsec %= 1000000000l;
    pthread_cond_timedwait(&w->changed, &w->lock, &until);
}

/* It continues after the world's end, until it is closed or the process ends. */
static void *watch_gpu(void *arg)
{
    struct gpu_watch *w = arg;
    bool hung = false;
    struct err e;

    pthread_mutex_lock(&w->lock);
    while (!w->stopping) {
        wait_for_tick(w);
        if (hung || !has_hanging_call(w, &e))
            continue;
        hung = true;
        pthread_mutex_unlock(&w->lock);
        inform_ranks(w, CRUN_TIMEOUT, &e);
        be_stuck(w);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

crun_status gpu_watch_open(struct gpu_watch *w, const struct gpu_calls *gpu, int device,
                           const struct team *team, struct backend *informs,
                           struct err *e)
{
    pthread_condattr_t attr;

    w->gpu = gpu;
    w->device = device;
    w->team = team;
    w->informs = informs;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &attr);
    pthread_condattr_destroy(&attr);
    stuck_prepare();
    w->opened = thread_start(&w->thread, watch_gpu, w) == 0;
    if (w->opened)
        return CRUN_OK;
    err_set(e, "no thread to watch the GPU");
    return CRUN_SYSTEM;
}

void gpu_watch_close(struct gpu_watch *w)
{
    if (!w->opened)
        return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    w->opened = false;
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
}
