/* SPDX-License-Identifier: MIT */
/*
 * The watch: nothing that NCCL or the GPU does may make a rank wait forever. NCCL does
 * not report a peer that dies on this node, and a call or a kernel of it may never
 * return. So this thread calls neither NCCL nor CUDA: it checks the time, the processes
 * of the other ranks on this node, and the failure notice in the store.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/thread.h"
#include "worker-lib/backends/nccl/backend_nccl.h"
#include "worker-lib/core/stuck.h"
#include "worker-lib/engine/failure_notice.h"
#include "worker-lib/engine/flight_recorder.h"

#define TICK_MS 100
#define HANGS_MS 500       /* a call that takes longer is named */
#define RANKS_PER_TICK 256 /* ranks that may query the store in one tick */
#define TELL_MS 500
/* A rank that only waits reports later than a rank whose own call hangs. */
#define LATER_MS 250
#define LATER_MEETING_MS 1000
/* A rank that exits at its end has done its part of an operation that is still running
 * here. */
#define LAST_PART_MS 500
#define LEAVE_CALL_MS 1000       /* for the communication thread to leave a call */
#define MEETING_CALL_MS_MIN 5000 /* what libraries may take to be set up */
#define REPORT_MS 1000           /* for a rank that did not come to say so */
#define ABSENT_LOOK_MS 50
#define LEAVE_MS_MIN 1000
#define LEAVE_MS_MAX 10000

uint64_t nccl_leave_ms(const struct nccl *n)
{
    uint64_t ms = n->team.timeout_ms;

    return ms < LEAVE_MS_MIN ? LEAVE_MS_MIN : ms > LEAVE_MS_MAX ? LEAVE_MS_MAX : ms;
}

uint64_t nccl_call_ms(uint64_t timeout_ms)
{
    return timeout_ms < MEETING_CALL_MS_MIN ? MEETING_CALL_MS_MIN : timeout_ms;
}

/* Sleeps for a tick, or until there is something to check. */
static void wait_tick(struct nccl *n)
{
    struct pollfd fds[65] = { { .fd = n->wake, .events = POLLIN } };
    unsigned count = 1, index[65];

    for (unsigned i = 0; i < n->peers && count < 65; i++)
        if (n->peer[i].fd >= 0) {
            index[count] = i;
            fds[count++] = (struct pollfd){ .fd = n->peer[i].fd, .events = POLLIN };
        }
    if (poll(fds, count, TICK_MS) <= 0)
        return;
    if (fds[0].revents) {
        uint64_t times;

        (void)!read(n->wake, &times, sizeof(times));
    }
    for (unsigned i = 1; i < count; i++)
        if (fds[i].revents) {
            nccl_lose_peer(n, index[i]);
            close(n->peer[index[i]].fd);
            n->peer[index[i]].fd = -1;
        }
}

/* -- detecting failures ------------------------------------------------------------ */

static void end_with(struct nccl *n, crun_status s, const struct err *e)
{
    abort_set_error(n->team.aborted, s, e);
}

static const char *describe_work(const struct nccl *n, const struct nccl_work *w,
                                 char *text, size_t size)
{
    static const char *const tasks[] = { [TASK_OPEN] = "meeting",
                                         [TASK_ALLOC] = "crun_alloc",
                                         [TASK_FREE] = "crun_free",
                                         [TASK_SPLIT] = "crun_split",
                                         [TASK_CLOSE] = "leaving" };
    char what[120];

    if (w->task == TASK_OPEN && *n->interfaces) {
        snprintf(text, size, "meeting (%s)", n->interfaces);
        return text;
    }
    if (w->task != TASK_OPERATION)
        return tasks[w->task];
    snprintf(text, size, "%s #%" PRIu64,
             op_describe(&w->op, n->team.world_rank, what, sizeof(what)),
             w->op.sequence);
    return text;
}

/* A work that takes too long, and why as far as this rank knows. */
struct lateness {
    bool found;
    uint64_t number; /* of the work, if another rank may be missing in it; else 0 */
    double waited_s;
    char what[160];
    struct err e;
};

static void note_late(struct nccl *n, const struct nccl_work *w, const char *call,
                      struct lateness *l)
{
    const char *name = gpu_calls_name(n->gpu.device);
    bool is_behind = atomic_load(&w->is_behind);
    char what[160];

