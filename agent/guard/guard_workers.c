/* SPDX-License-Identifier: MIT */
#include "agent/guard/guard_workers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/guard/guard_events.h"
#include "agent/guard/guard_wire.h"
#include "agent/cleanup/child_procs.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/limits.h"

#define OOM_SCORE_ADJ "-500" /* the guard is the last that should go */

struct worker {
    pid_t pid; /* 0: none */
    int pidfd;
};

static struct {
    int epoll, errors;
    const struct cgroup *cgroup;
    struct spawn_home home;
    bool wants_group; /* the last one was killed, and there could be no other yet */
    char oom_score_adj[16];
    uint64_t oom_kills;
    bool tired; /* the machine is full, and was so when we tried again */
    struct worker worker[WORKERS_PER_NODE_MAX];
    uint32_t end; /* above the highest local rank there was */
} table;

/* -- what all of them get ---------------------------------------------------------- */

/* As many descriptors as there can be; the workers get back the limit that was. */
static void raise_nofile(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &table.home.nofile) < 0)
        return;
    limit = table.home.nofile;
    limit.rlim_cur = limit.rlim_max;
    table.home.restore_nofile = limit.rlim_cur != table.home.nofile.rlim_cur &&
                                setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static void lower_oom_score(void)
{
    int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0
                       : read(fd, table.oom_score_adj, sizeof(table.oom_score_adj) - 1);

    if (n > 0 && atoi(table.oom_score_adj) > atoi(OOM_SCORE_ADJ) &&
        pwrite(fd, OOM_SCORE_ADJ, strlen(OOM_SCORE_ADJ), 0) > 0)
        table.home.oom_score_adj = table.oom_score_adj;
    if (fd >= 0)
        close(fd);
}

bool guard_workers_init(int epoll, const struct cgroup *cgroup)
{
    int errors[2];

    if (pipe2(errors, O_CLOEXEC) < 0)
        return false;
    fcntl(errors[0], F_SETFL, O_NONBLOCK);
    table.epoll = epoll;
    table.errors = errors[0];
    table.cgroup = cgroup;
    table.home.errors = errors[1];
    table.home.cgroup = cgroup->dir;
    table.oom_kills = cgroup_oom_kills(cgroup);
    raise_nofile();
    lower_oom_score();
    return true;
}

/* Until there can be a new group the children move into the old one themselves; where
 * nobody can be born into any, they do so for good. */
void guard_workers_move_home(void)
{
    bool below = table.home.cgroup != table.cgroup->dir;

    if (table.cgroup->dir < 0 || (table.home.keep_out && !table.wants_group))
        return;
    table.home.cgroup = cgroup_make_below(table.cgroup, below ? table.home.cgroup : -1);
    table.wants_group = table.home.keep_out = table.home.cgroup < 0;
    if (table.wants_group)
        table.home.cgroup = table.cgroup->dir;
}

int guard_workers_errors(void)
{
    return table.errors;
}

/* -- starting ---------------------------------------------------------------------- */

static void tell_failed(uint32_t local_rank, enum spawn_stage stage, int errnum)
{
    guard_events_add((struct guard_tell){ .type = GUARD_TELL_EXEC_FAILED,
                                          .local_rank = local_rank,
                                          .stage = stage,
                                          .status = errnum });
}

void guard_workers_spawn_failed(uint32_t local_rank, enum spawn_stage stage, int errnum)
{
    tell_failed(local_rank, stage, errnum);
    guard_events_add((struct guard_tell){ .type = GUARD_TELL_EXITED,
                                          .local_rank = local_rank,
                                          .status = 127 << 8,
                                          .at_ms = clock_ms() });
}

static void tell_again(uint32_t local_rank, int errnum)
{
    guard_events_add((struct guard_tell){
        .type = GUARD_TELL_AGAIN, .local_rank = local_rank, .status = errnum });
    guard_events_flush();
}

static bool machine_is_full(int errnum)
{
    return errnum == EAGAIN || errnum == ENOMEM;
}

/* Of a group of thousands only the first waits for room: the others fail with it. */
static pid_t spawn_patiently(const struct spawn *s, int *pidfd)
{
    static const long naps_ms[] = { 50, 200, 800 };
    enum { NAPS = sizeof(naps_ms) / sizeof(naps_ms[0]) };
    pid_t pid = spawn_worker(s, &table.home, pidfd);

    for (size_t i = 0; i < NAPS && !table.tired && pid < 0 && machine_is_full(errno);
         i++) {
        struct timespec nap = { .tv_sec = 0, .tv_nsec = naps_ms[i] * 1000000 };

        if (i == 0)
            tell_again(s->local_rank, errno);
        nanosleep(&nap, NULL);
        pid = spawn_worker(s, &table.home, pidfd);
    }
    table.tired = pid < 0 && machine_is_full(errno);
    return pid;
}

