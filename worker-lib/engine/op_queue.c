/* SPDX-License-Identifier: MIT */
#include "worker-lib/engine/op_queue.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/thread.h"
#include "worker-lib/engine/flight_recorder.h"
#include "worker-lib/engine/world_failure.h"

#define SLICE_NS 100000

/*
 * `running` is the right to use the inner backend. The thread that has it runs one
 * operation without the lock, and assigns the sequence numbers, so that they are in the
 * order of the operations. A work belongs to the program from start to finish, and
 * stays in `all`, so that works without a wait are freed at the end.
 */
struct queued_op {
    crun_work base;
    struct op op;
    crun_status status;
    _Atomic bool done;
    uint64_t entry;         /* of the flight recorder, if posted */
    struct queued_op *next; /* in the queue, or of the spare ones */
    struct queued_op *next_of_all;
    struct err e;
};

struct op_queue {
    struct backend base;
    struct backend *inner;
    struct op_queue_config config;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* something was queued, is done, or `running` is free */
    pthread_t thread;
    bool started, stopping, running;
    unsigned waiting;         /* threads in pthread_cond_wait */
    _Atomic unsigned results; /* that threads wait for */
    struct queued_op *first, *last;
    struct queued_op *spare, *all;
    struct op_counter counter;
};

static struct op_queue *queue_of(struct backend *b)
{
    return (struct op_queue *)(void *)b;
}

static struct queued_op *queued_of(crun_work *work)
{
    return (struct queued_op *)(void *)work;
}

/* -- running ----------------------------------------------------------------------- */

static void number_op(struct op_queue *q, struct op *op, uint64_t now_ms)
{
    op->sequence = op_counter_next(&q->counter, op);
    op->timeout_ms = q->config.timeout_ms;
    op->deadline_ms = now_ms + op->timeout_ms;
}

/* The collectives of a group run one after another, then all its messages together. */
static crun_status run_group(struct op_queue *q, const struct op *op, struct err *e)
{
    struct op_group messages = { 0 };
    struct op rest = *op;
    crun_status s = CRUN_OK;
    unsigned i = 0;

    op_group_sort(op->group);
    for (; i < op_members(op) && !op_is_message(op_member_at(op, i)); i++) {
        struct op member = op_member(op, i);

        member.mark = rest.mark;
        rest.mark = NULL;
        s = q->inner->calls->run(q->inner, &member, e);
        if (s != CRUN_OK)
            return s;
    }
    messages.count = op->group->count - i;
    messages.member = op->group->member + i;
    rest.group = &messages;
    if (messages.count > 0 || i == 0)
        s = q->inner->calls->run(q->inner, &rest, e);
    return s;
}

static crun_status run_inner(struct op_queue *q, const struct op *op, struct err *e)
{
    return op->kind == OP_GROUP && !op->posted ? run_group(q, op, e)
                                               : q->inner->calls->run(q->inner, op, e);
}

/* With `running`, without the lock. */
static crun_status run_op(struct op_queue *q, struct op *op, struct err *e)
{
    uint64_t now = clock_us(), entry;
    crun_status s;

    if (abort_get(q->config.failure->aborted))
        return world_failure_error(q->config.failure, e);
    number_op(q, op, now / 1000);
    entry = flight_recorder_begin(q->config.flight, op, now);
    s = run_inner(q, op, e);
    flight_recorder_end(q->config.flight, entry, s, clock_us());
    return s == CRUN_OK ? s : world_failure_settle(q->config.failure, s, e);
}

/* An operation that was posted; its time limit starts again with the wait for it. */
static crun_status complete_op(struct op_queue *q, struct queued_op *w)
{
    crun_status s;

    if (abort_get(q->config.failure->aborted))
        return world_failure_error(q->config.failure, &w->e);
    w->op.deadline_ms = clock_ms() + w->op.timeout_ms;
    s = run_inner(q, &w->op, &w->e);
    flight_recorder_end(q->config.flight, w->entry, s, clock_us());
    return s == CRUN_OK ? s : world_failure_settle(q->config.failure, s, &w->e);
}

static void wait_queue_change(struct op_queue *q)
{
    q->waiting++;
    pthread_cond_wait(&q->changed, &q->lock);
    q->waiting--;
}

static void signal_change(struct op_queue *q)
{
    if (q->waiting > 0)
        pthread_cond_broadcast(&q->changed);
}

