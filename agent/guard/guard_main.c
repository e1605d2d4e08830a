/* SPDX-License-Identifier: MIT */
/*
 * The guard: parent of the workers, one thread, one loop, no network, no policy. It
 * does what the agent asks for, reaps what ends, adopts what is orphaned below it, and
 * when the agent's end of the socket is gone, for whatever reason, ends everything and
 * then itself.
 *
 * Every signal is blocked for good, so nothing but KILL ends it, and the workers get
 * the dispositions that crun was started with without anybody having to remember them.
 * It allocates nothing: what it touches is copied for each worker.
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
#include "agent/guard/fence.h"
#include "agent/guard/guard_shutdown.h"
#include "agent/guard/guard_events.h"
#include "agent/guard/guard_wire.h"
#include "agent/guard/guard_workers.h"
#include "agent/cleanup/run_tmpdir.h"
#include "agent/guard/spawn.h"
#include "agent/guard/guard_reaper.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/limits.h"

#define ASKS_PER_TURN 16
#define EVENTS_PER_TURN 64
#define REMOVE_ROUND_MS 5 /* of a cgroup whose last process is not quite gone */

/* What an event of the epoll set is about: one of these, or a worker's local rank. */
enum {
    TAG_SOCKET = WORKERS_PER_NODE_MAX,
    TAG_CHILD,
    TAG_CGROUP,
    TAG_ERRORS,
    TAG_FENCE
};

static struct {
    int epoll, sigchld, timer;
    struct cgroup cgroup;
    const char *scratch;
    struct fence fence;
    bool fenced;     /* it has passed, and what lives is being ended */
    bool child_died; /* somebody is to be reaped who may not be a worker */
    bool agent_gone; /* end, then exit */
    bool tells_wait; /* for room in the socket */
} guard;

static void watch(int op, int fd, uint32_t events, uint32_t tag)
{
    struct epoll_event event = { .events = events, .data.u32 = tag };

    epoll_ctl(guard.epoll, op, fd, &event);
}

static void agent_is_gone(void)
{
    guard.agent_gone = true;
    watch(EPOLL_CTL_DEL, GUARD_FD_SOCKET, 0, TAG_SOCKET); /* it would never be quiet */
}

static void flush(void)
{
    enum guard_events_state state = guard.agent_gone ? GUARD_EVENTS_SENT
                                                     : guard_events_flush();
    bool wait = state == GUARD_EVENTS_WAIT;

    if (state == GUARD_EVENTS_LOST)
        agent_is_gone();
    if (guard.agent_gone || wait == guard.tells_wait)
        return;
    guard.tells_wait = wait;
    watch(EPOLL_CTL_MOD, GUARD_FD_SOCKET, EPOLLIN | EPOLLRDHUP | (wait ? EPOLLOUT : 0),
          TAG_SOCKET);
}

/* -- the fence --------------------------------------------------------------------- */

/* A timer of the clock that counts a suspend: after one it is due at once. */
static void arm_fence(void)
{
    uint64_t at_ms = fence_next_ms(&guard.fence);
    struct itimerspec at = { .it_value = { .tv_sec = (time_t)(at_ms / 1000),
                                           .tv_nsec = (long)(at_ms % 1000) *
                                                      1000000 } };

    timerfd_settime(guard.timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static void ask_fence(const struct guard_ask *ask)
{
    const struct fence_terms terms = { .until_ms = ask->until_ms,
                                       .grace_ms = ask->grace_ms,
                                       .patience_ms = ask->patience_ms };

    fence_renew(&guard.fence, &terms);
    arm_fence();
}

static void on_fence(void)
{
    uint64_t times;

    while (read(guard.timer, &times, sizeof(times)) > 0)
        ;
    if (!fence_passed(&guard.fence, clock_ms())) {
        arm_fence();
        return;
    }
    if (guard_workers_none())
        return; /* whoever comes now is refused */
    guard.fenced = true;
    guard_events_add((struct guard_tell){ .type = GUARD_TELL_FENCED });
    guard_shutdown_fence(guard.fence.terms.grace_ms);
}

/* -- what the agent asks for ------------------------------------------------------- */

static void ask_spawn(const struct guard_ask *ask, const int fd[GUARD_ASK_FDS])
{
    struct spawn s = { .local_rank = ask->local_rank,
                       .is_tty = ask->is_tty,
                       .numa_node = ask->numa_node };
    struct guard_world world;

    if (guard.fenced || fence_passed(&guard.fence, clock_ms())) {
        guard_workers_spawn_failed(ask->local_rank, SPAWN_FENCE, ETIME);
        return;
    }
    if (guard_workers_taken(ask->local_rank)) {
        guard_workers_spawn_failed(ask->local_rank, SPAWN_WORLD, EEXIST);
        return;
    }
    memcpy(s.fd, fd, sizeof(s.fd));
    if (fd[3] < 0 || guard_world_open(&world, fd[3], ask, &s) < 0) {
        guard_workers_spawn_failed(ask->local_rank, SPAWN_WORLD,
                                   fd[3] < 0 ? EMFILE : errno);
        return;
    }
    guard_workers_spawn(&s);
    guard_world_close(&world);
}

static void take_ask(const struct guard_ask *ask, const int fd[GUARD_ASK_FDS])
{
    if (ask->local_rank >= WORKERS_PER_NODE_MAX && ask->local_rank != GUARD_ALL)
        return;
    switch ((enum guard_ask_type)ask->type) {
    case GUARD_ASK_SPAWN:
        ask_spawn(ask, fd);
        break;
    case GUARD_ASK_SIGNAL:
        if (ask->local_rank == GUARD_ALL)
            guard_workers_signal_all(ask->signo);
        else
            guard_workers_signal(ask->local_rank, ask->signo);
        break;
    case GUARD_ASK_KILL:
        guard_shutdown_kill(ask->ticket);
        break;
    case GUARD_ASK_SWEEP:
        guard_shutdown_sweep(ask->ticket, ask->grace_ms);
        break;
    case GUARD_ASK_FENCE:
        ask_fence(ask);
        break;
    }
}

static void take_descriptors(struct msghdr *msg, int fd[GUARD_ASK_FDS])
{
    struct cmsghdr *c = CMSG_FIRSTHDR(msg);

    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
}

/* False when there is nothing to read now. */
static bool read_ask(void)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(GUARD_ASK_FDS * sizeof(int))];
    } control;
    struct guard_ask ask;
    struct iovec iov = { &ask, sizeof(ask) };
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = &control,
                          .msg_controllen = sizeof(control) };
    int fd[GUARD_ASK_FDS] = { -1, -1, -1, -1 };
    ssize_t n = recvmsg(GUARD_FD_SOCKET, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n != sizeof(ask)) {
        agent_is_gone();
        return false;
    }
    take_descriptors(&msg, fd);
    take_ask(&ask, fd);
    for (int i = 0; i < GUARD_ASK_FDS; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    return true;
}