    if (l->found)
        return;
    l->found = true;
    l->number = call || is_behind ? 0 : w->number;
    l->waited_s = (double)w->timeout_ms / 1000;
    snprintf(l->what, sizeof(l->what), "%s", describe_work(n, w, what, sizeof(what)));
    if (call)
        err_set(&l->e, "%s has not returned for %.3g s in %s on %s", call, l->waited_s,
                l->what, name);
    else
        err_set(&l->e, "waited %.3g s in %s: %s%s%s", l->waited_s, l->what,
                is_behind ? "" : "another rank did not come to it, or ", name,
                is_behind ? " has not done the work that was queued before it"
                          : " hangs");
}

/* The first work in the stream, as the communication thread has last seen it: while
 * that thread is in a call that hangs, the work may be over. */
static void check_flight(struct nccl *n, struct lateness *l)
{
    const struct nccl_work *w = n->flight_first;
    uint64_t since = w ? atomic_load(&w->running_ms) : 0;
    uint64_t seen = atomic_load(&n->flight_seen_ms);

    if (since && seen > since && seen - since > w->timeout_ms + LATER_MS)
        note_late(n, w, NULL, l);
}

static uint64_t extra_limit_ms(const struct nccl_work *w, const char *call)
{
    if (call || w->task == TASK_CLOSE || w->task == TASK_FREE)
        return 0;
    return w->task == TASK_OPEN ? LATER_MEETING_MS : LATER_MS;
}

/* Ranks may meet late, but only a communicator that blocks waits for them in a call. */
static bool waits_for_none(const struct nccl *n, const char *call)
{
    return !n->blocking || strncmp(call, "nccl", 4) != 0;
}

static void check_long_call(struct nccl *n, const struct nccl_work *w, const char *call,
                            uint64_t ms, struct lateness *l)
{
    struct nccl_work limited = { .task = w->task,
                                 .timeout_ms = nccl_call_ms(n->team.timeout_ms) };

    if (ms > limited.timeout_ms && limited.timeout_ms < w->timeout_ms)
        note_late(n, &limited, call, l);
}

/* NULL: there is none, or it has just begun, as queries do that are repeated. */
static const char *find_long_call(const struct nccl *n, uint64_t *call_ms)
{
    const char *call = atomic_load(&n->call);

    *call_ms = atomic_load(&n->call_ms);
    return call && clock_ms() >= *call_ms + HANGS_MS ? call : NULL;
}

/* The limit of a work that waits for works in flight is over at the same time as
 * theirs, and they may wait for another rank. If the GPU has not come to the first of
 * them, the cause is here. */
static bool waits_for_flight(const struct nccl *n, const struct nccl_work *w)
{
    return n->flight_first && atomic_load(&w->is_behind) &&
           atomic_load(&n->flight_first->running_ms);
}

static void find_late(struct nccl *n, struct lateness *l)
{
    uint64_t call_ms, now, since;
    const char *call = find_long_call(n, &call_ms);
    struct nccl_work *w;

    now = clock_ms();
    pthread_mutex_lock(&n->lock);
    check_flight(n, l);
    w = n->current;
    since = w ? atomic_load(&w->running_ms) : 0;
    if (w && w->task == TASK_OPEN && call && call_ms >= since &&
        waits_for_none(n, call))
        check_long_call(n, w, call, now - call_ms, l);
    if (since && now > since && now - since > w->timeout_ms + extra_limit_ms(w, call) &&
        (call || !waits_for_flight(n, w)))
        note_late(n, w, call, l);
    else if (!w && call && now > call_ms && now - call_ms > n->team.timeout_ms)
        note_late(n,
                  &(struct nccl_work){ .task = TASK_OPEN, .timeout_ms = now - call_ms },
                  call, l);
    pthread_mutex_unlock(&n->lock);
}

