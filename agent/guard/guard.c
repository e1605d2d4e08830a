/* SPDX-License-Identifier: MIT */
/*
 * The agent's side of the guard: its start, the asks, the tells, and what is left to do
 * when the guard has died. Then the workers are dead already (PDEATHSIG), and what they
 * left behind has been adopted by the agent, which is a subreaper for this: all of it
 * is killed, round by round, until nothing is left.
 *
 * SIGCHLD of the agent is ours, and so is every child: the agent has no other ones than
 * the guard, what it adopts, and perhaps some that it had when it was executed. These
 * last are reaped, but never killed.
 */
#include "agent/guard/guard.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/cleanup/cgroup.h"
#include "agent/cleanup/launch_lock.h"
#include "agent/guard/guard_requests.h"
#include "agent/guard/guard_process.h"
#include "agent/guard/guard_wire.h"
#include "agent/cleanup/child_procs.h"
#include "agent/guard/status_pages.h"
#include "agent/cleanup/run_tmpdir.h"
#include "rendezvous/base/clock.h"
#include "agent/guard/limits.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/loop.h"
#include "rendezvous/base/xalloc.h"

#define KIN_PER_ROUND 256
#define AFTERMATH_ROUND_MS 2

struct guard {
    struct loop *loop;
    struct guard_calls calls;
    struct guard_process process;
    int socket;
    struct event *readable;
    struct guard_requests asks;

    struct cgroup cgroup;
    bool in_session; /* the cgroup is of no use */
    struct status_pages pages;

    uint32_t asked, answered; /* tickets */
    uint32_t running;         /* spawned, and not exited as far as is told */
    bool nothing_left;        /* after the last exit that was told */
    pid_t strangers[KIN_PER_ROUND];
    size_t stranger_count;

    bool reaped, stopped, over, left_behind;
    uint64_t give_up_ms; /* on what cannot be killed; 0: no reason yet */
    char why[96];
    struct loop_timer round;
};

/* -- the start --------------------------------------------------------------------- */

static void make_cgroup(struct guard *g)
{
    const char *off = getenv("CRUN_NO_CGROUP");
    struct err e;

    g->cgroup = CGROUP_NONE;
    if (off && off[0] != '\0' && strcmp(off, "0") != 0)
        return;
    if (cgroup_create(&g->cgroup, &e) < 0)
        log_debug("no cgroup for the workers: %s", e.text);
}

static void on_readable(evutil_socket_t fd, short what, void *arg);
static void on_child(void *arg, int signo);
static void on_ask_lost(void *arg, const struct guard_ask *ask, int errnum);
static void on_round(void *arg);

static void *must(void *from_libevent)
{
    if (!from_libevent)
        abort();
    return from_libevent;
}

static void listen_to_guard(struct guard *g)
{
    struct event_base *base = loop_base(g->loop);

    g->readable = must(
        event_new(base, g->socket, EV_READ | EV_PERSIST, on_readable, g));
    guard_requests_init(&g->asks, base, g->socket);
    g->asks.lost = on_ask_lost;
    g->asks.arg = g;
    event_add(g->readable, NULL);
    loop_timer_init(&g->round, g->loop, on_round, g);
    loop_on_signal(g->loop, SIGCHLD, on_child, g);
}

struct guard *guard_start(struct loop *loop, const struct guard_calls *calls,
                          uint32_t workers, struct err *e)
{
    struct guard *g = xcalloc(1, sizeof(*g));
    int pair[2];

    g->loop = loop;
    g->calls = *calls;
    guard_process_remember_origin();
    g->stranger_count = child_procs_children(g->strangers, KIN_PER_ROUND);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        log_debug("prctl(PR_SET_CHILD_SUBREAPER): %s", strerror(errno));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        err_set_errno(e, errno, "start the guard: socketpair");
        free(g);
        return NULL;
    }
    make_cgroup(g);
    status_pages_make(&g->pages, workers, GUARD_FD_PAGES);
    g->process.cgroup = &g->cgroup;
    g->process.claim = launch_lock_make(run_tmpdir_tag());
    g->process.pages = &g->pages;
    g->socket = pair[0];
    if (guard_process_start(&g->process, pair[1]) < 0) {
        err_set_errno(e, errno, "start the guard: fork");
        close(pair[0]);
        close(pair[1]);
        cgroup_remove(&g->cgroup);
        launch_lock_remove(run_tmpdir_tag()); /* there is no guard to do it */
        status_pages_fini(&g->pages);
        free(g);
        return NULL;
    }
    close(pair[1]);
    status_pages_given(&g->pages, g->process.guard);
    listen_to_guard(g);
    return g;
}

