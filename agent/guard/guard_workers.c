/* SPDX-License-Identifier: MIT */
#include "agent/guard/guard_workers.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/cleanup/child_procs.h"
#include "agent/guard/guard_events.h"
#include "agent/guard/guard_wire.h"
#include "agent/guard/oom_kills.h"
#include "agent/guard/spawn_retry.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/limits.h"

struct guard_worker {
    pid_t pid; /* 0: none */
    int pidfd;
};

static struct {
    int epoll, errors;
    const struct cgroup *cgroup; /* of the workers */
    pid_t excepted;              /* a child that is no worker; 0: none */
    struct spawn_home home;
    bool wants_cgroup; /* the last one was killed, and no new one could be made yet */
    char oom_score_adj[16];
    struct guard_worker worker[WORKERS_PER_NODE_MAX];
    uint32_t end; /* one above the highest local rank so far */
} table;

/* -- the environment of all workers --------------------------------------------- */

/* The guard needs many descriptors; the workers get the original limit. */
static void raise_nofile_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &table.home.nofile) < 0)
        return;
    limit = table.home.nofile;
    limit.rlim_cur = limit.rlim_max;
    table.home.restore_nofile = limit.rlim_cur != table.home.nofile.rlim_cur &&
                                setrlimit(RLIMIT_NOFILE, &limit) == 0;
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
    raise_nofile_limit();
    if (oom_kills_spare_guard(table.oom_score_adj, sizeof(table.oom_score_adj)))
        table.home.oom_score_adj = table.oom_score_adj;
    return true;
}

/* While no new cgroup can be made, children move into the old one themselves; if clone
 * cannot put them into a cgroup at all, they always do so. */
void guard_workers_renew_cgroup(void)
{
    bool below = table.home.cgroup != table.cgroup->dir;

    if (table.cgroup->dir < 0 || (table.home.clone_into_fails && !table.wants_cgroup))
        return;
    table.home.cgroup = cgroup_make_below(table.cgroup, below ? table.home.cgroup : -1);
    table.wants_cgroup = table.home.clone_into_fails = table.home.cgroup < 0;
    if (table.wants_cgroup)
        table.home.cgroup = table.cgroup->dir;
}

void guard_workers_set_cgroup(const struct cgroup *cgroup)
{
    table.cgroup = cgroup;
    table.home.cgroup = cgroup->dir;
    table.home.clone_into_works = table.home.clone_into_fails = false;
    table.wants_cgroup = false;
}

const struct cgroup *guard_workers_cgroup(void)
{
    return table.cgroup;
}

const struct spawn_home *guard_workers_home(void)
{
    return &table.home;
}

int guard_workers_error_fd(void)
{
    return table.errors;
}

/* -- starting ------------------------------------------------------------------- */

static void report_exec_failed(uint32_t local_rank, enum spawn_stage stage, int errnum)
{
    guard_events_add((struct guard_event){ .type = GUARD_EVENT_EXEC_FAILED,
                                           .local_rank = local_rank,
                                           .stage = stage,
                                           .status = errnum });
}

void guard_workers_spawn_failed(uint32_t local_rank, enum spawn_stage stage, int errnum)
{
    report_exec_failed(local_rank, stage, errnum);
    guard_events_add((struct guard_event){ .type = GUARD_EVENT_EXITED,
                                           .local_rank = local_rank,
                                           .status = 127 << 8,
                                           .at_ms = clock_ms() });
}

static void register_worker(uint32_t local_rank, pid_t pid, int pidfd)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u32 = local_rank };

    table.worker[local_rank] = (struct guard_worker){ .pid = pid, .pidfd = pidfd };
    if (local_rank >= table.end)
        table.end = local_rank + 1;
    if (pidfd >= 0)
        epoll_ctl(table.epoll, EPOLL_CTL_ADD, pidfd, &event);
    guard_events_add((struct guard_event){
        .type = GUARD_EVENT_STARTED, .local_rank = local_rank, .pid = pid });
    /* now that a worker runs: to find the counter takes longer than to start one */
    oom_kills_watch(table.cgroup);
}

void guard_workers_spawn(const struct guard_request *request,
                         const int fd[GUARD_REQUEST_FDS])
{
    struct spawn s = { .local_rank = request->local_rank,
                       .is_tty = request->is_tty,
                       .numa_node = request->numa_node };
    struct guard_payload payload;
    pid_t pid;
    int pidfd, errnum;

    memcpy(s.fd, fd, sizeof(s.fd));
    if (fd[3] < 0 || guard_payload_open(&payload, fd[3], request, &s) < 0) {
        guard_workers_spawn_failed(s.local_rank, SPAWN_PAYLOAD,
                                   fd[3] < 0 ? EMFILE : errno);
        return;
    }
    pid = spawn_with_retries(&s, &table.home, &pidfd);
    errnum = errno;
    guard_payload_close(&payload);
    if (pid < 0)
        guard_workers_spawn_failed(s.local_rank, SPAWN_CLONE, errnum);
    else
        register_worker(s.local_rank, pid, pidfd);
}

/* -- adopting ------------------------------------------------------------------- */

/* -1 and ECHILD if it is none or has ended. Only this process reaps it, so the pid
 * cannot become that of another process now. */
