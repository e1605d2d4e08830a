/* SPDX-License-Identifier: MIT */
/*
 * The communication thread, the only one that calls NCCL. Its communicator does not
 * block: a call returns, and its progress is polled, so that the thread can abandon it
 * at the end. With CRUN_NCCL_BLOCKING calls return when they are done, or when the
 * watch has the communicator aborted.
 */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous/base/clock.h"
#include "worker-lib/backends/nccl/backend_nccl.h"
#include "worker-lib/engine/flight_recorder.h"

#define LOOK_MS 100 /* how often to ask for NCCL's asynchronous errors */
#define WARM_UP_BYTES (4 << 20)
#define TURNS_BUSY 200
#define PAUSE_US_MIN 20
#define PAUSE_US_MAX 500
#define ID_PAUSE_MS 20
#define STORE_MS 5000

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

static crun_status fail_ended(struct nccl *n, struct err *e)
{
    crun_status s = abort_error(abort_word_of(n), e);

    return s == CRUN_OK ? CRUN_ABORTED : s;
}

static bool is_ending(struct nccl *n)
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
        return fail_ended(n, e);
    code = nccl_leave(n, n->gpu.nccl->async_error(atomic_load(&n->comm), result));
    if (code != NCCL_OK)
        return fail_nccl(n, "ncclCommGetAsyncError", code, e);
    if (*result != NCCL_OK && *result != NCCL_IN_PROGRESS)
        return fail_nccl(n, "NCCL", *result, e);
    return CRUN_OK;
}

static void sleep_briefly(unsigned *turn)
{
    unsigned long us = PAUSE_US_MIN;

    if ((*turn)++ < TURNS_BUSY) {
        sched_yield();
        return;
    }
    us <<= (*turn - TURNS_BUSY) / 100 < 5 ? (*turn - TURNS_BUSY) / 100 : 5;
    usleep((useconds_t)(us < PAUSE_US_MAX ? us : PAUSE_US_MAX));
}

crun_status nccl_pause(struct nccl *n, unsigned *turn, struct err *e)
{
    crun_status s;
    int result;

    if (is_ending(n))
        return fail_ended(n, e);
    sleep_briefly(turn);
    if (clock_ms() - n->looked_ms < LOOK_MS)
        return CRUN_OK;
    s = nccl_retire(n, e);
    return s == CRUN_OK ? check_async_error(n, &result, e) : s;
}

/* An error of the GPU shows in every event, also in those of earlier work. */
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
    if (is_ending(n))
        return fail_ended(n, e);
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
    if (is_ending(n))
        return fail_ended(n, e);
    return result == NCCL_OK || result == NCCL_IN_PROGRESS
               ? CRUN_OK
               : fail_nccl(n, call, result, e);
}

/* -- meeting ----------------------------------------------------------------------- */

struct id_note {
    uint32_t status;
    int32_t version; /* NCCL's, of rank 0 */
    char host[64];
    struct nccl_id id;
    char why_not[200];
};

/* Rank 0 makes the id. If it cannot, it informs the others, which would wait for it. */
static crun_status tell_id(struct nccl *n, const char *key, struct id_note *note,
                           uint64_t deadline_ms, struct err *e)
{
    crun_status told, s;

    s = NCCL_CALL(n, "ncclGetUniqueId", n->gpu.nccl->get_unique_id(&note->id));
    note->status = s;
    note->version = n->gpu.version;
    nccl_gpu_host(note->host, sizeof(note->host));
    if (s != CRUN_OK)
        snprintf(note->why_not, sizeof(note->why_not), "rank %u: %.180s",
                 n->team.world_rank[0], e->text);
    if (n->team.size == 1)
        return s;
    told = store_client_set(n->team.store, key, note, sizeof(*note), deadline_ms, e);
    if (s != CRUN_OK)
        err_set(e, "%s", note->why_not);
    return s == CRUN_OK ? told : s;
}

static crun_status hear_id(struct nccl *n, const char *key, struct id_note *note,
                           struct err *e)
{
    size_t size = sizeof(*note);
    crun_status s;
    int there;

