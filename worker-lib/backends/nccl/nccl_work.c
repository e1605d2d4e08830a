/* SPDX-License-Identifier: MIT */
#include "worker-lib/backends/nccl/nccl_work.h"

#include <stdlib.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/thread.h"
#include "worker-lib/backends/nccl/backend_nccl.h"
#include "worker-lib/core/stuck.h"

void nccl_work_free(struct nccl *n, struct nccl_work *w)
{
    if (w->ready)
        n->gpu.cuda->event_destroy(w->ready);
    if (w->begun)
        n->gpu.cuda->event_destroy(w->begun);
    if (w->done)
        n->gpu.cuda->event_destroy(w->done);
    op_group_drop(w->op.group);
    free(w);
}

/* Freeing and closing need no events, which a GPU that has failed does not create. */
static crun_status make_nccl_work(struct nccl *n, bool leaves, struct nccl_work **work,
                                  struct err *e)
{
    struct nccl_work *w = calloc(1, sizeof(*w));
    const struct gpu_calls *cuda = n->gpu.cuda;
    int code;

    if (!w) {
        err_set(e, "no memory");
        return CRUN_NO_MEMORY;
    }
    code = cuda->event_create_untimed(&w->ready);
    if (code == GPU_OK)
        code = cuda->event_create_untimed(&w->done);
    if (code != GPU_OK && !leaves) {
        nccl_work_free(n, w);
        return gpu_calls_failed(n->gpu.cuda, n->gpu.device, "cudaEventCreate", code, e);
    }
    *work = w;
    return CRUN_OK;
}

/* Events with a time cost the GPU more, so works have them only if a caller has asked
 * for times. A work without them is not measured. */
static void measure_nccl_work(struct nccl *n, struct nccl_work *w)
{
    const struct gpu_calls *cuda = n->gpu.cuda;
    struct gpu_event *timed = NULL;

    if (w->begun || !atomic_load_explicit(&n->backend.measured, memory_order_relaxed) ||
        cuda->event_create(&timed) != GPU_OK)
        return;
    if (!nccl_line_forget(n->line, w->done)) {
        cuda->event_destroy(timed);
        return;
    }
    cuda->event_destroy(w->done);
    w->done = timed;
    if (cuda->event_create(&w->begun) != GPU_OK)
        w->begun = NULL;
}

crun_status nccl_work_new(struct nccl *n, enum nccl_task task, uint64_t timeout_ms,
                          struct nccl_work **work, struct err *e)
{
    crun_status s = CRUN_OK;
    struct nccl_work *w;

    pthread_mutex_lock(&n->lock);
    w = n->spare;
    if (w)
        n->spare = w->next;
    pthread_mutex_unlock(&n->lock);
    if (!w) {
        s = make_nccl_work(n, task == TASK_FREE || task == TASK_CLOSE, &w, e);
        if (s != CRUN_OK)
            return s;
        pthread_mutex_lock(&n->lock);
        w->next_of_all = n->all;
        n->all = w;
        pthread_mutex_unlock(&n->lock);
    }
    if (task == TASK_OPERATION)
        measure_nccl_work(n, w);
    w->task = task;
    w->timeout_ms = timeout_ms;
    w->host = task != TASK_OPERATION;
    w->finished = false;
    w->memory = NULL;
    op_group_drop(w->op.group);
    w->op = (struct op){ .kind = OP_BARRIER };
    atomic_store(&w->running_ms, 0);
    atomic_store(&w->is_behind, false);
    *work = w;
    return CRUN_OK;
}

/* Every rank makes these calls, in the same order. */
static bool is_numbered(const struct nccl_work *w)
{
    if (w->task == TASK_OPERATION)
        return w->op.kind != OP_SEND && w->op.kind != OP_RECEIVE;
    return w->task == TASK_ALLOC || w->task == TASK_SPLIT;
}

void nccl_work_queue(struct nccl *n, struct nccl_work *w)
{
    pthread_mutex_lock(&n->lock);
    if (w->task == TASK_OPERATION) {
        w->op.sequence = op_counter_next(&n->counter, &w->op);
        n->unfinished++;
        nccl_turn_take(n->line, &w->turn);
    }
    w->number = is_numbered(w) ? ++n->numbered : 0;
    w->stage = STAGE_QUEUED;
    w->next = NULL;
    if (n->last)
        n->last->next = w;
    else
        n->first = w;
    n->last = w;
    pthread_cond_signal(&n->queue_changed);
    pthread_mutex_unlock(&n->lock);
}