/* -- asks -------------------------------------------------------------------------- */

/* Nothing but a worker's start can fail: it alone has descriptors. */
static void ask_guard(struct guard *g, const struct guard_ask *ask)
{
    if (guard_requests_put(&g->asks, ask, NULL) < 0)
        log_error("the guard cannot be asked: %s", strerror(errno));
}

int guard_spawn(struct guard *g, const struct guard_spawn *spawn, struct err *e)
{
    struct guard_ask ask = {
        .type = GUARD_ASK_SPAWN,
        .local_rank = spawn->local_rank,
        .numa_node = spawn->numa_node,
        .is_tty = spawn->is_tty,
        .cpus_size = spawn->cpus ? (uint32_t)spawn->cpus_size : 0,
    };
    int fd[GUARD_ASK_FDS] = { spawn->fd[0], spawn->fd[1], spawn->fd[2], -1 };
    int rc;

    assert(spawn->local_rank < WORKERS_PER_NODE_MAX);
    fd[3] = guard_world_pack(spawn->argv, spawn->env, spawn->cpus, &ask, e);
    if (fd[3] < 0)
        return err_wrap(e, "start a worker");
    rc = guard_requests_put(&g->asks, &ask, fd);
    if (rc < 0)
        err_set_errno(e, errno, "start a worker: ask the guard");
    else
        g->running++;
    close(fd[3]);
    return rc;
}

static void ask_signal(struct guard *g, uint32_t local_rank, int signo)
{
    struct guard_ask ask = { .type = GUARD_ASK_SIGNAL,
                             .local_rank = local_rank,
                             .signo = signo };

    ask_guard(g, &ask);
}

void guard_signal_all(struct guard *g, int signo)
{
    ask_signal(g, GUARD_ALL, signo);
}

void guard_signal_worker(struct guard *g, uint32_t local_rank, int signo)
{
    ask_signal(g, local_rank, signo);
}

void guard_kill(struct guard *g)
{
    struct guard_ask ask = { .type = GUARD_ASK_KILL, .ticket = ++g->asked };

    ask_guard(g, &ask);
}

void guard_sweep(struct guard *g, uint32_t grace_ms)
{
    struct guard_ask ask = { .type = GUARD_ASK_SWEEP,
                             .ticket = ++g->asked,
                             .grace_ms = grace_ms };

    if (g->running == 0 && g->nothing_left) {
        g->answered = g->asked;
        g->calls.workers.empty(g->calls.workers.arg);
        return;
    }
    ask_guard(g, &ask);
}

void guard_fence(struct guard *g, const struct fence_terms *terms)
{
    struct guard_ask ask = { .type = GUARD_ASK_FENCE,
                             .until_ms = terms->until_ms,
                             .grace_ms = terms->grace_ms,
                             .patience_ms = terms->patience_ms };

    guard_requests_try(&g->asks, &ask);
}

/* -- tells ------------------------------------------------------------------------- */

static void told_exited(struct guard *g, const struct guard_tell *t)
{
    struct guard_exit worker = { .local_rank = t->local_rank,
                                 .pid = t->pid,
                                 .status = t->status,
                                 .out_of_memory = t->out_of_memory,
                                 .at_ms = t->at_ms };

    g->running--;
    g->nothing_left = t->nothing_left;
    g->calls.workers.exited(g->calls.workers.arg, &worker);
}

static void told_started(struct guard *g, const struct guard_tell *t)
{
    g->calls.workers.started(g->calls.workers.arg, t->local_rank, t->pid);
}

static void told_exec_failed(struct guard *g, const struct guard_tell *t)
{
    g->calls.workers.exec_failed(g->calls.workers.arg, t->local_rank, t->status,
                                 spawn_stage_name((enum spawn_stage)t->stage));
}

