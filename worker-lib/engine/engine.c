/* SPDX-License-Identifier: MIT */
#include "worker-lib/engine/engine.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/thread.h"
#include "worker-lib/core/status.h"

#define SLICE_NS 100000

/*
 * `running` is the right to use the backend. Whoever has it runs one operation without
 * the lock; the sequence numbers are given out by the one that runs, so their order is
 * that of the operations. A work is owned by its caller from submit to wait, and is
 * kept in `all`, so that those nobody waited for can be freed at the end.
 */
struct crun_work {
    struct engine *engine;
    struct op op;
    crun_status status;
    _Atomic bool done;
    bool posted; /* the backend has begun it */
    uint64_t flight;
    crun_work *next; /* in the queue, or of the spare ones */
    crun_work *next_of_all;
    struct backend_work *beside; /* where the backend runs it, until it is finished */
    struct err e;
};

struct engine {
    struct engine_config config;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* something was queued, is done, or `running` is free */
    pthread_t thread;
    bool started, stopping, running;
    unsigned waiting;         /* threads in pthread_cond_wait */
    _Atomic unsigned results; /* that threads wait for */
    crun_work *first, *last;
    crun_work *spare, *all;
    _Atomic bool told;
    _Atomic bool worded; /* words are there, and stay */
    struct err words;
    unsigned unfinished; /* works that the backend runs */
    uint64_t beside_us;  /* that queued operations took */
    uint64_t collectives;
    uint64_t *pairs; /* operations with each rank: sent at 2 * rank, received beside */
};

static const struct backend_calls *calls_of(const struct engine *g)
{
    return g->config.backend->calls;
}

/* -- failures -----------------------------------------------------------------------
 */

/* What the abort word says is told to the other ranks. */
static void tell(struct engine *g, bool quiet)
{
    g->config.backend->calls->abort(g->config.backend);
    if (!quiet && !atomic_exchange(&g->told, true))
        g->config.failed(g->config.arg);
}

void engine_abort(struct engine *g, crun_status s, const char *reason, bool quiet)
{
    abort_set(g->config.aborted, s, reason);
    tell(g, quiet);
}

/* True: the error is what this world ends by. */
static bool abort_by_error(struct engine *g, crun_status s, const struct err *e)
{
    bool first = abort_set_error(g->config.aborted, s, e);

    tell(g, false);
    return first || e->code == ERROR_ABORTED;
}

/* The status and the words of what ended this world. */
static crun_status ended(struct engine *g, struct err *e)
{
    crun_status s = abort_error(g->config.aborted, e);

    if (atomic_load(&g->worded))
        *e = g->words;
    if (!atomic_exchange(&g->told, true)) /* it was a signal handler */
        g->config.failed(g->config.arg);
    return s;
}

/* The backend may know more of the end than why: for whom it waited then. That is what
 * all later calls say, too. */
static void keep_words(struct engine *g, const struct err *e)
{
    if (atomic_load(&g->worded))
        return;
    g->words = *e;
    atomic_store(&g->worded, true);
}

/* The caller's mistake changes nothing; all else is the end of this world. With
 * `running`. */
static crun_status settle(struct engine *g, crun_status s, struct err *e)
{
    bool is_reason;

    if (s == CRUN_OK || s == CRUN_BAD_ARGUMENT)
        return s;
    is_reason = abort_by_error(g, s, e);
    if (abort_get(g->config.aborted) == CRUN_OK)
        return s;
    if (is_reason)
        keep_words(g, e);
    return ended(g, e);
}

/* -- running ------------------------------------------------------------------------
 */

static void number_op(struct engine *g, struct op *op, uint64_t now_ms)
{
    if (op->kind == OP_SEND)
        op->sequence = ++g->pairs[2 * op->peer];
    else if (op->kind == OP_RECEIVE)
        op->sequence = ++g->pairs[2 * op->peer + 1];
    else
        op->sequence = ++g->collectives;
    op->timeout_ms = g->config.timeout_ms;
    op->deadline_ms = now_ms + op->timeout_ms;
}