/* The reason of the end, and whether this process can still be cleaned up. */
static crun_status end_error(const struct nccl *n, struct err *e)
{
    crun_status s = abort_error(n->team.aborted, e);

    if (n->stuck) {
        err_set(e, "%s; " NCCL_STUCK, n->team.aborted->reason);
        err_set_code(e, ERROR_ABORTED, 0);
    }
    return s == CRUN_OK ? CRUN_ABORTED : s;
}

/* Under the lock. Freeing and closing continue after the end. */
static bool work_goes_on(const struct nccl *n, const struct nccl_work *w)
{
    if (n->stuck)
        return false;
    return !n->ended || w->task == TASK_CLOSE || w->task == TASK_FREE;
}

/* Under the lock. After the end the watch no longer checks the time, so freeing and
 * closing check it here. */
static void wait_nccl_change(struct nccl *n, const struct nccl_work *w,
                             uint64_t since_ms)
{
    uint64_t until_ms = since_ms + w->timeout_ms + 3 * nccl_leave_ms(n);

    if (w->task == TASK_OPERATION) {
        pthread_cond_wait(&n->changed, &n->lock);
    } else if (!thread_wait_until(&n->changed, &n->lock, until_ms)) {
        n->stuck = true;
        stuck_set();
    }
}

crun_status nccl_work_await(struct nccl *n, struct nccl_work *w, enum nccl_stage stage,
                            struct err *e)
{
    bool frees = w->task == TASK_CLOSE || w->task == TASK_FREE;
    uint64_t since_ms = clock_ms();
    bool ended; /* before the GPU had done it */
    crun_status s;

    pthread_mutex_lock(&n->lock);
    while (work_goes_on(n, w) &&
           (w->stage < stage || (!frees && abort_get(n->team.aborted) != CRUN_OK)))
        wait_nccl_change(n, w, since_ms);
    ended = w->stage < STAGE_LAUNCHED ||
            (w->stage == STAGE_LAUNCHED && abort_get(n->team.aborted) != CRUN_OK);
    s = ended ? CRUN_ABORTED : w->status;
    if (s == CRUN_BAD_ARGUMENT || (s == CRUN_NO_MEMORY && w->task == TASK_ALLOC))
        *e = w->e;
    else if (s != CRUN_OK)
        s = end_error(n, e);
    pthread_mutex_unlock(&n->lock);
    return s;
}

void nccl_work_put_back_unused(struct nccl *n, struct nccl_work *w)
{
    pthread_mutex_lock(&n->lock);
    w->stage = STAGE_OVER;
    w->next = n->spare;
    n->spare = w;
    pthread_mutex_unlock(&n->lock);
}

void nccl_work_put_back(struct nccl *n, struct nccl_work *w)
{
    pthread_mutex_lock(&n->lock);
    w->finished = true;
    if (w->task == TASK_OPERATION)
        n->unfinished--;
    if (w->stage == STAGE_OVER) {
        w->next = n->spare;
        n->spare = w;
    }
    pthread_mutex_unlock(&n->lock);
}

crun_status nccl_work_check_open(struct nccl *n, struct err *e)
{
    return abort_get(n->team.aborted) ? abort_error(n->team.aborted, e) : CRUN_OK;
}

/* Work in the program's stream may still use the memory. If that stream is captured,
 * the work is not queued but kept. */
static void note_program_stream(struct nccl *n, struct nccl_work *w)
{
    bool capturing = false;

    n->gpu.cuda->set_device(n->gpu.device);
    (void)n->gpu.cuda->stream_capturing(n->backend.stream, &capturing);
    w->is_unknown = !capturing && w->ready &&
                    n->gpu.cuda->event_record(w->ready, n->backend.stream) != GPU_OK;
}

crun_status nccl_work_perform(struct nccl *n, enum nccl_task task, uint64_t timeout_ms,
                              size_t bytes, void **memory, struct err *e)
{
    struct nccl_work *w = NULL;
    crun_status s = nccl_work_new(n, task, timeout_ms, &w, e);

    if (s != CRUN_OK)
        return s;
    w->bytes = bytes;
    w->memory = memory ? *memory : NULL;
    w->op.deadline_ms = clock_ms() + timeout_ms;
    w->op.timeout_ms = timeout_ms;
    if (task == TASK_FREE || task == TASK_CLOSE)
        note_program_stream(n, w);
    nccl_work_queue(n, w);
    s = nccl_work_await(n, w, STAGE_OVER, e);
    if (memory && s == CRUN_OK)
        *memory = w->memory;
    nccl_work_put_back(n, w);
    return s;
}
