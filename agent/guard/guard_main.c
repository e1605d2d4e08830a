/* SPDX-License-Identifier: MIT */
/*
 * The guard: the parent of the workers, with one thread, one loop, no network and no
 * decisions. It executes the agent's requests, reaps children and adopts orphans below
 * it. When the agent's end of the socket is closed, for whatever reason, it ends all
 * processes below it and then itself.
 *
 * It blocks every signal for good: only KILL ends it, and the workers inherit the
 * dispositions that crun was started with. It allocates nothing, because its memory is
 * copied for each worker.
 */
#include "agent/guard/guard_main.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "agent/cleanup/cgroup.h"
#include "agent/cleanup/launch_lock.h"
#include "agent/cleanup/run_tmpdir.h"
#include "agent/guard/fence.h"
#include "agent/guard/guard_events.h"
#include "agent/guard/guard_shutdown.h"
#include "agent/guard/guard_template.h"
#include "agent/guard/guard_wire.h"
#include "agent/guard/guard_workers.h"
#include "agent/guard/spawn.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/limits.h"

#define REQUESTS_PER_TURN 16
#define EVENTS_PER_TURN 64

/* The tag of an event of the epoll set: one of these, or a worker's local rank. */
enum {
    TAG_SOCKET = WORKERS_PER_NODE_MAX,
    TAG_CHILD,
    TAG_CGROUP,
    TAG_ERRORS,
    TAG_FENCE,
    TAG_TEMPLATE,
    TAG_CHANNELS /* of workers that the template forks: plus the local rank */
};

static struct {
    int epoll, sigchld, timer;
    struct cgroup cgroup;
    const char *tmpdir_tag;
    struct fence fence;
    bool fenced;      /* it has passed, and the workers are being ended */
    bool child_died;  /* a child that may not be a worker must be reaped */
    bool agent_gone;  /* end all, then exit */
    bool events_wait; /* for room in the socket */
} guard;

static void change_epoll(int op, int fd, uint32_t events, uint32_t tag)
{
    struct epoll_event event = { .events = events, .data.u32 = tag };

    epoll_ctl(guard.epoll, op, fd, &event);
}

static void agent_has_gone(void)
{
    guard.agent_gone = true;
    guard_template_give_up();
    change_epoll(EPOLL_CTL_DEL, GUARD_FD_SOCKET, 0,
                 TAG_SOCKET); /* else it would report without end */
}

static void flush_events(void)
{
    enum guard_events_state state = guard.agent_gone ? GUARD_EVENTS_SENT
                                                     : guard_events_flush();
    bool wait = state == GUARD_EVENTS_WAIT;

    if (state == GUARD_EVENTS_LOST)
        agent_has_gone();
    if (guard.agent_gone || wait == guard.events_wait)
        return;
    guard.events_wait = wait;
    change_epoll(EPOLL_CTL_MOD, GUARD_FD_SOCKET,
                 EPOLLIN | EPOLLRDHUP | (wait ? EPOLLOUT : 0), TAG_SOCKET);
}

/* -- the fence ------------------------------------------------------------------ */