    /* the watch detects a timeout */
    while ((there = store_client_has(n->team.store, key, clock_ms() + STORE_MS)) == 0) {
        if (is_ending(n))
            return fail_ended(n, e);
        usleep(ID_PAUSE_MS * 1000);
    }
    if (there < 0 && is_ending(n))
        return fail_ended(n, e);
    if (there < 0) {
        err_set(e, "the store is gone");
        return CRUN_PEER_LOST;
    }
    s = store_client_get(n->team.store, key, note, &size, clock_ms() + STORE_MS, e);
    if (s != CRUN_OK)
        return s;
    if (note->status == CRUN_OK)
        return nccl_gpu_check_version(&n->gpu, &n->team, note->version, note->host, e);
    note->why_not[sizeof(note->why_not) - 1] = '\0';
    err_set(e, "%s", note->why_not);
    return note->status < CRUN_STATUS_COUNT ? (crun_status)note->status : CRUN_SYSTEM;
}

static crun_status init_comm(struct nccl *n, const struct nccl_id *id, struct err *e)
{
    struct nccl_config config = { .size = sizeof(config),
                                  .magic = NCCL_CONFIG_MAGIC,
                                  .version = NCCL_CONFIG_VERSION,
                                  .blocking = n->blocking,
                                  .cga_cluster_size = INT_MIN,
                                  .ctas_min = INT_MIN,
                                  .ctas_max = INT_MIN,
                                  .split_share = INT_MIN };

    /* NCCL sets the pointer before it waits for anything, and the watch needs it to
     * abort a call that blocks */
    return NCCL_CALL(n, "ncclCommInitRankConfig",
                     n->gpu.nccl->init((struct nccl_comm **)(void *)&n->comm,
                                       (int)n->team.size, *id, (int)n->team.rank,
                                       &config));
}

static crun_status open_comm(struct nccl *n, const struct nccl_work *w, struct err *e)
{
    struct id_note note = { 0 };
    char key[440];
    crun_status s = GPU_CALL(n, "cudaSetDevice",
                             n->gpu.cuda->set_device(n->gpu.device));

    if (s == CRUN_OK)
        s = GPU_CALL(n, "cudaThreadExchangeStreamCaptureMode",
                     gpu_calls_relax_thread(n->gpu.cuda));
    if (s == CRUN_OK)
        s = GPU_CALL(n, "cudaStreamCreate", n->gpu.cuda->stream_create(&n->stream));
    if (s != CRUN_OK || atomic_load(&n->comm)) /* which was split off another one */
        return s;
    snprintf(key, sizeof(key), "%snccl-id", n->team.prefix);
    s = n->team.rank == 0 ? tell_id(n, key, &note, w->op.deadline_ms, e)
                          : hear_id(n, key, &note, e);
    return s == CRUN_OK ? init_comm(n, &note.id, e) : s;
}

/* Since 2.22 NCCL connects the ranks for each of its algorithms at the first operation
 * that uses it, which takes up to a second: that of large sums is not the one of small
 * sums. Other collectives use the same algorithms. */
static crun_status warm_up_large(struct nccl *n, struct nccl_work *w, struct err *e)
{
    void *memory = NULL;
    crun_status s = nccl_stage(n, 0, WARM_UP_BYTES, &memory, e);

    if (s == CRUN_OK)
        s = GPU_CALL(n, "cudaMemsetAsync",
                     n->gpu.cuda->zero(memory, WARM_UP_BYTES, n->stream));
    if (s != CRUN_OK)
        return s;
    w->op.count = WARM_UP_BYTES / sizeof(float);
    w->op.in = w->op.out = memory;
    w->host = false;
    s = nccl_run(n, w, e);
    return s == CRUN_OK ? nccl_await(n, w->done, e) : s;
}

/* NCCL's set-up during its first operation is part of meeting, and so are its
 * failures. */
static crun_status warm_up(struct nccl *n, struct nccl_work *w, struct err *e)
{
    float x = 1;
    crun_status s;

    w->op.kind = OP_ALL_REDUCE;
    w->op.type = CRUN_F32;
    w->op.op = CRUN_SUM;
    w->op.count = 1;
    w->op.in = w->op.out = &x;
    w->host = true;
    s = nccl_run(n, w, e);
    if (s == CRUN_OK && x != (float)n->team.size) {
        err_set(e, "NCCL adds wrongly: %u ranks are %g", n->team.size, (double)x);
        return CRUN_SYSTEM;
    }
    return s == CRUN_OK && n->team.size > 1 ? warm_up_large(n, w, e) : s;
}

static crun_status open_all(struct nccl *n, struct nccl_work *w, struct err *e)
{
    crun_status s = open_comm(n, w, e);

    return s == CRUN_OK ? warm_up(n, w, e) : s;
}