void guard_workers_spawn(const struct spawn *s)
{
    struct worker *w = &table.worker[s->local_rank];

    w->pid = spawn_patiently(s, &w->pidfd);
    if (w->pid < 0) {
        w->pid = 0;
        guard_workers_spawn_failed(s->local_rank, SPAWN_CLONE, errno);
        return;
    }
    if (s->local_rank >= table.end)
        table.end = s->local_rank + 1;
    if (w->pidfd >= 0) {
        struct epoll_event event = { .events = EPOLLIN, .data.u32 = s->local_rank };

        epoll_ctl(table.epoll, EPOLL_CTL_ADD, w->pidfd, &event);
    }
    guard_events_add((struct guard_tell){
        .type = GUARD_TELL_STARTED, .local_rank = s->local_rank, .pid = w->pid });
}

/* -- reaping ----------------------------------------------------------------------- */

bool guard_workers_none(void)
{
    return !child_procs_any() && !cgroup_populated(table.cgroup);
}

static void tell_exited(uint32_t local_rank, pid_t pid, int status)
{
    struct guard_tell t = { .type = GUARD_TELL_EXITED,
                            .local_rank = local_rank,
                            .pid = pid,
                            .status = status,
                            .nothing_left = guard_workers_none(),
                            .at_ms = clock_ms() };

    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
        uint64_t kills = cgroup_oom_kills(table.cgroup);

        t.out_of_memory = kills > table.oom_kills;
        table.oom_kills += t.out_of_memory;
    }
    guard_events_add(t);
}

void guard_workers_read_errors(void)
{
    struct spawn_failure f[64];
    ssize_t n;

    while ((n = read(table.errors, f, sizeof(f))) > 0) {
        for (size_t i = 0; i < (size_t)n / sizeof(f[0]); i++) {
            if (f[i].stage != SPAWN_CGROUP)
                tell_failed(f[i].local_rank, (enum spawn_stage)f[i].stage, f[i].errnum);
            else
                guard_events_add((struct guard_tell){ .type = GUARD_TELL_SESSION });
        }
    }
}

void guard_workers_reap(uint32_t local_rank)
{
    struct worker *w = &table.worker[local_rank];
    int status;

    if (w->pid == 0 || waitpid(w->pid, &status, WNOHANG) != w->pid)
        return;
    guard_workers_read_errors(); /* of this child too: it wrote before it died */
    tell_exited(local_rank, w->pid, status);
    if (w->pidfd >= 0) {
        /* a child that is not at its exec yet has a copy: closing it alone would leave
         * it in the set, and ready */
        epoll_ctl(table.epoll, EPOLL_CTL_DEL, w->pidfd, NULL);
        close(w->pidfd);
    }
    w->pid = 0;
}

static uint32_t worker_of(pid_t pid)
{
    for (uint32_t i = 0; i < table.end; i++)
        if (table.worker[i].pid == pid)
            return i;
    return GUARD_ALL;
}

/*
 * Workers with a pidfd are left to their event, for epoll hands these out in the order
 * in which they died; that event may hide others behind it, so it is looked again when
 * it has come.
 */
bool guard_workers_reap_others(void)
{
    siginfo_t info = { 0 };

    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid > 0) {
        uint32_t local_rank = worker_of(info.si_pid);

        if (local_rank == GUARD_ALL)
            waitid(P_PID, (id_t)info.si_pid, &info, WEXITED | WNOHANG);
        else if (table.worker[local_rank].pidfd < 0)
            guard_workers_reap(local_rank);
        else
            return true;
        info.si_pid = 0;
    }
    return false;
}

/* -- signals ----------------------------------------------------------------------- */

bool guard_workers_wants_cont(int signo)
{
    return signo == SIGTERM || signo == SIGINT || signo == SIGHUP || signo == SIGQUIT;
}

/*
 * To the process group of a worker that is not reaped: until then neither its pid nor
 * its group's number can belong to anybody else.
 */
static void signal_worker_group(const struct worker *w, int signo)
{
    if (w->pid == 0)
        return;
    if (kill(-w->pid, signo) < 0)
        kill(w->pid, signo); /* not far enough yet to have a group */
    if (guard_workers_wants_cont(signo))
        signal_worker_group(w, SIGCONT);
}

void guard_workers_signal_all(int signo)
{
    for (uint32_t i = 0; i < table.end; i++)
        signal_worker_group(&table.worker[i], signo);
}

void guard_workers_signal(uint32_t local_rank, int signo)
{
    if (table.worker[local_rank].pid != 0)
        kill(table.worker[local_rank].pid, signo);
}

bool guard_workers_taken(uint32_t local_rank)
{
    return table.worker[local_rank].pid != 0;
}

bool guard_workers_has(pid_t pid)
{
    return worker_of(pid) != GUARD_ALL;
}