/* The clock of this timer counts a suspend, after which the timer fires at once. */
static void arm_fence_timer(void)
{
    uint64_t at_ms = fence_next_ms(&guard.fence);
    struct itimerspec at = { .it_value = { .tv_sec = (time_t)(at_ms / 1000),
                                           .tv_nsec = (long)(at_ms % 1000) *
                                                      1000000 } };

    timerfd_settime(guard.timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static void renew_fence(const struct guard_request *request)
{
    const struct fence_terms terms = { .until_ms = request->until_ms,
                                       .grace_ms = request->grace_ms,
                                       .extension_ms = request->extension_ms };

    fence_renew(&guard.fence, &terms);
    arm_fence_timer();
}

static void on_fence_timer(void)
{
    uint64_t times;

    while (read(guard.timer, &times, sizeof(times)) > 0)
        ;
    if (!fence_passed(&guard.fence, clock_ms())) {
        arm_fence_timer();
        return;
    }
    if (guard_workers_is_empty() && !guard_template_has_any())
        return; /* a worker requested from now on is refused */
    guard.fenced = true;
    guard_events_add((struct guard_event){ .type = GUARD_EVENT_FENCED });
    guard_template_drop_all(SIGTERM);
    guard_shutdown_fence(fence_grace_left_ms(&guard.fence, clock_ms()));
}

/* -- requests of the agent ------------------------------------------------------ */

static void spawn_requested(const struct guard_request *request,
                            int fd[GUARD_REQUEST_FDS])
{
    if (guard.fenced || fence_passed(&guard.fence, clock_ms())) {
        /* before the failure, because that is not a fault of the program */
        guard_events_add((struct guard_event){ .type = GUARD_EVENT_FENCED });
        guard_workers_spawn_failed(request->local_rank, SPAWN_FENCE, ETIME);
        return;
    }
    if (guard_workers_is_taken(request->local_rank) ||
        guard_template_has(request->local_rank)) {
        guard_workers_spawn_failed(request->local_rank, SPAWN_PAYLOAD, EEXIST);
        return;
    }
    if (!guard_template_spawn(request, fd))
        guard_workers_spawn(request, fd);
}

/* A worker that was not started yet ends by the signals that would end it. */
static void signal_requested(uint32_t local_rank, int signo)
{
    bool ends = signo == SIGKILL || guard_workers_wants_cont(signo);

    if (local_rank == GUARD_ALL) {
        if (signo == SIGSTOP)
            fence_pause(&guard.fence);
        else if (signo == SIGCONT)
            fence_resume(&guard.fence, clock_ms());
        arm_fence_timer();
        guard_workers_signal_all(signo);
    } else {
        guard_workers_signal(local_rank, signo);
    }
    if (ends && local_rank == GUARD_ALL)
        guard_template_drop_all(signo);
    else if (ends)
        guard_template_drop(local_rank, signo);
}

/* Sets the descriptors that it keeps to -1. */
static void handle_request(const struct guard_request *request,
                           int fd[GUARD_REQUEST_FDS])
{
    if (request->local_rank >= WORKERS_PER_NODE_MAX && request->local_rank != GUARD_ALL)
        return;
    switch ((enum guard_request_type)request->type) {
    case GUARD_REQUEST_SPAWN:
        spawn_requested(request, fd);
        break;
    case GUARD_REQUEST_SIGNAL:
        signal_requested(request->local_rank, request->signo);
        break;
    case GUARD_REQUEST_KILL:
        guard_template_drop_all(SIGKILL);
        guard_shutdown_kill(request->ticket);
        break;
    case GUARD_REQUEST_SWEEP:
        guard_template_drop_all(SIGKILL);
        guard_shutdown_sweep(request->ticket, request->term_delay_ms,
                             request->grace_ms);
        break;
    case GUARD_REQUEST_FENCE:
        renew_fence(request);
        break;
    case GUARD_REQUEST_TEMPLATE:
        guard_template_start(request, fd);
        break;
    }
}

static void copy_descriptors(struct msghdr *msg, int fd[GUARD_REQUEST_FDS])
{
    struct cmsghdr *c = CMSG_FIRSTHDR(msg);

    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
}

/* False when there is nothing to read now. */
static bool read_request(void)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(GUARD_REQUEST_FDS * sizeof(int))];
    } control;
    struct guard_request request;
    struct iovec iov = { &request, sizeof(request) };
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = &control,
                          .msg_controllen = sizeof(control) };
    int fd[GUARD_REQUEST_FDS] = { -1, -1, -1, -1 };
    ssize_t n = recvmsg(GUARD_FD_SOCKET, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n != sizeof(request)) {
        agent_has_gone();
        return false;
    }
    copy_descriptors(&msg, fd);
    handle_request(&request, fd);
    for (int i = 0; i < GUARD_REQUEST_FDS; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    return true;
}

/* -- the loop ------------------------------------------------------------------- */

static void on_socket(uint32_t events)
{
    if (events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR)) {
        agent_has_gone(); /* its pending requests are dropped */
        return;
    }
    if (events & EPOLLIN)
        for (int i = 0; i < REQUESTS_PER_TURN && read_request(); i++)
            ;
}

static void on_sigchld_readable(void)
{
    struct signalfd_siginfo info[8];

    while (read(guard.sigchld, info, sizeof(info)) > 0)
        ;
    guard.child_died = true;
}

