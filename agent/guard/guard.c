/* SPDX-License-Identifier: MIT */
/*
 * The agent's handle on its guard: its start, the requests to it, the events from it,
 * and the clean-up after its death. Its death has killed the workers already
 * (PDEATHSIG). The agent, which is a subreaper for that purpose, adopts their orphans
 * and kills them in rounds until none is left.
 *
 * This module owns SIGCHLD of the agent and all children of its first thread: the
 * guard, adopted processes, and children from before crun was executed. The latter are
 * reaped, but never killed.
 */
#include "agent/guard/guard.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
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
#include <unistd.h>

#include "agent/cleanup/cgroup.h"
#include "agent/cleanup/child_procs.h"
#include "agent/cleanup/launch_lock.h"
#include "agent/cleanup/run_tmpdir.h"
#include "agent/guard/containment.h"
#include "agent/guard/guard_process.h"
#include "agent/guard/guard_requests.h"
#include "agent/guard/guard_template.h"
#include "agent/guard/guard_wire.h"
#include "agent/guard/limits.h"
#include "agent/guard/status_pages.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"

#define PIDS_PER_ROUND 256
#define KILL_ROUND_MS 2

struct guard {
    struct loop *loop;
    struct guard_calls calls;
    struct guard_process process;
    int socket;
    struct event *readable;
    struct guard_requests requests;

    struct cgroup cgroup;
    bool in_session; /* the cgroup takes no workers */
    struct status_pages pages;

    uint32_t last_ticket, answered_ticket;
    uint32_t running;  /* spawned, and not reported as exited */
    bool nothing_left; /* as of the last reported exit */
    pid_t foreign[PIDS_PER_ROUND];
    size_t foreign_count;

    bool reaped, stopped, dead, left_behind;
    uint64_t give_up_ms; /* on processes that cannot be killed; 0: none yet */
    char why[96];
    struct loop_timer kill_round;
};

/* -- the start ------------------------------------------------------------------ */

static void on_guard_readable(evutil_socket_t fd, short what, void *arg);
static void on_sigchld(void *arg, int signo);
static void on_request_lost(void *arg, const struct guard_request *request, int errnum);
static void on_kill_round(void *arg);

static void listen_to_guard(struct guard *g)
{
    struct event_base *base = loop_base(g->loop);

    g->readable = event_new(base, g->socket, EV_READ | EV_PERSIST, on_guard_readable,
                            g);
    if (!g->readable)
        abort();
    guard_requests_init(&g->requests, base, g->socket);
    g->requests.lost = on_request_lost;
    g->requests.arg = g;
    event_add(g->readable, NULL);
    loop_timer_init(&g->kill_round, g->loop, on_kill_round, g);
    loop_on_signal(g->loop, SIGCHLD, on_sigchld, g);
}

struct guard *guard_start(struct loop *loop, const struct guard_calls *calls,
                          uint32_t workers, struct err *e)
{
    struct guard *g = xcalloc(1, sizeof(*g));
    int pair[2];

    g->loop = loop;
    g->calls = *calls;
    guard_process_remember_origin();
    g->foreign_count = child_procs_list(g->foreign, PIDS_PER_ROUND);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        log_debug("prctl(PR_SET_CHILD_SUBREAPER): %s", strerror(errno));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        err_set_errno(e, errno, "start the guard: socketpair");
        free(g);
        return NULL;
    }
    g->process.launch_lock = launch_lock_make(run_tmpdir_tag());
    containment_make(&g->cgroup);
    status_pages_make(&g->pages, workers, GUARD_FD_PAGES);
    g->process.cgroup = &g->cgroup;
    g->process.pages = &g->pages;
    g->socket = pair[0];
    if (guard_process_start(&g->process, pair[1]) < 0) {
        err_set_errno(e, errno, "start the guard: fork");
        close(pair[0]);
        close(pair[1]);
        cgroup_remove(&g->cgroup);
        launch_lock_remove(run_tmpdir_tag()); /* no guard will remove the two */
        run_tmpdir_remove_empty(run_tmpdir_tag());
        status_pages_fini(&g->pages);
        free(g);
        return NULL;
    }
    close(pair[1]);
    status_pages_hand_over(&g->pages, g->process.guard);
    listen_to_guard(g);
    return g;
}

/* -- requests ------------------------------------------------------------------- */

/* Only a spawn request, which has descriptors, can fail to be queued. */
static void submit_request(struct guard *g, const struct guard_request *request)
{
    if (guard_requests_put(&g->requests, request, NULL) < 0)
        log_error("cannot send a request to the guard: %s", strerror(errno));
}