/* Under the lock, which is released while it runs. */
static void run_first(struct op_queue *q)
{
    struct queued_op *w = q->first;
    uint64_t began_us = clock_us();

    q->first = w->next;
    if (!q->first)
        q->last = NULL;
    q->running = true;
    pthread_mutex_unlock(&q->lock);
    w->status = w->op.posted ? complete_op(q, w) : run_op(q, &w->op, &w->e);
    pthread_mutex_lock(&q->lock);
    atomic_fetch_add_explicit(&q->base.busy_us, clock_us() - began_us,
                              memory_order_relaxed);
    q->running = false;
    atomic_store_explicit(&w->done, true, memory_order_release);
    signal_change(q);
}

/* -- the thread -------------------------------------------------------------------- */

/* Linux' struct sched_attr, in the first of its sizes. */
struct sched_slice {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

/*
 * This thread has little to do, and other ranks wait for it: if computing threads use
 * all cores, it must get one as soon as it is ready to run. An ordinary thread requests
 * short slices (Linux 6.12; older kernels ignore it), a thread with real-time priority
 * the next higher priority. Failure is ignored.
 */
static void prefer_this_thread(void)
{
    struct sched_slice s = { .size = sizeof(s) };

    if (syscall(SYS_sched_getattr, 0, &s, sizeof(s), 0) < 0)
        return;
    if (s.policy == SCHED_OTHER || s.policy == SCHED_BATCH)
        s.runtime_ns = SLICE_NS;
    else if (s.policy == SCHED_RR || s.policy == SCHED_FIFO)
        s.priority++;
    syscall(SYS_sched_setattr, 0, &s, 0);
}

static void *run_queue(void *arg)
{
    struct op_queue *q = arg;

    prefer_this_thread();
    pthread_mutex_lock(&q->lock);
    while (!q->stopping || q->first)
        if (q->first && !q->running) {
            q->first->op.waiting = &q->results;
            run_first(q);
        } else {
            wait_queue_change(q);
        }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static bool start_thread(struct op_queue *q)
{
    if (!q->started)
        q->started = thread_start(&q->thread, run_queue, q) == 0;
    return q->started;
}

/* -- in the caller's thread -------------------------------------------------------- */

static void take_turn(struct op_queue *q)
{
    q->results++;
    pthread_mutex_lock(&q->lock);
    while (q->first || q->running)
        if (!q->running)
            run_first(q);
        else
            wait_queue_change(q);
    q->running = true;
    pthread_mutex_unlock(&q->lock);
}

static void end_turn(struct op_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->running = false;
    signal_change(q);
    pthread_mutex_unlock(&q->lock);
    q->results--;
}

static crun_status mark_op(struct op_queue *q, struct op *op, struct err *e)
{
    crun_status s = q->inner->calls->mark ? q->inner->calls->mark(q->inner, op, e)
                                          : CRUN_OK;

    return s == CRUN_OK ? s : world_failure_settle(q->config.failure, s, e);
}

static crun_status queue_run(struct backend *b, const struct op *called, struct err *e)
{
    struct op_queue *q = queue_of(b);
    struct op op = *called;
    crun_status s = mark_op(q, &op, e);

    if (s != CRUN_OK)
        return s;
    take_turn(q);
    s = run_op(q, &op, e);
    end_turn(q);
    return s;
}

static crun_status queue_alloc(struct backend *b, size_t bytes, uint64_t deadline_ms,
                               void **memory, struct err *e)
{
    struct op_queue *q = queue_of(b);
    struct world_failure *failure = q->config.failure;
    crun_status s;

    take_turn(q);
    if (abort_get(failure->aborted))
        s = world_failure_error(failure, e);
    else
        s = q->inner->calls->alloc(q->inner, bytes, deadline_ms, memory, e);
    if (s != CRUN_NO_MEMORY)
        s = world_failure_settle(failure, s, e);
    end_turn(q);
    return s;
}

static bool queue_free(struct backend *b, void *memory)
{
    struct backend *inner = queue_of(b)->inner;

    return inner->calls->free(inner, memory);
}

static void queue_abort(struct backend *b)
{
    struct backend *inner = queue_of(b)->inner;

    inner->calls->abort(inner);
}

/* -- works ------------------------------------------------------------------------- */

static struct queued_op *new_queued(struct op_queue *q)
{
    struct queued_op *w = q->spare;

    if (w) {
        q->spare = w->next;
        return w;
    }
    w = calloc(1, sizeof(*w));
    if (w) {
        w->next_of_all = q->all;
        q->all = w;
    }
    return w;
}

static void free_queued(struct op_queue *q, struct queued_op *w)
{
    op_group_drop(w->op.group);
    w->op.group = NULL;
    w->next = q->spare;
    q->spare = w;
}

/* If the queue is empty, the operation can begin here. */
static bool post_op(struct op_queue *q, struct queued_op *w)
{
    const struct backend_calls *inner = q->inner->calls;
    uint64_t now = clock_us();

    if (q->first || q->running || !inner->post || !inner->post(q->inner, &w->op))
        return false;
    number_op(q, &w->op, now / 1000);
    w->entry = flight_recorder_begin(q->config.flight, &w->op, now);
    return true;
}

static bool runs_when_waited(const struct op_queue *q, const struct op *op)
{
    return op->start == OP_WHEN_WAITED ||
           (op->start == OP_IF_OVERLAP_PAYS && q->inner->cores_are_scarce);
}

static crun_status queue_start(struct backend *b, const struct op *op, crun_work **work,
                               struct err *e)
{
    struct op_queue *q = queue_of(b);
    struct op marked = *op;
    crun_status s = mark_op(q, &marked, e);
    bool waits = false;
    struct queued_op *w;

    if (s != CRUN_OK)
        return s;
    pthread_mutex_lock(&q->lock);
    w = new_queued(q);
    if (w) {
        w->op = marked;
        op_group_use(w->op.group);
        w->next = NULL;
        atomic_store_explicit(&w->done, false, memory_order_relaxed);
        w->op.posted = post_op(q, w);
        waits = w->op.posted || runs_when_waited(q, op);
    }
    if (w && (waits || start_thread(q))) {
        if (q->last)
            q->last->next = w;
        else
            q->first = w;
        q->last = w;
        if (!waits)
            signal_change(q);
    } else {
        if (w)
            free_queued(q, w);
        err_set(e, "no memory or thread for %s", op_name(op->kind));
        s = CRUN_NO_MEMORY;
    }
    pthread_mutex_unlock(&q->lock);
    if (s == CRUN_OK)
        *work = &w->base;
    return s;
}

static crun_status queue_finish(struct backend *b, crun_work *work, struct err *e)
{
    struct op_queue *q = queue_of(b);
    struct queued_op *w = queued_of(work);
    crun_status s;

    q->results++;
    pthread_mutex_lock(&q->lock);
    while (!atomic_load_explicit(&w->done, memory_order_relaxed))
        if (q->first && !q->running)
            run_first(q);
        else
            wait_queue_change(q);
    s = w->status;
    if (s != CRUN_OK)
        *e = w->e;
    free_queued(q, w);
    pthread_mutex_unlock(&q->lock);
    q->results--;
    return s;
}

/* A program that polls and never waits must see the end of the work as well. */
static void give_to_thread(struct op_queue *q)
{
    pthread_mutex_lock(&q->lock);
    if (q->first && !q->running && start_thread(q))
        signal_change(q);
    pthread_mutex_unlock(&q->lock);
}

static bool queue_is_done(struct backend *b, crun_work *work)
{
    if (atomic_load_explicit(&queued_of(work)->done, memory_order_acquire))
        return true;
    give_to_thread(queue_of(b));
    return false;
}

/* -- life -------------------------------------------------------------------------- */

/* The other ranks need nothing more from this one for a posted operation. */
static void drop_posted(struct op_queue *q)
{
    if (!q->first || !q->first->op.posted || q->running)
        return;
    q->first = q->first->next;
    if (!q->first)
        q->last = NULL;
}

static void queue_close(struct backend *b)
{
    struct op_queue *q = queue_of(b);
    struct queued_op *next;

    pthread_mutex_lock(&q->lock);
    drop_posted(q);
    if (q->first || q->running)
        world_failure_abort(q->config.failure, CRUN_ABORTED,
                            "crun_finalize with work under way", true);
    q->stopping = true;
    signal_change(q);
    pthread_mutex_unlock(&q->lock);
    if (q->started)
        pthread_join(q->thread, NULL);
    for (struct queued_op *w = q->all; w; w = next) {
        next = w->next_of_all;
        op_group_drop(w->op.group);
        free(w);
    }
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    op_counter_fini(&q->counter);
    free(q);
}

struct backend *op_queue_open(const struct op_queue_config *config)
{
    static const struct backend_calls calls = {
        .name = "queue",
        .run = queue_run,
        .abort = queue_abort,
        .alloc = queue_alloc,
        .free = queue_free,
        .close = queue_close,
        .start = queue_start,
        .finish = queue_finish,
        .is_done = queue_is_done,
    };
    struct op_queue *q = calloc(1, sizeof(*q));

    if (!q || !op_counter_init(&q->counter, config->size)) {
        free(q);
        return NULL;
    }
    q->base.calls = &calls;
    q->inner = config->backend;
    q->config = *config;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    return &q->base;
}