static void handle_epoll_event(const struct epoll_event *event)
{
    switch (event->data.u32) {
    case TAG_SOCKET:
        on_socket(event->events);
        break;
    case TAG_CHILD:
        on_sigchld_readable();
        break;
    case TAG_CGROUP: /* only wakes the loop, which checks it at the end of the turn */
        break;
    case TAG_ERRORS:
        guard_workers_read_errors();
        break;
    case TAG_FENCE:
        on_fence_timer();
        break;
    case TAG_TEMPLATE:
        guard_template_on_socket(event->events);
        break;
    default:
        if (event->data.u32 >= TAG_CHANNELS)
            guard_template_on_channel(event->data.u32 - TAG_CHANNELS);
        else
            guard_workers_reap(event->data.u32);
    }
}

/* Returns how long the next turn may wait; -1: without limit. */
static int advance_shutdown(void)
{
    int wait_ms;

    if (guard.agent_gone)
        return guard_shutdown_without_agent(&guard.cgroup, guard.tmpdir_tag);
    wait_ms = guard_shutdown_advance();
    if (guard_shutdown_is_running())
        return wait_ms;
    guard.fenced = false;
    return guard.child_died ? 0 : -1;
}

static _Noreturn void run_guard(void)
{
    struct epoll_event events[EVENTS_PER_TURN];
    int wait_ms = -1, template_ms;

    for (;;) {
        int n = epoll_wait(guard.epoll, events, EVENTS_PER_TURN, wait_ms);

        for (int i = 0; i < n; i++)
            handle_epoll_event(&events[i]);
        if (guard.child_died) {
            guard_template_reap();
            guard.child_died = guard_workers_reap_others();
        }
        template_ms = guard_template_advance();
        wait_ms = advance_shutdown();
        if (wait_ms < 0 || (template_ms >= 0 && template_ms < wait_ms))
            wait_ms = template_ms;
        flush_events();
        if (guard.agent_gone && !guard_shutdown_is_running())
            wait_ms = 0; /* detected in this turn: nothing else would wake the loop */
    }
}

/* -- the start ------------------------------------------------------------------ */

/* Where the kernel shows the arguments of this process. */
static struct {
    char *text;
    size_t size;
} arguments;

static void prepare_guard(const char *cgroup_name)
{
    sigset_t child;

    guard.cgroup = CGROUP_NONE;
    if (*cgroup_name) {
        guard.cgroup.dir = GUARD_FD_CGROUP;
        guard.cgroup.parent = GUARD_FD_CGROUP_PARENT;
        snprintf(guard.cgroup.name, sizeof(guard.cgroup.name), "%s", cgroup_name);
    }
    for (int fd = GUARD_FD_SOCKET;
         fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 || fd < GUARD_FD_PAGES; fd++)
        ;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    guard.sigchld = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    guard.timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    guard.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (guard.sigchld < 0 || guard.timer < 0 || guard.epoll < 0 ||
        !guard_workers_init(guard.epoll, &guard.cgroup))
        _exit(EXIT_FAILURE);
    guard_template_init(
        guard.epoll, &guard.cgroup,
        &(struct template_tags){ TAG_TEMPLATE, TAG_CGROUP, TAG_CHANNELS });
    change_epoll(EPOLL_CTL_ADD, GUARD_FD_SOCKET, EPOLLIN | EPOLLRDHUP, TAG_SOCKET);
    change_epoll(EPOLL_CTL_ADD, guard.sigchld, EPOLLIN, TAG_CHILD);
    change_epoll(EPOLL_CTL_ADD, guard.timer, EPOLLIN, TAG_FENCE);
    change_epoll(EPOLL_CTL_ADD, guard_workers_error_fd(), EPOLLIN, TAG_ERRORS);
    if (guard.cgroup.dir >= 0) /* edge-triggered: this descriptor is never read */
        change_epoll(EPOLL_CTL_ADD, cgroup_watch(&guard.cgroup), EPOLLPRI | EPOLLET,
                     TAG_CGROUP);
}

void guard_main_keep_arguments(int argc, char **argv)
{
    arguments.text = argv[0];
    arguments.size = (size_t)(argv[argc - 1] - argv[0]) + strlen(argv[argc - 1]) + 1;
}

void guard_main(const char *cgroup_name, const char *tmpdir_tag)
{
    if (arguments.text) {
        memset(arguments.text, 0, arguments.size);
        snprintf(arguments.text, arguments.size, "%s", GUARD_NAME);
    }
    prctl(PR_SET_NAME, GUARD_NAME);
    signal(SIGCHLD, SIG_DFL); /* if it were ignored, there would be nothing to reap */
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    guard.tmpdir_tag = tmpdir_tag;
    prepare_guard(cgroup_name);
    run_guard();
}