/* A rank that has exited matters only while there is an operation that needs it. */
static void check_lost_peer(struct nccl *n)
{
    unsigned lost = atomic_load(&n->lost);
    const struct nccl_peer *p;
    char what[160] = "";
    struct nccl_work *w;
    struct err e;

    /* a rank that exits because of a failure has reported it before */
    if (!lost || clock_ms() - n->lost_ms < LAST_PART_MS ||
        failure_notice_abort(n->team.board, n->team.aborted))
        return;
    p = &n->peer[lost - 1];
    pthread_mutex_lock(&n->lock);
    w = n->flight_first ? n->flight_first : n->current ? n->current : n->first;
    if (w && w->task != TASK_CLOSE && w->task != TASK_FREE) {
        const char *in = describe_work(n, w, what, sizeof(what));

        err_set(&e, "rank %u (pid %d) is gone: it ended during or before %s",
                n->team.world_rank[p->place], p->pid, in);
        end_with(n, CRUN_PEER_LOST, &e);
    }
    pthread_mutex_unlock(&n->lock);
}

/* -- the rank that did not come ---------------------------------------------------- */

/*
 * A rank whose operation takes too long does not know which rank is missing. Before it
 * reports the failure, it leaves the number of the operation in the store. Each rank's
 * watch looks for that number, and a rank that has not called the operation adds its
 * name, though its program's thread may hang. A rank whose call of CUDA or NCCL hangs
 * reports that, although its own limit, which began later, is not over. A rank that
 * gets no answer leaves a mark: of several such ranks each names its own GPU.
 */
#define NOTE_AWAITED "nccl-awaited"
#define NOTE_ABSENT "nccl-absent"
#define NOTE_BEHIND "nccl-behind"
#define NOTE_UNEXPLAINED "nccl-unexplained"

struct absent_note {
    uint32_t rank;
    char gpu[48];
};

static void write_note(struct nccl *n, const char *prefix, const char *name,
                       const void *note, size_t size)
{
    char key[440];
    struct err e;

    snprintf(key, sizeof(key), "%s%s", prefix, name);
    (void)!store_client_set(n->team.store, key, note, size, clock_ms() + TELL_MS, &e);
}

static bool read_note(struct nccl *n, const char *prefix, const char *name, void *note,
                      size_t size)
{
    uint64_t until = clock_ms() + TELL_MS;
    size_t got = size;
    char key[440];
    struct err e;

    snprintf(key, sizeof(key), "%s%s", prefix, name);
    return store_client_has(n->team.store, key, until) == 1 &&
           store_client_get(n->team.store, key, note, &got, until, &e) == CRUN_OK &&
           got == size;
}

/* Where this rank, if it is missing in the operation, answers: it has not called it or
 * its GPU has not done the program's work before it; or its GPU has not done an earlier
 * operation, in which it may wait itself for a rank that is missing. */
static const char *find_answer(struct nccl *n, uint64_t number)
{
    const struct nccl_work *first;
    const char *answer = NULL;

    pthread_mutex_lock(&n->lock);
    first = n->flight_first;
    if (n->numbered < number)
        answer = NOTE_ABSENT;
    else if (first && first->number && first->number <= number)
        answer = atomic_load(&first->running_ms) == 0 ? NOTE_ABSENT
                 : first->number < number             ? NOTE_BEHIND
                                                      : NULL;
    pthread_mutex_unlock(&n->lock);
    return answer;
}

/* False: no call keeps this rank from the operation. */
static bool report_long_call(struct nccl *n, uint64_t number)
{
    const struct nccl_work *w;
    const char *call;
    uint64_t call_ms;
    char what[160];
    struct err e;

    pthread_mutex_lock(&n->lock);
    w = n->current;
    call = find_long_call(n, &call_ms);
    if (!w || w->number > number || w->task == TASK_CLOSE ||
        (call && !waits_for_none(n, call)))
        call = NULL;
    if (call)
        err_set(&e,
                "%s has not returned for %.3g s in %s on %s; another rank's time "
                "limit is over",
                call, (double)(clock_ms() - call_ms) / 1000,
                describe_work(n, w, what, sizeof(what)), gpu_calls_name(n->gpu.device));
    pthread_mutex_unlock(&n->lock);
    if (call)
        end_with(n, CRUN_TIMEOUT, &e);
    return call != NULL;
}

