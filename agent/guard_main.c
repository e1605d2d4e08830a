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
#include <assert.h>
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
#include <sys/wait.h>
#include <unistd.h>

#include "agent/cgroup.h"
#include "agent/guard.h"
#include "agent/guard_wire.h"
#include "agent/kin.h"
#include "agent/spawn.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/limits.h"

#define OOM_SCORE_ADJ "-500" /* the guard is the last that should go */
#define ASKS_PER_TURN 16
#define EVENTS_PER_TURN 64
#define KIN_PER_ROUND 1024
#define KILL_ROUND_MS_MIN 1
#define KILL_ROUND_MS_MAX 50
/* started, exec failed, exited for each; the answers to a few sweeps; rounded up */
#define TELLS_MAX (4 * WORKERS_PER_NODE_MAX)

/* What an event of the epoll set is about: one of these, or a worker's local rank. */
enum { TAG_SOCKET = WORKERS_PER_NODE_MAX, TAG_CHILD, TAG_CGROUP, TAG_ERRORS };

struct worker {
    pid_t pid; /* 0: none */
    int pidfd;
};

static struct {
    int epoll, sigchld, errors;
    struct cgroup cgroup;
    struct spawn_home home;
    char oom_score_adj[16];
    uint64_t oom_kills;

    struct worker worker[WORKERS_PER_NODE_MAX];
    uint32_t worker_end; /* above the highest local rank there was */

    bool child_died; /* somebody is to be reaped who may not be a worker */
    bool agent_gone; /* end, then exit */
    bool killing;    /* until nothing is left */
    uint32_t kill_round_ms;
    bool sweeping; /* the agent wants to be told when nothing is left */
    uint32_t ticket;
    uint64_t sweep_until_ms;

    struct guard_tell tell[TELLS_MAX];
    uint32_t tell_first, tell_end;
    bool tells_wait; /* for room in the socket */
} guard;

/* -- telling the agent ------------------------------------------------------------- */

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

static void tell(struct guard_tell t)
{
    if (guard.tell_end == TELLS_MAX && guard.tell_first > 0) {
        memmove(guard.tell, guard.tell + guard.tell_first,
                (guard.tell_end - guard.tell_first) * sizeof(guard.tell[0]));
        guard.tell_end -= guard.tell_first;
        guard.tell_first = 0;
    }
    if (guard.tell_end == TELLS_MAX)
        agent_is_gone(); /* or as good as: it has not listened for a whole epoch */
    else
        guard.tell[guard.tell_end++] = t;
}

static void tell_failed(uint32_t local_rank, enum spawn_stage stage, int errnum)
{
    tell((struct guard_tell){ .type = GUARD_TELL_EXEC_FAILED,
                              .local_rank = local_rank,
                              .stage = stage,
                              .status = errnum });
}

static bool is_empty(void)
{
    return !kin_any() && !cgroup_populated(&guard.cgroup);
}

static void tell_exited(uint32_t local_rank, pid_t pid, int status)
{
    struct guard_tell t = { .type = GUARD_TELL_EXITED,
                            .local_rank = local_rank,
                            .pid = pid,
                            .status = status,
                            .nothing_left = is_empty(),
                            .at_ms = clock_ms() };

    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
        uint64_t kills = cgroup_oom_kills(&guard.cgroup);

        t.out_of_memory = kills > guard.oom_kills;
        guard.oom_kills += t.out_of_memory;
    }
    tell(t);
}