/* What was posted; its time begins anew, with the wait for it. */
static crun_status complete(struct engine *g, crun_work *w)
{
    crun_status s;

    if (abort_get(g->config.aborted))
        return ended(g, &w->e);
    w->op.deadline_ms = clock_ms() + w->op.timeout_ms;
    s = calls_of(g)->complete(g->config.backend, &w->op, &w->e);
    flight_recorder_end(g->config.flight, w->flight, s, clock_us());
    return settle(g, s, &w->e);
}

/* With `running`, without the lock. */
static crun_status run(struct engine *g, struct op *op, struct err *e)
{
    uint64_t now = clock_us(), entry;
    crun_status s;

    if (abort_get(g->config.aborted))
        return ended(g, e);
    number_op(g, op, now / 1000);
    entry = flight_recorder_begin(g->config.flight, op, now);
    s = calls_of(g)->run(g->config.backend, op, e);
    flight_recorder_end(g->config.flight, entry, s, clock_us());
    return settle(g, s, e);
}

static void wait_change(struct engine *g)
{
    g->waiting++;
    pthread_cond_wait(&g->changed, &g->lock);
    g->waiting--;
}

static void changed(struct engine *g)
{
    if (g->waiting > 0)
        pthread_cond_broadcast(&g->changed);
}

/* Under the lock, given up while it runs. */
static void run_first(struct engine *g)
{
    crun_work *w = g->first;
    uint64_t began_us = clock_us();

    g->first = w->next;
    if (!g->first)
        g->last = NULL;
    g->running = true;
    pthread_mutex_unlock(&g->lock);
    w->status = w->posted ? complete(g, w) : run(g, &w->op, &w->e);
    pthread_mutex_lock(&g->lock);
    g->beside_us += clock_us() - began_us;
    g->running = false;
    atomic_store_explicit(&w->done, true, memory_order_release);
    changed(g);
}