static int check_living_child(pid_t pid)
{
    siginfo_t info = { 0 };

    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
        return -1;
    errno = ECHILD;
    return info.si_pid == 0 ? 0 : -1;
}

static int move_to_cgroup(pid_t pid)
{
    char text[16];

    if (table.home.cgroup < 0)
        return 0;
    snprintf(text, sizeof(text), "%d", (int)pid);
    return spawn_write_text(table.home.cgroup, "cgroup.procs", text);
}

static int move_to_cpus(pid_t pid, const struct guard_request *request, int fd)
{
    struct guard_payload payload;
    struct spawn s;
    int rc;

    if (request->cpus_size == 0)
        return 0;
    if (guard_payload_open(&payload, fd, request, &s) < 0)
        return -1;
    rc = sched_setaffinity(pid, s.cpus_size, s.cpus);
    guard_payload_close(&payload);
    return rc;
}

int guard_workers_adopt(const struct guard_request *request, int payload, pid_t pid,
                        int channel)
{
    if (pid == table.excepted || guard_workers_has(pid)) {
        errno = EEXIST;
        return -1;
    }
    if (check_living_child(pid) < 0 || move_to_cgroup(pid) < 0 ||
        move_to_cpus(pid, request, payload) < 0 ||
        send(channel, "go", 2, MSG_DONTWAIT | MSG_NOSIGNAL) != 2)
        return -1;
    register_worker(request->local_rank, pid, (int)syscall(SYS_pidfd_open, pid, 0u));
    return 0;
}

/* -- reaping -------------------------------------------------------------------- */

void guard_workers_except(pid_t pid)
{
    table.excepted = pid;
}

bool guard_workers_is_excepted(pid_t pid)
{
    return pid == table.excepted;
}

/* The list is reliable: no child leaves it unless this process reaps it. */
static bool has_other_children(void)
{
    pid_t pids[4];
    size_t count;

    if (table.excepted == 0)
        return child_procs_exist();
    count = child_procs_list(pids, sizeof(pids) / sizeof(pids[0]));
    for (size_t i = 0; i < count; i++)
        if (pids[i] != table.excepted)
            return true;
    return false;
}

bool guard_workers_is_empty(void)
{
    return !has_other_children() && !cgroup_populated(table.cgroup);
}

static void report_exited(uint32_t local_rank, pid_t pid, int status)
{
    struct guard_event t = { .type = GUARD_EVENT_EXITED,
                             .local_rank = local_rank,
                             .pid = pid,
                             .status = status,
                             .nothing_left = guard_workers_is_empty(),
                             .at_ms = clock_ms() };

    t.out_of_memory = oom_kills_claim(status);
    guard_events_add(t);
}

void guard_workers_read_errors(void)
{
    struct spawn_failure f[64];
    ssize_t n;

    while ((n = read(table.errors, f, sizeof(f))) > 0) {
        for (size_t i = 0; i < (size_t)n / sizeof(f[0]); i++) {
            if (f[i].stage != SPAWN_CGROUP)
                report_exec_failed(f[i].local_rank, (enum spawn_stage)f[i].stage,
                                   f[i].errnum);
            else
                guard_events_add((struct guard_event){ .type = GUARD_EVENT_SESSION });
        }
    }
}

void guard_workers_reap(uint32_t local_rank)
{
    struct guard_worker *w = &table.worker[local_rank];
    int status;

    if (w->pid == 0 || waitpid(w->pid, &status, WNOHANG) != w->pid)
        return;
    guard_workers_read_errors(); /* also of this child: it wrote before it died */
    report_exited(local_rank, w->pid, status);
    if (w->pidfd >= 0) {
        /* a child before its exec has a copy: without DEL the pidfd would stay in the
         * set, and ready */
        epoll_ctl(table.epoll, EPOLL_CTL_DEL, w->pidfd, NULL);
        close(w->pidfd);
    }
    w->pid = 0;
}

static uint32_t find_local_rank(pid_t pid)
{
    for (uint32_t i = 0; i < table.end; i++)
        if (table.worker[i].pid == pid)
            return i;
    return GUARD_ALL;
}

/*
 * A worker with a pidfd is reaped at its epoll event, because epoll reports the deaths
 * in their order. Such a worker may hide others behind it in waitid, so this is called
 * again after its event.
 */
bool guard_workers_reap_others(void)
{
    siginfo_t info = { 0 };

    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid > 0) {
        uint32_t local_rank = find_local_rank(info.si_pid);

        if (info.si_pid == table.excepted)
            return true; /* its owner reaps it */
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

/* -- signals -------------------------------------------------------------------- */

bool guard_workers_wants_cont(int signo)
{
    return signo == SIGTERM || signo == SIGINT || signo == SIGHUP || signo == SIGQUIT;
}

/*
 * Signals the process group of a worker that is not reaped yet: until then its pid and
 * the number of its group cannot be reused.
 */
static void signal_worker_group(const struct guard_worker *w, int signo)
{
    if (w->pid == 0)
        return;
    if (kill(-w->pid, signo) < 0)
        kill(w->pid, signo); /* it has no group yet */
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

bool guard_workers_is_taken(uint32_t local_rank)
{
    return table.worker[local_rank].pid != 0;
}

bool guard_workers_has(pid_t pid)
{
    return find_local_rank(pid) != GUARD_ALL;
}