/* With its payload. */
static int submit_start(struct guard *g, struct guard_request *request,
                        const int stdio[3], const char *const *argv,
                        const char *const *env, const void *cpus, struct err *e)
{
    int fd[GUARD_REQUEST_FDS] = { stdio[0], stdio[1], stdio[2], -1 };
    int rc;

    fd[3] = guard_payload_pack(argv, env, cpus, request, e);
    if (fd[3] < 0)
        return -1;
    rc = guard_requests_put(&g->requests, request, fd);
    if (rc < 0)
        err_set_errno(e, errno, "send the request");
    close(fd[3]);
    return rc;
}

int guard_spawn(struct guard *g, const struct guard_spawn *spawn, struct err *e)
{
    struct guard_request request = {
        .type = GUARD_REQUEST_SPAWN,
        .local_rank = spawn->local_rank,
        .numa_node = spawn->numa_node,
        .is_tty = spawn->is_tty,
        .cpus_size = spawn->cpus ? (uint32_t)spawn->cpus_size : 0,
    };

    assert(spawn->local_rank < WORKERS_PER_NODE_MAX);
    if (submit_start(g, &request, spawn->fd, spawn->argv, spawn->env, spawn->cpus, e) <
        0)
        return err_wrap(e, "start a worker");
    g->running++;
    return 0;
}

int guard_start_template(struct guard *g, const struct guard_template *template,
                         struct err *e)
{
    struct guard_request request = { .type = GUARD_REQUEST_TEMPLATE,
                                     .local_rank = GUARD_ALL,
                                     .ready_ms = template->ready_ms,
                                     .answer_ms = template->answer_ms };

    return submit_start(g, &request, template->fd, template->argv, template->env, NULL,
                        e);
}

void guard_signal(struct guard *g, uint32_t local_rank, int signo)
{
    struct guard_request request = { .type = GUARD_REQUEST_SIGNAL,
                                     .local_rank = local_rank,
                                     .signo = signo };

    submit_request(g, &request);
}

void guard_kill(struct guard *g)
{
    struct guard_request request = { .type = GUARD_REQUEST_KILL,
                                     .ticket = ++g->last_ticket };

    submit_request(g, &request);
}

void guard_sweep(struct guard *g, uint32_t term_delay_ms, uint32_t grace_ms)
{
    struct guard_request request = { .type = GUARD_REQUEST_SWEEP,
                                     .ticket = ++g->last_ticket,
                                     .term_delay_ms = term_delay_ms,
                                     .grace_ms = grace_ms };

    if (g->running == 0 && g->nothing_left) {
        g->answered_ticket = g->last_ticket;
        g->calls.workers.empty(g->calls.workers.arg);
        return;
    }
    submit_request(g, &request);
}

void guard_fence(struct guard *g, const struct fence_terms *terms)
{
    struct guard_request request = { .type = GUARD_REQUEST_FENCE,
                                     .until_ms = terms->until_ms,
                                     .grace_ms = terms->grace_ms,
                                     .extension_ms = terms->extension_ms };

    guard_requests_try(&g->requests, &request);
}

/* -- events --------------------------------------------------------------------- */

static void report_exit(struct guard *g, const struct guard_event *t)
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

static void handle_template_event(struct guard *g, const struct guard_event *t)
{
    const struct guard_template_calls *c = &g->calls.template;
    enum template_fault fault = (enum template_fault)t->stage;

    switch (t->type) {
    case GUARD_EVENT_EXEC_FAILED:
        c->exec_failed(c->arg, t->status, spawn_stage_name((enum spawn_stage)t->stage));
        break;
    case GUARD_EVENT_TEMPLATE_READY:
        c->ready(c->arg, t->pid);
        break;
    case GUARD_EVENT_TEMPLATE_ENDED:
        c->ended(c->arg, t->status,
                 fault == TEMPLATE_NO_FAULT ? NULL : template_fault_text(fault));
        break;
    case GUARD_EVENT_WARM:
        c->warm(c->arg, t->local_rank);
        break;
    case GUARD_EVENT_COLD:
        c->cold(c->arg, t->local_rank, template_fault_text(fault));
        break;
    }
}