static void answer_if_absent(struct nccl *n)
{
    struct absent_note me = { .rank = n->team.world_rank[n->team.rank] };
    const char *answer;
    uint64_t awaited;

    if (!read_note(n, n->team.prefix, NOTE_AWAITED, &awaited, sizeof(awaited)))
        return;
    answer = report_long_call(n, awaited) ? NULL : find_answer(n, awaited);
    if (!answer)
        return;
    snprintf(me.gpu, sizeof(me.gpu), "%s", gpu_calls_name(n->gpu.device));
    write_note(n, n->team.prefix, answer, &me, sizeof(me));
}

static bool name_absent(struct nccl *n, struct lateness *l, const char *answer,
                        const char *did)
{
    struct absent_note absent;
    char gpu[2 * sizeof(absent.gpu)];

    if (!read_note(n, n->team.prefix, answer, &absent, sizeof(absent)))
        return false;
    absent.gpu[sizeof(absent.gpu) - 1] = '\0';
    if (absent.rank == n->team.world_rank[n->team.rank])
        return true; /* the error names this rank's GPU */
    err_set(&l->e, "waited %.3g s in %s: rank %u on %s %s", l->waited_s, l->what,
            absent.rank, text_printable(absent.gpu, gpu, sizeof(gpu)), did);
    return true;
}

/* The failure notice of a rank that knows the cause. */
static bool adopt_explanation(struct nccl *n)
{
    struct abort_notice notice;
    bool marker;

    if (!failure_notice_read(n->team.board, &notice) ||
        read_note(n, n->team.board->prefix, NOTE_UNEXPLAINED, &marker, sizeof(marker)))
        return false;
    abort_set_notice(n->team.aborted, &notice);
    return true;
}

/* Of several ranks that wait the one that has come furthest asks. */
static void find_absent(struct nccl *n, struct lateness *l)
{
    uint64_t until = clock_ms() + REPORT_MS, awaited = 0;

    (void)read_note(n, n->team.prefix, NOTE_AWAITED, &awaited, sizeof(awaited));
    if (awaited < l->number)
        write_note(n, n->team.prefix, NOTE_AWAITED, &l->number, sizeof(l->number));
    while (clock_ms() < until && abort_get(n->team.aborted) == CRUN_OK) {
        answer_if_absent(n);
        if (adopt_explanation(n) ||
            name_absent(n, l, NOTE_ABSENT, "did not come to it"))
            return;
        usleep(ABSENT_LOOK_MS * 1000);
    }
    if (abort_get(n->team.aborted) == CRUN_OK &&
        !name_absent(n, l, NOTE_BEHIND, "has not done the operation before it"))
        write_note(n, n->team.board->prefix, NOTE_UNEXPLAINED, &(bool){ true },
                   sizeof(bool));
}

static void check_time(struct nccl *n)
{
    struct lateness l = { 0 };

    find_late(n, &l);
    if (l.found && l.number && n->team.size > 1)
        find_absent(n, &l);
    if (l.found)
        end_with(n, CRUN_TIMEOUT, &l.e);
}

/* -- the end ----------------------------------------------------------------------- */

/* Whether the communication thread is in a call of a communicator that blocks. While
 * ranks meet there is nothing yet that could be revoked. */
static bool is_in_blocking_call(struct nccl *n)
{
    const char *call = atomic_load(&n->call);

    return n->blocking && n->busy && call && strncmp(call, "nccl", 4) == 0 &&
           strcmp(call, "ncclCommInitRankConfig") != 0;
}

/* Ends that call, which ncclCommAbort does not wait for before it frees what the call
 * uses. False: the call has not returned. */
static bool end_blocking_call(struct nccl *n, struct nccl_comm *comm)
{
    uint64_t leave_ms = clock_ms() + LEAVE_CALL_MS;
    bool left;

    pthread_mutex_lock(&n->lock);
    left = !is_in_blocking_call(n) || !n->gpu.nccl->comm_revoke;
    pthread_mutex_unlock(&n->lock);
    if (left)
        return true;
    (void)n->gpu.nccl->comm_revoke(comm, 0);
    pthread_mutex_lock(&n->lock);
    while (n->busy && thread_wait_until(&n->changed, &n->lock, leave_ms))
        ;
    left = !n->busy;
    pthread_mutex_unlock(&n->lock);
    return left;
}