static void flush(void)
{
    bool blocked = false;

    while (guard.tell_first < guard.tell_end && !blocked && !guard.agent_gone) {
        uint32_t n = guard.tell_end - guard.tell_first;

        if (n > GUARD_TELLS_PER_PACKET)
            n = GUARD_TELLS_PER_PACKET;
        if (send(GUARD_FD_SOCKET, guard.tell + guard.tell_first,
                 n * sizeof(guard.tell[0]), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
            guard.tell_first += n;
        else if (errno == EAGAIN || errno == ENOBUFS)
            blocked = true;
        else if (errno != EINTR)
            agent_is_gone();
    }
    if (guard.tell_first == guard.tell_end)
        guard.tell_first = guard.tell_end = 0;
    if (blocked == guard.tells_wait)
        return;
    guard.tells_wait = blocked;
    watch(EPOLL_CTL_MOD, GUARD_FD_SOCKET,
          EPOLLIN | EPOLLRDHUP | (blocked ? EPOLLOUT : 0), TAG_SOCKET);
}

/* -- reaping ----------------------------------------------------------------------- */

/* What children wrote who did not get to their exec. */
static void read_errors(void)
{
    struct spawn_failure f[64];
    ssize_t n;

    while ((n = read(guard.errors, f, sizeof(f))) > 0) {
        for (size_t i = 0; i < (size_t)n / sizeof(f[0]); i++) {
            if (f[i].stage != SPAWN_CGROUP)
                tell_failed(f[i].local_rank, (enum spawn_stage)f[i].stage, f[i].errnum);
            else
                tell((struct guard_tell){ .type = GUARD_TELL_SESSION });
        }
    }
}

static void reap_worker(uint32_t local_rank)
{
    struct worker *w = &guard.worker[local_rank];
    int status;

    if (w->pid == 0 || waitpid(w->pid, &status, WNOHANG) != w->pid)
        return;
    read_errors(); /* of this child too: it wrote before it died */
    tell_exited(local_rank, w->pid, status);
    if (w->pidfd >= 0) {
        /* a child that is not at its exec yet has a copy: closing it alone would leave
         * it in the set, and ready */
        watch(EPOLL_CTL_DEL, w->pidfd, 0, local_rank);
        close(w->pidfd);
    }
    w->pid = 0;
}

static uint32_t worker_of(pid_t pid)
{
    for (uint32_t i = 0; i < guard.worker_end; i++)
        if (guard.worker[i].pid == pid)
            return i;
    return UINT32_MAX;
}

/*
 * Orphans that were adopted, and workers without a pidfd. Workers with one are left to
 * their event, for epoll hands these out in the order in which they died; that event
 * may hide others behind it, so it is looked again when it has come.
 */
static void reap_others(void)
{
    siginfo_t info = { 0 };

    guard.child_died = false;
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid > 0) {
        uint32_t local_rank = worker_of(info.si_pid);

        if (local_rank == UINT32_MAX) {
            waitid(P_PID, (id_t)info.si_pid, &info, WEXITED | WNOHANG);
        } else if (guard.worker[local_rank].pidfd < 0) {
            reap_worker(local_rank);
        } else {
            guard.child_died = true;
            return;
        }
        info.si_pid = 0;
    }
}

/* -- signals ----------------------------------------------------------------------- */

/* A stopped process would not act on these. */
static bool wants_cont(int signo)
{
    return signo == SIGTERM || signo == SIGINT || signo == SIGHUP || signo == SIGQUIT;
}

/*
 * To the process group of a worker that is not reaped: until then neither its pid nor
 * its group's number can belong to anybody else.
 */
static void signal_worker(const struct worker *w, int signo)
{
    if (w->pid == 0)
        return;
    if (kill(-w->pid, signo) < 0)
        kill(w->pid, signo); /* not far enough yet to have a group */
    if (wants_cont(signo))
        signal_worker(w, SIGCONT);
}

static void signal_workers(int signo)
{
    for (uint32_t i = 0; i < guard.worker_end; i++)
        signal_worker(&guard.worker[i], signo);
}

/* To every child, workers and adopted orphans alike. */
static void signal_children(int signo)
{
    static pid_t pids[KIN_PER_ROUND];
    size_t count = kin_children(pids, KIN_PER_ROUND);

    for (size_t i = 0; i < count; i++) {
        kill(pids[i], signo);
        if (wants_cont(signo))
            kill(pids[i], SIGCONT);
    }
}

static void kill_all(void)
{
    cgroup_kill(&guard.cgroup);
    signal_workers(SIGKILL);
    signal_children(SIGKILL);
}

static void start_killing(void)
{
    if (!guard.killing)
        guard.kill_round_ms = KILL_ROUND_MS_MIN;
    guard.killing = true;
}

/* -- what the agent asks for ------------------------------------------------------- */

static void spawn_failed(uint32_t local_rank, enum spawn_stage stage, int errnum)
{
    tell_failed(local_rank, stage, errnum);
    tell((struct guard_tell){ .type = GUARD_TELL_EXITED,
                              .local_rank = local_rank,
                              .status = 127 << 8,
                              .at_ms = clock_ms() });
}

static void spawn(const struct spawn *s)
{
    struct worker *w = &guard.worker[s->local_rank];

    w->pid = spawn_worker(s, &guard.home, &w->pidfd);
    if (w->pid < 0) {
        w->pid = 0;
        spawn_failed(s->local_rank, SPAWN_CLONE, errno);
        return;
    }
    if (s->local_rank >= guard.worker_end)
        guard.worker_end = s->local_rank + 1;
    if (w->pidfd >= 0)
        watch(EPOLL_CTL_ADD, w->pidfd, EPOLLIN, s->local_rank);
    tell((struct guard_tell){
        .type = GUARD_TELL_STARTED, .local_rank = s->local_rank, .pid = w->pid });
}

static void ask_spawn(const struct guard_ask *ask, const int fd[GUARD_ASK_FDS])
{
    struct spawn s = { .local_rank = ask->local_rank,
                       .is_tty = ask->is_tty,
                       .numa_node = ask->numa_node };
    struct guard_world world;

    if (guard.worker[ask->local_rank].pid != 0) {
        spawn_failed(ask->local_rank, SPAWN_WORLD, EEXIST);
        return;
    }
    memcpy(s.fd, fd, sizeof(s.fd));
    if (fd[3] < 0 || guard_world_open(&world, fd[3], ask, &s) < 0) {
        spawn_failed(ask->local_rank, SPAWN_WORLD, fd[3] < 0 ? EMFILE : errno);
        return;
    }
    spawn(&s);
    guard_world_close(&world);
}

static void ask_signal(const struct guard_ask *ask)
{
    if (ask->local_rank == GUARD_ALL)
        signal_workers(ask->signo);
    else
        signal_worker(&guard.worker[ask->local_rank], ask->signo);
}

static void ask_sweep(const struct guard_ask *ask)
{
    guard.sweeping = true;
    guard.ticket = ask->ticket;
    guard.sweep_until_ms = clock_ms() + ask->grace_ms;
    if (kin_any())
        signal_children(SIGTERM);
}

static void ask_kill(const struct guard_ask *ask)
{
    guard.sweeping = true;
    guard.ticket = ask->ticket;
    start_killing();
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
        ask_signal(ask);
        break;
    case GUARD_ASK_KILL:
        ask_kill(ask);
        break;
    case GUARD_ASK_SWEEP:
        ask_sweep(ask);
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
        read_errors();
        break;
    default:
        reap_worker(event->data.u32);
    }
}