static void handle_guard_event(struct guard *g, const struct guard_event *t)
{
    const struct guard_worker_calls *c = &g->calls.workers;

    switch (t->type) {
    case GUARD_EVENT_STARTED:
        c->started(c->arg, t->local_rank, t->pid);
        break;
    case GUARD_EVENT_EXEC_FAILED:
        if (t->local_rank == GUARD_ALL)
            handle_template_event(g, t);
        else
            c->exec_failed(c->arg, t->local_rank, t->status,
                           spawn_stage_name((enum spawn_stage)t->stage));
        break;
    case GUARD_EVENT_EXITED:
        report_exit(g, t);
        break;
    case GUARD_EVENT_EMPTY: /* only the answer to the latest question counts */
        if (t->local_rank != g->last_ticket || g->answered_ticket == g->last_ticket)
            break;
        g->answered_ticket = g->last_ticket;
        c->empty(c->arg);
        break;
    case GUARD_EVENT_LEFTOVER:
        c->leftover(c->arg, t->status, t->name);
        break;
    case GUARD_EVENT_SESSION:
        if (!g->in_session)
            log_warn("the cgroup takes no workers: only sessions contain them");
        g->in_session = true;
        break;
    case GUARD_EVENT_RETRY:
        log_warn("worker %u cannot be started yet: %s: trying again", t->local_rank,
                 strerror(t->status));
        break;
    case GUARD_EVENT_FENCED:
        g->calls.fenced(g->calls.arg);
        break;
    default:
        handle_template_event(g, t);
    }
}

/* The caller expects the worker to start, but the guard will never get the request. */
static void on_request_lost(void *arg, const struct guard_request *request, int errnum)
{
    struct guard_event failed = { .type = GUARD_EVENT_EXEC_FAILED,
                                  .local_rank = request->local_rank,
                                  .stage = SPAWN_PAYLOAD,
                                  .status = errnum };
    struct guard_event exited = { .type = GUARD_EVENT_EXITED,
                                  .local_rank = request->local_rank,
                                  .status = 127 << 8,
                                  .at_ms = clock_ms() };

    if (request->type == GUARD_REQUEST_TEMPLATE) {
        struct guard_event ended = { .type = GUARD_EVENT_TEMPLATE_ENDED,
                                     .stage = TEMPLATE_NOT_STARTED };

        handle_guard_event(arg, &ended);
        return;
    }
    if (request->type != GUARD_REQUEST_SPAWN) {
        log_error("cannot send a request to the guard: %s", strerror(errnum));
        return;
    }
    handle_guard_event(arg, &failed);
    handle_guard_event(arg, &exited);
}

/* False when there is nothing to read now. */
static bool read_guard_events(struct guard *g)
{
    struct guard_event events[GUARD_EVENTS_PER_PACKET];
    ssize_t n = recv(g->socket, events, sizeof(events), MSG_DONTWAIT);

    if (n == 0 || (n < 0 && errno == ECONNRESET)) {
        event_del(g->readable);
        on_sigchld(g, SIGCHLD); /* SIGCHLD may have come before its handler was set */
        return false;
    }
    if (n <= 0)
        return n < 0 && errno == EINTR;
    for (size_t i = 0; i < (size_t)n / sizeof(events[0]) && !g->stopped; i++)
        handle_guard_event(g, &events[i]);
    return !g->stopped;
}

static void on_guard_readable(evutil_socket_t fd, short what, void *arg)
{
    read_guard_events(arg);
}

/* -- the guard's death ---------------------------------------------------------- */

/* The reaper of a guard ends with the guard's signal as its exit code. */
static void set_death_reason(struct guard *g, int status)
{
    int signo = WIFSIGNALED(status)         ? WTERMSIG(status)
                : WEXITSTATUS(status) > 128 ? WEXITSTATUS(status) - 128
                                            : 0;

    if (signo > 0)
        snprintf(g->why, sizeof(g->why), "killed by signal %d", signo);
    else
        snprintf(g->why, sizeof(g->why), "exited with status %d", WEXITSTATUS(status));
}

static void reap_children(struct guard *g)
{
    int status;
    pid_t pid;

    /* another thread waits for its own children */
    while ((pid = waitpid(-1, &status, WNOHANG | __WNOTHREAD)) > 0) {
        if (pid != g->process.child)
            continue;
        g->reaped = true;
        set_death_reason(g, status);
    }
}

static bool is_foreign(const struct guard *g, pid_t pid)
{
    for (size_t i = 0; i < g->foreign_count; i++)
        if (g->foreign[i] == pid)
            return true;
    return false;
}

/* True when no process of the guard is left. If there is a child, an empty list only
 * means that children came and went while it was made. */