/* Only the answer to the latest question counts. */
static void told_empty(struct guard *g, const struct guard_tell *t)
{
    if (t->local_rank != g->asked || g->answered == g->asked)
        return;
    g->answered = g->asked;
    g->calls.workers.empty(g->calls.workers.arg);
}

static void told_session(struct guard *g, const struct guard_tell *t)
{
    (void)t;
    if (!g->in_session)
        log_warn("the cgroup takes no workers: nothing but sessions hold them");
    g->in_session = true;
}

static void told_again(struct guard *g, const struct guard_tell *t)
{
    (void)g;
    log_warn("worker %u cannot be started yet: %s: trying again", t->local_rank,
             strerror(t->status));
}

static void told_fenced(struct guard *g, const struct guard_tell *t)
{
    (void)t;
    g->calls.fenced(g->calls.arg);
}

static void told(struct guard *g, const struct guard_tell *t)
{
    static void (*const handlers[])(struct guard *, const struct guard_tell *) = {
        [GUARD_TELL_STARTED] = told_started,
        [GUARD_TELL_EXEC_FAILED] = told_exec_failed,
        [GUARD_TELL_EXITED] = told_exited,
        [GUARD_TELL_EMPTY] = told_empty,
        [GUARD_TELL_SESSION] = told_session,
        [GUARD_TELL_AGAIN] = told_again,
        [GUARD_TELL_FENCED] = told_fenced,
    };

    if (t->type < sizeof(handlers) / sizeof(handlers[0]))
        handlers[t->type](g, t);
}

/* A worker whose start was promised, and of whom the guard will never know. */
static void on_ask_lost(void *arg, const struct guard_ask *ask, int errnum)
{
    struct guard_tell failed = { .type = GUARD_TELL_EXEC_FAILED,
                                 .local_rank = ask->local_rank,
                                 .stage = SPAWN_WORLD,
                                 .status = errnum };
    struct guard_tell exited = { .type = GUARD_TELL_EXITED,
                                 .local_rank = ask->local_rank,
                                 .status = 127 << 8,
                                 .at_ms = clock_ms() };

    if (ask->type != GUARD_ASK_SPAWN) {
        log_error("the guard cannot be asked: %s", strerror(errnum));
        return;
    }
    told(arg, &failed);
    told(arg, &exited);
}

/* False when there is nothing more to read now. */
static bool read_tells(struct guard *g)
{
    struct guard_tell tells[GUARD_TELLS_PER_PACKET];
    ssize_t n = recv(g->socket, tells, sizeof(tells), MSG_DONTWAIT);

    if (n == 0 || (n < 0 && errno == ECONNRESET)) {
        event_del(g->readable);
        on_child(g, SIGCHLD); /* which may have come before there was a handler */
        return false;
    }
    if (n <= 0)
        return n < 0 && errno == EINTR;
    for (size_t i = 0; i < (size_t)n / sizeof(tells[0]) && !g->stopped; i++)
        told(g, &tells[i]);
    return !g->stopped;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    read_tells(arg);
}

/* -- the guard's death ------------------------------------------------------------- */

/* A warden ends with the guard's signal as its exit code. */
static void explain(struct guard *g, int status)
{
    int signo = WIFSIGNALED(status)         ? WTERMSIG(status)
                : WEXITSTATUS(status) > 128 ? WEXITSTATUS(status) - 128
                                            : 0;

    if (signo > 0)
        snprintf(g->why, sizeof(g->why), "killed by signal %d", signo);
    else
        snprintf(g->why, sizeof(g->why), "exited with status %d", WEXITSTATUS(status));
}

static void reap(struct guard *g)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid != g->process.child)
            continue;
        g->reaped = true;
        explain(g, status);
    }
}

static bool is_stranger(const struct guard *g, pid_t pid)
{
    for (size_t i = 0; i < g->stranger_count; i++)
        if (g->strangers[i] == pid)
            return true;
    return false;
}

/* True when nothing is left of what the guard had. A list that is empty though there is
 * a child was made while they came and went: it says nothing. */