/* How long the next turn may wait; -1 for ever. */
static int advance(void)
{
    if (guard.agent_gone)
        start_killing();
    if ((guard.sweeping || guard.killing) && is_empty()) {
        if (guard.agent_gone && cgroup_remove(&guard.cgroup))
            _exit(EXIT_SUCCESS);
        if (guard.sweeping)
            tell((struct guard_tell){ .type = GUARD_TELL_EMPTY,
                                      .local_rank = guard.ticket });
        guard.sweeping = guard.killing = false;
    }
    if (guard.sweeping && !guard.killing) {
        uint64_t now_ms = clock_ms();

        if (now_ms < guard.sweep_until_ms)
            return (int)(guard.sweep_until_ms - now_ms);
        start_killing();
    }
    if (!guard.killing && !guard.agent_gone)
        return guard.child_died ? 0 : -1;
    kill_all();
    if (guard.kill_round_ms < KILL_ROUND_MS_MAX)
        guard.kill_round_ms *= 2;
    return (int)guard.kill_round_ms;
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
            reap_others();
        wait_ms = advance();
        flush();
        if (guard.agent_gone && !guard.killing)
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

/* As many descriptors as there can be; the workers get back the limit that was. */
static void raise_nofile(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &guard.home.nofile) < 0)
        return;
    limit = guard.home.nofile;
    limit.rlim_cur = limit.rlim_max;
    guard.home.restore_nofile = limit.rlim_cur != guard.home.nofile.rlim_cur &&
                                setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static void lower_oom_score(void)
{
    int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0
                       : read(fd, guard.oom_score_adj, sizeof(guard.oom_score_adj) - 1);

    if (n > 0 && atoi(guard.oom_score_adj) > atoi(OOM_SCORE_ADJ) &&
        pwrite(fd, OOM_SCORE_ADJ, strlen(OOM_SCORE_ADJ), 0) > 0)
        guard.home.oom_score_adj = guard.oom_score_adj;
    if (fd >= 0)
        close(fd);
}

static void prepare(const char *cgroup_name)
{
    int errors[2];
    sigset_t child;

    guard.cgroup = CGROUP_NONE;
    if (cgroup_name[0] != '\0') {
        guard.cgroup.dir = GUARD_FD_CGROUP;
        guard.cgroup.parent = GUARD_FD_CGROUP_PARENT;
        snprintf(guard.cgroup.name, sizeof(guard.cgroup.name), "%s", cgroup_name);
    }
    for (int fd = GUARD_FD_SOCKET;
         fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 || fd < GUARD_FD_PAGES; fd++)
        ;
    if (pipe2(errors, O_CLOEXEC) < 0)
        _exit(EXIT_FAILURE);
    fcntl(errors[0], F_SETFL, O_NONBLOCK);
    guard.errors = errors[0];
    guard.home.errors = errors[1];
    guard.home.cgroup = guard.cgroup.dir;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    guard.sigchld = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    guard.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (guard.sigchld < 0 || guard.epoll < 0)
        _exit(EXIT_FAILURE);
    guard.oom_kills = cgroup_oom_kills(&guard.cgroup);
    watch(EPOLL_CTL_ADD, GUARD_FD_SOCKET, EPOLLIN | EPOLLRDHUP, TAG_SOCKET);
    watch(EPOLL_CTL_ADD, guard.sigchld, EPOLLIN, TAG_CHILD);
    watch(EPOLL_CTL_ADD, guard.errors, EPOLLIN, TAG_ERRORS);
    if (guard.cgroup.dir >= 0) /* only changes count: nobody reads this very file */
        watch(EPOLL_CTL_ADD, cgroup_watch(&guard.cgroup), EPOLLPRI | EPOLLET,
              TAG_CGROUP);
}

static bool asked(int argc, char **argv)
{
    int type = 0;
    socklen_t size = sizeof(type);

    return argc == 2 && strcmp(argv[0], GUARD_ARGV0) == 0 &&
           getsockopt(GUARD_FD_SOCKET, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
           type == SOCK_SEQPACKET;
}

void guard_main_if_asked(int argc, char **argv)
{
    if (!asked(argc, argv))
        return;
    block_signals();
    setsid();
    prctl(PR_SET_NAME, GUARD_ARGV0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    raise_nofile();
    lower_oom_score();
    prepare(argv[1]);
    run();
}