/* It starts with the world: while a library is loaded, which may hang, the loader's
 * lock is held, and a new thread would wait for it. */
void *nccl_abort_comm(void *arg)
{
    struct nccl *n = arg;
    struct nccl_comm *comm;

    while (sem_wait(&n->abort_asked) != 0)
        ;
    if (!n->abort_begun)
        return NULL;
    comm = atomic_exchange(&n->comm, NULL);
    n->gpu.cuda->set_device(n->gpu.device);
    (void)gpu_calls_relax_thread(n->gpu.cuda);
    if (comm && !end_blocking_call(n, comm))
        return NULL;
    if (comm)
        (void)n->gpu.nccl->abort(comm);
    pthread_mutex_lock(&n->lock);
    n->abort_over = true;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

/* NCCL allows an abort while a thread is in a call of the communicator only if that
 * blocks. */
static bool may_abort(const struct nccl *n)
{
    const char *call = atomic_load(&n->call);

    return n->blocking || !n->busy || !call || strncmp(call, "nccl", 4) != 0;
}

/* False: NCCL does not return, and memory that it uses can never be freed. */
static bool abort_and_wait(struct nccl *n)
{
    uint64_t leave_ms = clock_ms() + LEAVE_CALL_MS, until_ms;
    bool over;

    pthread_mutex_lock(&n->lock);
    atomic_store(&n->aborting, true);
    pthread_cond_signal(&n->queue_changed);
    while (n->busy && thread_wait_until(&n->changed, &n->lock, leave_ms))
        ;
    n->abort_begun = may_abort(n);
    if (n->abort_begun)
        sem_post(&n->abort_asked);
    until_ms = clock_ms() + nccl_leave_ms(n);
    while (n->abort_begun && !n->abort_over &&
           thread_wait_until(&n->changed, &n->lock, until_ms))
        ;
    leave_ms = clock_ms() + LEAVE_CALL_MS;
    while (n->abort_over && n->busy &&
           thread_wait_until(&n->changed, &n->lock, leave_ms))
        ;
    over = n->abort_over && !n->busy;
    pthread_mutex_unlock(&n->lock);
    return over;
}

/* The program may hang and never report this. */
static void record_stuck(const struct nccl *n)
{
    const char *directory = getenv("CRUN_FLIGHT_DIR");
    struct err e;

    err_set(&e, "%s; " NCCL_STUCK, n->team.aborted->reason);
    if (directory && *directory && n->team.flight)
        flight_recorder_dump(n->team.flight, directory, e.text);
}

static void end_all(struct nccl *n)
{
    bool leaving, free_again;

    pthread_mutex_lock(&n->lock);
    leaving = n->current && n->current->task == TASK_CLOSE && !n->flight_first;
    pthread_mutex_unlock(&n->lock);
    if (n->team.failed && !leaving)
        n->team.failed(n->team.failed_arg);
    free_again = abort_and_wait(n);
    if (!free_again) {
        record_stuck(n);
        stuck_set();
    }
    pthread_mutex_lock(&n->lock);
    for (struct nccl_work *w = n->all; w && !free_again; w = w->next_of_all)
        nccl_turn_give_back(n->line, &w->turn, n, NULL);
    n->stuck = !free_again;
    n->ended = true;
    pthread_cond_signal(&n->queue_changed);
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

void *nccl_watch(void *arg)
{
    struct nccl *n = arg;
    uint64_t asked_ms = clock_ms();
    uint64_t ask_ms = TICK_MS * (1 + n->team.size / RANKS_PER_TICK);

    while (!atomic_load(&n->stopping)) {
        wait_tick(n);
        if (abort_get(n->team.aborted) == CRUN_OK) {
            check_lost_peer(n);
            check_time(n);
        }
        if (n->team.size > 1 && clock_ms() - asked_ms >= ask_ms &&
            abort_get(n->team.aborted) == CRUN_OK) {
            nccl_read_pids(n);
            answer_if_absent(n);
            (void)failure_notice_abort(n->team.board, n->team.aborted);
            asked_ms = clock_ms();
        }
        if (abort_get(n->team.aborted) != CRUN_OK) {
            end_all(n);
            break;
        }
    }
    return NULL;
}