static bool end_orphans(struct guard *g)
{
    pid_t pids[KIN_PER_ROUND];
    size_t count, left = 0;

    cgroup_kill(&g->cgroup);
    count = child_procs_any() ? child_procs_children(pids, KIN_PER_ROUND) : 0;
    for (size_t i = 0; i < count; i++) {
        if (is_stranger(g, pids[i]))
            continue;
        kill(pids[i], SIGKILL);
        left++;
    }
    reap(g);
    if (left > 0 || (count == 0 && child_procs_any()))
        return false;
    return !cgroup_populated(&g->cgroup) && cgroup_remove(&g->cgroup);
}

static void on_round(void *arg)
{
    struct guard *g = arg;
    bool ended = g->reaped && end_orphans(g);

    if (!ended && clock_ms() < g->give_up_ms) {
        loop_timer_arm(&g->round, clock_ms() + AFTERMATH_ROUND_MS);
        return;
    }
    g->left_behind = !ended;
    g->over = true;
    g->calls.died(g->calls.arg, g->reaped ? g->why : "cannot be killed");
}

static void give_up_in_time(struct guard *g)
{
    if (g->give_up_ms == 0)
        g->give_up_ms = clock_ms() + GUARD_LAST_MS;
}

void guard_force(struct guard *g)
{
    if (g->stopped || g->reaped)
        return;
    kill(g->process.guard, SIGKILL);
    give_up_in_time(g);
    loop_timer_arm(&g->round, g->give_up_ms);
}

bool guard_left_behind(const struct guard *g, struct err *e)
{
    *e->text = '\0';
    if (g->left_behind)
        err_set(e, "not all of its processes can be ended: this node leaves the job");
    return g->left_behind;
}

static void on_child(void *arg, int signo)
{
    struct guard *g = arg;

    (void)signo;
    if (g->reaped) {
        reap(g);
        return;
    }
    reap(g);
    if (!g->reaped)
        return;
    while (read_tells(g)) /* what it still said is true */
        ;
    give_up_in_time(g);
    if (!g->stopped)
        on_round(g);
}

/* -- the end ----------------------------------------------------------------------- */

const char *guard_containment(const struct guard *g)
{
    if (g->cgroup.dir < 0)
        return "session+warden";
    return g->in_session ? "session" : "cgroup";
}

pid_t guard_pid(const struct guard *g)
{
    return g->process.guard;
}

const char *guard_launch(const struct guard *g)
{
    return g->process.claim < 0 ? "" : run_tmpdir_tag();
}

const struct status_pages *guard_pages(const struct guard *g)
{
    return &g->pages;
}

static void nap(void)
{
    struct timespec ms = { .tv_nsec = 1000000 };

    nanosleep(&ms, NULL);
}

/* It ends by itself as its socket is closed; one that does not is killed. */
static void wait_for_end(struct guard *g)
{
    uint64_t until_ms = clock_ms() + GUARD_END_MS;
    struct pollfd p = { .events = POLLIN };

    reap(g);
    p.fd = g->reaped ? -1 : (int)syscall(SYS_pidfd_open, g->process.child, 0u);
    if (p.fd >= 0)
        poll(&p, 1, GUARD_END_MS);
    for (reap(g); !g->reaped; reap(g)) {
        if (clock_ms() >= until_ms)
            kill(g->process.child, SIGKILL); /* a guard below it becomes ours */
        nap();
    }
    if (p.fd >= 0)
        close(p.fd);
    for (until_ms = clock_ms() + GUARD_END_MS;
         !end_orphans(g) && clock_ms() < until_ms;)
        nap();
}

static void ignore_child(void *arg, int signo)
{
    (void)arg;
    (void)signo;
}

void guard_let_go(struct guard *g)
{
    if (!g || g->stopped)
        return;
    g->stopped = true;
    event_free(g->readable);
    guard_requests_fini(&g->asks);
    loop_timer_fini(&g->round);
    loop_on_signal(g->loop, SIGCHLD, ignore_child, NULL);
    close(g->socket);
    g->socket = -1;
}

void guard_stop(struct guard *g)
{
    int saved_errno = errno;

    if (!g)
        return;
    guard_let_go(g);
    if (!g->over)
        wait_for_end(g);
    cgroup_close(&g->cgroup);
    status_pages_fini(&g->pages);
    loop_defer(g->loop, free, g); /* a callback of ours may be further up the stack */
    errno = saved_errno;
}