/* Linux' struct sched_attr, in the first of its sizes. */
struct slice {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

/*
 * This thread has little to do, and other ranks wait for it: where threads that compute
 * have all cores, it is to get one as soon as it wants one. An ordinary thread asks for
 * short slices (Linux 6.12; older ones take no notice), one with real-time priority for
 * the next higher one. What cannot be had is not needed.
 */
static void come_first(void)
{
    struct slice s = { .size = sizeof(s) };

    if (syscall(SYS_sched_getattr, 0, &s, sizeof(s), 0) < 0)
        return;
    if (s.policy == SCHED_OTHER || s.policy == SCHED_BATCH)
        s.runtime_ns = SLICE_NS;
    else if (s.policy == SCHED_RR || s.policy == SCHED_FIFO)
        s.priority++;
    syscall(SYS_sched_setattr, 0, &s, 0);
}

static void *communicate(void *arg)
{
    struct engine *g = arg;

    come_first();
    pthread_mutex_lock(&g->lock);
    while (!g->stopping || g->first)
        if (g->first && !g->running) {
            g->first->op.waiting = &g->results;
            run_first(g);
        } else {
            wait_change(g);
        }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

static bool start_thread(struct engine *g)
{
    if (!g->started)
        g->started = thread_start(&g->thread, communicate, g) == 0;
    return g->started;
}

/* -- submitting ---------------------------------------------------------------------
 */

static void take_turn(struct engine *g)
{
    g->results++;
    pthread_mutex_lock(&g->lock);
    while (g->first || g->running)
        if (!g->running)
            run_first(g);
        else
            wait_change(g);
    g->running = true;
    pthread_mutex_unlock(&g->lock);
}

static void end_turn(struct engine *g)
{
    pthread_mutex_lock(&g->lock);
    g->running = false;
    changed(g);
    pthread_mutex_unlock(&g->lock);
    g->results--;
}

static crun_work *new_work(struct engine *g)
{
    crun_work *w = g->spare;

    if (w) {
        g->spare = w->next;
        return w;
    }
    w = calloc(1, sizeof(*w));
    if (w) {
        w->engine = g;
        w->next_of_all = g->all;
        g->all = w;
    }
    return w;
}

/* Nothing is before it: it can be begun here. Nobody else needs to know of it. */
static bool post(struct engine *g, crun_work *w)
{
    uint64_t now = clock_us();

    if (g->first || g->running || !calls_of(g)->post ||
        !calls_of(g)->post(g->config.backend, &w->op))
        return false;
    number_op(g, &w->op, now / 1000);
    w->flight = flight_recorder_begin(g->config.flight, &w->op, now);
    return true;
}

static void append(struct engine *g, crun_work *w)
{
    if (g->last)
        g->last->next = w;
    else
        g->first = w;
    g->last = w;
}

static bool is_for_who_waits(const struct engine *g, const struct op *op)
{
    bool (*gains)(const struct backend *b) = calls_of(g)->gains_beside;

    return op->start == OP_WHEN_WAITED ||
           (op->start == OP_IF_IT_GAINS && gains && !gains(g->config.backend));
}

static crun_status enqueue(struct engine *g, const struct op *op, crun_work **work)
{
    bool waits = false;
    crun_work *w;

    pthread_mutex_lock(&g->lock);
    w = new_work(g);
    if (w) {
        w->op = *op;
        w->next = NULL;
        atomic_store_explicit(&w->done, false, memory_order_relaxed);
        w->posted = post(g, w);
        waits = w->posted || is_for_who_waits(g, op);
    }
    if (w && (waits || start_thread(g))) {
        append(g, w);
        if (!waits)
            changed(g);
    } else if (w) {
        w->next = g->spare;
        g->spare = w;
        w = NULL;
    }
    pthread_mutex_unlock(&g->lock);
    *work = w;
    return w ? CRUN_OK
             : fail(CRUN_NO_MEMORY, "no memory or thread for %s", op_name(op->kind));
}

/* -- beside the host ----------------------------------------------------------------
 * Where the backend has a device and a thread of its own, operations are only started
 * here: nothing is queued, and nobody takes turns.
 */

/* The backend's words are kept: they may say more than why it all ended. */
static crun_status settle_beside(struct engine *g, crun_status s, const struct err *e)
{
    if (s != CRUN_OK && s != CRUN_BAD_ARGUMENT)
        abort_by_error(g, s, e);
    return s == CRUN_OK ? s : fail_with(s, e);
}

static crun_status finish_beside(struct engine *g, struct backend_work *beside)
{
    struct err e;
    crun_status s = calls_of(g)->finish(g->config.backend, beside, &e);

    return settle_beside(g, s, &e);
}

static crun_status start_beside(struct engine *g, struct op *op, crun_work **work)
{
    struct backend_work *beside = NULL;
    crun_work *w = NULL;
    struct err e;
    crun_status s = CRUN_NO_MEMORY;

    pthread_mutex_lock(&g->lock);
    if (work)
        w = new_work(g);
    if (w || !work) {
        number_op(g, op, clock_ms());
        s = calls_of(g)->start(g->config.backend, op, &beside, &e);
    } else
        err_set(&e, "no memory for %s", op_name(op->kind));
    if (w && s == CRUN_OK) {
        w->beside = beside;
        g->unfinished++;
    } else if (w) {
        w->next = g->spare;
        g->spare = w;
        w = NULL;
    }
    pthread_mutex_unlock(&g->lock);
    if (work)
        *work = w;
    if (s == CRUN_OK && !work)
        return finish_beside(g, beside);
    return settle_beside(g, s, &e);
}

static crun_status wait_beside(crun_work *w)
{
    struct engine *g = w->engine;
    crun_status s = finish_beside(g, w->beside);

    pthread_mutex_lock(&g->lock);
    w->beside = NULL;
    w->next = g->spare;
    g->spare = w;
    g->unfinished--;
    pthread_mutex_unlock(&g->lock);
    return s;
}

static crun_status mark(struct engine *g, struct op *op, struct err *e)
{
    struct backend *b = g->config.backend;

    return b->calls->mark ? b->calls->mark(b, op, e) : CRUN_OK;
}

crun_status engine_submit(struct engine *g, struct op *op, crun_work **work)
{
    struct err e;
    crun_status s;

    if (abort_get(g->config.aborted)) {
        if (work)
            *work = NULL;
        s = ended(g, &e);
        return fail_with(s, &e);
    }
    if (calls_of(g)->start)
        return start_beside(g, op, work);
    s = mark(g, op, &e);
    if (s != CRUN_OK)
        return settle_beside(g, s, &e);
    if (work)
        return enqueue(g, op, work);
    take_turn(g);
    s = run(g, op, &e);
    end_turn(g);
    return s == CRUN_OK ? s : fail_with(s, &e);
}

crun_status engine_wait(crun_work *w)
{
    struct engine *g = w->engine;
    crun_status s;

    if (w->beside)
        return wait_beside(w);
    g->results++;
    pthread_mutex_lock(&g->lock);
    while (!atomic_load_explicit(&w->done, memory_order_relaxed))
        if (g->first && !g->running)
            run_first(g);
        else
            wait_change(g);
    s = w->status;
    if (s != CRUN_OK)
        fail_with(s, &w->e);
    w->next = g->spare;
    g->spare = w;
    pthread_mutex_unlock(&g->lock);
    g->results--;
    return s;
}

/* Who asks again and again, and never waits, is to hear of the end all the same. */
static void hand_over(struct engine *g)
{
    pthread_mutex_lock(&g->lock);
    if (g->first && !g->running && start_thread(g))
        changed(g);
    pthread_mutex_unlock(&g->lock);
}

bool engine_is_done(const crun_work *w)
{
    if (w->beside)
        return calls_of(w->engine)->is_done(w->engine->config.backend, w->beside);
    if (atomic_load_explicit(&w->done, memory_order_acquire))
        return true;
    hand_over(w->engine);
    return false;
}

uint64_t engine_beside_us(struct engine *g)
{
    uint64_t us;

    if (calls_of(g)->busy_us)
        return calls_of(g)->busy_us(g->config.backend);
    pthread_mutex_lock(&g->lock);
    us = g->beside_us;
    pthread_mutex_unlock(&g->lock);
    return us;
}

crun_status engine_alloc(struct engine *g, size_t bytes, void **memory)
{
    struct backend *b = g->config.backend;
    struct err e;
    crun_status s;

    take_turn(g);
    if (abort_get(g->config.aborted))
        s = ended(g, &e);
    else
        s = b->calls->alloc(b, bytes, clock_ms() + g->config.timeout_ms, memory, &e);
    if (s != CRUN_NO_MEMORY)
        s = settle(g, s, &e);
    end_turn(g);
    return s == CRUN_OK ? s : fail_with(s, &e);
}

/* -- life ---------------------------------------------------------------------------
 */

struct engine *engine_create(const struct engine_config *config)
{
    struct engine *g = calloc(1, sizeof(*g));

    if (!g)
        return NULL;
    g->config = *config;
    g->pairs = calloc(2 * (size_t)config->size, sizeof(*g->pairs));
    if (!g->pairs) {
        free(g);
        return NULL;
    }
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    return g;
}

/* The others need no more of us for it. */
static void forget_posted(struct engine *g)
{
    if (!g->first || !g->first->posted || g->running)
        return;
    g->first = g->first->next;
    if (!g->first)
        g->last = NULL;
}

void engine_destroy(struct engine *g)
{
    crun_work *next;

    if (!g)
        return;
    pthread_mutex_lock(&g->lock);
    forget_posted(g);
    if (g->first || g->running || g->unfinished > 0)
        engine_abort(g, CRUN_ABORTED, "crun_finalize with work under way", true);
    g->stopping = true;
    changed(g);
    pthread_mutex_unlock(&g->lock);
    if (g->started)
        pthread_join(g->thread, NULL);
    for (crun_work *w = g->all; w; w = next) {
        next = w->next_of_all;
        free(w);
    }
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g->pairs);
    free(g);
}