static bool kill_orphans(struct guard *g)
{
    pid_t pids[PIDS_PER_ROUND];
    size_t count, left = 0;

    cgroup_kill(&g->cgroup);
    count = child_procs_exist() ? child_procs_list(pids, PIDS_PER_ROUND) : 0;
    for (size_t i = 0; i < count; i++) {
        if (is_foreign(g, pids[i]))
            continue;
        kill(pids[i], SIGKILL);
        left++;
    }
    reap_children(g);
    if (left > 0 || (count == 0 && child_procs_exist()))
        return false;
    return !cgroup_populated(&g->cgroup) && cgroup_remove(&g->cgroup);
}

static void on_kill_round(void *arg)
{
    struct guard *g = arg;
    bool ended = g->reaped && kill_orphans(g);

    if (!ended && clock_ms() < g->give_up_ms) {
        loop_timer_arm(&g->kill_round, clock_ms() + KILL_ROUND_MS);
        return;
    }
    g->left_behind = !ended;
    g->dead = true;
    g->calls.died(g->calls.arg, g->reaped ? g->why : "cannot be killed");
}

static void set_give_up_time(struct guard *g)
{
    if (g->give_up_ms == 0)
        g->give_up_ms = clock_ms() + GUARD_LAST_MS;
}

void guard_force(struct guard *g)
{
    if (g->stopped || g->reaped)
        return;
    if (g->process.guard_pidfd >= 0)
        syscall(SYS_pidfd_send_signal, g->process.guard_pidfd, SIGKILL, NULL, 0u);
    else
        kill(g->process.child, SIGKILL); /* our child: not reaped */
    set_give_up_time(g);
    loop_timer_arm(&g->kill_round, g->give_up_ms);
}

bool guard_has_leftovers(const struct guard *g, struct err *e)
{
    *e->text = '\0';
    if (g->left_behind)
        err_set(
            e,
            "some processes of the workers cannot be killed: this node leaves the job");
    return g->left_behind;
}

static void on_sigchld(void *arg, int signo)
{
    struct guard *g = arg;

    if (g->reaped) {
        reap_children(g);
        return;
    }
    reap_children(g);
    if (!g->reaped)
        return;
    while (read_guard_events(g)) /* its last events count */
        ;
    set_give_up_time(g);
    if (!g->stopped)
        on_kill_round(g);
}

/* -- the end -------------------------------------------------------------------- */

const char *guard_containment(const struct guard *g)
{
    return containment_name(&g->cgroup, g->in_session);
}

pid_t guard_pid(const struct guard *g)
{
    return g->process.guard;
}

const char *guard_launch_tag(const struct guard *g)
{
    return g->process.launch_lock < 0 ? "" : run_tmpdir_tag();
}

const struct status_pages *guard_pages(const struct guard *g)
{
    return &g->pages;
}

void guard_set_store(struct guard *g, const struct progress_store *store)
{
    status_pages_set_store(&g->pages, store);
}

/* The guard ends by itself when its socket is closed; if it does not, it is killed. */
static void wait_for_guard_end(struct guard *g)
{
    uint64_t until_ms = clock_ms() + GUARD_END_MS;
    struct pollfd p = { .events = POLLIN };

    reap_children(g);
    p.fd = g->reaped ? -1 : (int)syscall(SYS_pidfd_open, g->process.child, 0u);
    if (p.fd >= 0)
        poll(&p, 1, GUARD_END_MS);
    for (reap_children(g); !g->reaped; reap_children(g)) {
        if (clock_ms() >= until_ms)
            kill(g->process.child, SIGKILL); /* its guard becomes our child then */
        usleep(1000);
    }
    if (p.fd >= 0)
        close(p.fd);
    for (until_ms = clock_ms() + GUARD_END_MS;
         !kill_orphans(g) && clock_ms() < until_ms;)
        usleep(1000);
}

static void ignore_sigchld(void *arg, int signo)
{
}

void guard_disconnect(struct guard *g)
{
    if (!g || g->stopped)
        return;
    g->stopped = true;
    event_free(g->readable);
    guard_requests_fini(&g->requests);
    loop_timer_fini(&g->kill_round);
    loop_on_signal(g->loop, SIGCHLD, ignore_sigchld, NULL);
    close(g->socket);
    g->socket = -1;
}

void guard_stop(struct guard *g)
{
    int saved_errno = errno;

    if (!g)
        return;
    guard_disconnect(g);
    if (!g->dead)
        wait_for_guard_end(g);
    cgroup_close(&g->cgroup);
    if (g->process.guard_pidfd >= 0)
        close(g->process.guard_pidfd);
    status_pages_fini(&g->pages);
    loop_defer(g->loop, free, g); /* a callback of the guard may be on the stack */
    errno = saved_errno;
}