/* -- the loop ---------------------------------------------------------------------- */

static void on_socket(uint32_t events)
{
    if (events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR)) {
        agent_is_gone(); /* what it still asked for is not done */
        return;
    }
    if (events & EPOLLIN)
        for (int i = 0; i < ASKS_PER_TURN && read_ask(); i++)
            ;
}

static void on_sigchld(void)
{
    struct signalfd_siginfo info[8];

    while (read(guard.sigchld, info, sizeof(info)) > 0)
        ;
    guard.child_died = true;
}

static void dispatch(const struct epoll_event *event)
{
    switch (event->data.u32) {
    case TAG_SOCKET:
        on_socket(event->events);
        break;
    case TAG_CHILD:
        on_sigchld();
        break;
    case TAG_CGROUP: /* wakes up the turn's end, which looks at it */
        break;
    case TAG_ERRORS:
        guard_workers_read_errors();
        break;
    case TAG_FENCE:
        on_fence();
        break;
    default:
        guard_workers_reap(event->data.u32);
    }
}

/* How long the next turn may wait; -1 for ever. */
static int advance(void)
{
    int wait_ms;

    if (guard.agent_gone)
        guard_shutdown_kill_unasked();
    wait_ms = guard_shutdown_advance();
    if (guard_shutdown_goes_on())
        return wait_ms;
    guard.fenced = false;
    if (guard.agent_gone) {
        if (!cgroup_remove(&guard.cgroup))
            return REMOVE_ROUND_MS;
        run_tmpdir_remove_empty(guard.scratch);
        launch_lock_remove(guard.scratch);
        _exit(EXIT_SUCCESS);
    }
    return guard.child_died ? 0 : -1;
}

static void run(void)
{
    struct epoll_event events[EVENTS_PER_TURN];
    int wait_ms = -1;

    for (;;) {
        int n = epoll_wait(guard.epoll, events, EVENTS_PER_TURN, wait_ms);

        for (int i = 0; i < n; i++)
            dispatch(&events[i]);
        if (guard.child_died)
            guard.child_died = guard_workers_reap_others();
        wait_ms = advance();
        flush();
        if (guard.agent_gone && !guard_shutdown_goes_on())
            wait_ms = 0; /* that came out just now, and nothing else would wake us */
    }
}

/* -- the start --------------------------------------------------------------------- */

static void block_signals(void)
{
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(SIGCHLD, SIG_DFL); /* ignored, there would be nothing to reap */
}

static void take_cgroup(const char *name)
{
    guard.cgroup = CGROUP_NONE;
    if (name[0] == '\0')
        return;
    guard.cgroup.dir = GUARD_FD_CGROUP;
    guard.cgroup.parent = GUARD_FD_CGROUP_PARENT;
    snprintf(guard.cgroup.name, sizeof(guard.cgroup.name), "%s", name);
}

static void prepare(const char *cgroup_name)
{
    sigset_t child;

    take_cgroup(cgroup_name);
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
    guard_shutdown_init(&guard.cgroup);
    watch(EPOLL_CTL_ADD, GUARD_FD_SOCKET, EPOLLIN | EPOLLRDHUP, TAG_SOCKET);
    watch(EPOLL_CTL_ADD, guard.sigchld, EPOLLIN, TAG_CHILD);
    watch(EPOLL_CTL_ADD, guard.timer, EPOLLIN, TAG_FENCE);
    watch(EPOLL_CTL_ADD, guard_workers_errors(), EPOLLIN, TAG_ERRORS);
    if (guard.cgroup.dir >= 0) /* only changes count: nobody reads this very file */
        watch(EPOLL_CTL_ADD, cgroup_watch(&guard.cgroup), EPOLLPRI | EPOLLET,
              TAG_CGROUP);
}

static bool asked(int argc, char **argv)
{
    int type = 0;
    socklen_t size = sizeof(type);

    return argc == 3 && strcmp(argv[0], GUARD_ARGV0) == 0 &&
           getsockopt(GUARD_FD_SOCKET, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
           type == SOCK_SEQPACKET;
}

void guard_main_if_asked(int argc, char **argv)
{
    guard_reaper_main_if_asked(argc, argv);
    if (!asked(argc, argv))
        return;
    block_signals();
    setsid();
    prctl(PR_SET_NAME, GUARD_ARGV0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    guard.scratch = argv[2];
    prepare(argv[1]);
    run();
}