/* Of one rank, so it needs no other to be destroyed. */
static void destroy_own_comm(struct nccl *n, struct nccl_work *w)
{
    if (nccl_enter_comm(n, "ncclCommDestroy"))
        (void)nccl_leave(n, n->gpu.nccl->destroy(w->child));
    w->child = NULL;
}

/*
 * The new communicators inherit the configuration. Their set-up shows in the state of
 * this one, which can abort it; NCCL writes the pointer at the end, so it is in the
 * work, which lives as long as this communicator. The color is the first rank of the
 * group, and a rank in no group makes one of its own: with NCCL_SPLIT_NOCOLOR it would
 * crash in NCCL if the split failed.
 */
static crun_status split_comm(struct nccl *n, struct nccl_work *w, struct err *e)
{
    crun_status s = nccl_idle(n, e);

    w->child = NULL;
    if (s == CRUN_OK)
        s = NCCL_CALL(n, "ncclCommSplit",
                      n->gpu.nccl->comm_split(atomic_load(&n->comm), w->color, w->key,
                                              &w->child, NULL));
    if (s == CRUN_OK && !w->child) {
        err_set(e, "ncclCommSplit: success without a communicator");
        return CRUN_SYSTEM;
    }
    if (s == CRUN_OK && w->in_no_group)
        destroy_own_comm(n, w);
    return s;
}

/* -- leaving ----------------------------------------------------------------------- */

/* Finalizes the communicator, together with the other ranks if they still run, and
 * destroys it. */
static crun_status close_comm(struct nccl *n, struct err *e)
{
    struct nccl_comm *comm = atomic_load(&n->comm);
    bool alone = atomic_load(&n->lost) > 0;
    crun_status s = CRUN_OK;

    if (!comm || is_ending(n))
        return CRUN_OK;
    if (!alone)
        s = NCCL_CALL(n, "ncclCommFinalize", n->gpu.nccl->finalize(comm));
    alone = alone || s != CRUN_OK; /* NCCL destroys no communicator that has failed */
    if (is_ending(n) ||
        !nccl_enter_comm(n, alone ? "ncclCommAbort" : "ncclCommDestroy"))
        return s;
    comm = atomic_exchange(&n->comm, NULL); /* the watch may want to abort it */
    (void)(alone ? n->gpu.nccl->abort(comm) : n->gpu.nccl->destroy(comm));
    atomic_store(&n->call, NULL);
    return s;
}

/* Memory leaves its communicator before that is closed, but not one that another rank
 * has left: NCCL might wait for it. */
static crun_status close_nccl_comm(struct nccl *n, struct nccl_work *w, struct err *e)
{
    bool alone = atomic_load(&n->lost) > 0;
    crun_status s = alone ? close_comm(n, e) : CRUN_OK;

    nccl_free_memory(n, w);
    return alone ? s : close_comm(n, e);
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
        s = is_ending(n) ? fail_ended(n, &w->e) : nccl_retire(n, &w->e);
    if (s != CRUN_OK)
        return s;
    switch (w->task) {
    case TASK_OPEN:
        return open_all(n, w, &w->e);
    case TASK_ALLOC:
        return nccl_add_area(n, w, &w->e);
    case TASK_FREE:
        nccl_remove_area(n, w);
        return CRUN_OK;
    case TASK_SPLIT:
        return split_comm(n, w, &w->e);
    case TASK_CLOSE:
        return close_nccl_comm(n, w, &w->e);
    default:
        return nccl_run(n, w, &w->e);
    }
}

/* A rank that has no memory for crun_alloc has informed the others, which have done
 * nothing either. */
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
    struct timespec until;
    struct nccl_work *w;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * 1000000l;
    until.tv_sec += until.tv_nsec / 1000000000l;
    until.tv_nsec %= 1000000000l;
    pthread_mutex_lock(&n->lock);
    if (!n->first || (n->aborting && !n->ended))
        pthread_cond_timedwait(&n->queue_changed, &n->lock, &until);
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

/* Without a task: looks for the end of works in flight, and for errors. */
static void check_while_idle(struct nccl *n)
{
    struct err e;
    int result;
    crun_status s = is_ending(n) ? CRUN_OK : nccl_retire(n, &e);

    if (s == CRUN_OK && !is_ending(n) && clock_ms() - n->looked_ms >= LOOK_MS)
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
