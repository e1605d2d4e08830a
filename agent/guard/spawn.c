/* SPDX-License-Identifier: MIT */
/*
 * From clone to exec. The child makes system calls only: it is a copy of the guard that
 * becomes the worker without keeping anything of the guard, and it never outlives the
 * guard. If the kernel lacks a feature, the next of `ways` is tried.
 */
#include "agent/guard/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/mempolicy.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_NOT_EXECUTED 127

/* The ways to make the child, best first; the last one is fork. */
static const struct spawn_way {
    bool clone3;
    uint64_t flags;
} ways[] = {
    { true, CLONE_PIDFD | CLONE_INTO_CGROUP },
    { true, CLONE_PIDFD },
    { true, 0 },
    { false, 0 },
};

enum { WAY_COUNT = sizeof(ways) / sizeof(ways[0]) };

static const char *const stage_names[SPAWN_STAGE_COUNT] = {
    [SPAWN_CLONE] = "clone",
    [SPAWN_CGROUP] = "cgroup.procs",
    [SPAWN_SETSID] = "setsid",
    [SPAWN_RLIMIT] = "setrlimit",
    [SPAWN_AFFINITY] = "sched_setaffinity",
    [SPAWN_MEMPOLICY] = "set_mempolicy",
    [SPAWN_STDIO] = "dup2",
    [SPAWN_TTY] = "TIOCSCTTY",
    [SPAWN_EXEC] = "execve",
    [SPAWN_PAYLOAD] = "receive",
    [SPAWN_FENCE] = "fence",
};

const char *spawn_stage_name(enum spawn_stage stage)
{
    return stage < SPAWN_STAGE_COUNT ? stage_names[stage] : "?";
}

/* -- the child ------------------------------------------------------------------ */

static void write_failure_record(const struct spawn *s, const struct spawn_home *home,
                                 enum spawn_stage stage)
{
    struct spawn_failure f = { s->local_rank, stage, errno };

    while (write(home->errors, &f, sizeof(f)) < 0 && errno == EINTR)
        ;
}

int spawn_write_text(int dir, const char *path, const char *text)
{
    int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));
    int saved_errno = errno;

    close(fd);
    errno = saved_errno;
    return n < 0 ? -1 : 0;
}

static int bind_memory(int node)
{
    enum { BITS = 8 * sizeof(unsigned long) };
    unsigned long mask[1024 / BITS] = { 0 };

    if (node < 0)
        return 0;
    if (node >= 1024) {
        errno = EINVAL;
        return -1;
    }
    mask[node / BITS] = 1ul << (node % BITS);
    return (int)syscall(SYS_set_mempolicy, MPOL_BIND, mask, 1024ul + 1);
}

/* Returns the stage that failed, or SPAWN_EXEC if none did. */
static enum spawn_stage prepare_child(const struct spawn *s,
                                      const struct spawn_home *home)
{
    if (setsid() < 0)
        return SPAWN_SETSID;
    if (home->oom_score_adj)
        spawn_write_text(AT_FDCWD, "/proc/self/oom_score_adj", home->oom_score_adj);
    if (s->cpus_size > 0 && sched_setaffinity(0, s->cpus_size, s->cpus) < 0)
        return SPAWN_AFFINITY;
    if (bind_memory(s->numa_node) < 0)
        return SPAWN_MEMPOLICY;
    for (int i = 0; i < 3; i++)
        if (dup2(s->fd[i], i) < 0)
            return SPAWN_STDIO;
    if (s->is_tty &&
        ioctl(isatty(STDOUT_FILENO) ? STDOUT_FILENO : STDERR_FILENO, TIOCSCTTY, 0) < 0)
        return SPAWN_TTY;
    /* for safety: all that the guard opens is close-on-exec anyway */
    syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC);
    if (s->socket > 0 && dup2(s->socket, STDERR_FILENO + 1) < 0)
        return SPAWN_STDIO;
    if (home->restore_nofile && setrlimit(RLIMIT_NOFILE, &home->nofile) < 0)
        return SPAWN_RLIMIT;
    return SPAWN_EXEC;
}

static void run_child(const struct spawn *s, const struct spawn_home *home,
                      pid_t parent, bool in_cgroup)
{
    enum spawn_stage stage;
    sigset_t none;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_NOT_EXECUTED);
    if (!in_cgroup && spawn_write_text(home->cgroup, "cgroup.procs", "0") < 0)
        write_failure_record(s, home, SPAWN_CGROUP);
    stage = prepare_child(s, home);
    if (stage == SPAWN_EXEC) {
        /* The other dispositions are those of the guard's start: SIGHUP ignored by
         * nohup stays ignored. Signals arrive from here on. */
        signal(SIGPIPE, SIG_DFL);
        signal(SIGCHLD, SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        execve(s->argv[0], s->argv, s->env);
    }
    write_failure_record(s, home, stage);
    _exit(EXIT_NOT_EXECUTED);
}

/* -- the parent ----------------------------------------------------------------- */

static pid_t clone_child(const struct spawn_way *way, int cgroup, int *pidfd)
{
    struct clone_args args = {
        .flags = way->flags,
        .pidfd = (uint64_t)(uintptr_t)pidfd,
        .exit_signal = SIGCHLD,
        .cgroup = (uint64_t)cgroup,
    };

    *pidfd = -1;
    if (!way->clone3)
        return fork();
    return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

/*
 * The first child that is cloned into a cgroup reports that it lives: the cgroup of
 * crun itself may have been killed before crun was started in it (see
 * cgroup_make_below). -1 and ESTALE: the child was killed at birth, as all others would
 * be.
 */
static pid_t clone_first_child(const struct spawn_way *way, struct spawn_home *home,
                               int *pidfd)
{
    int alive_pipe[2];
    char byte;
    pid_t pid;

    if (pipe2(alive_pipe, O_CLOEXEC) < 0)
        return -1;
    pid = clone_child(way, home->cgroup, pidfd);
    if (pid == 0) {
        (void)TEMP_FAILURE_RETRY(write(alive_pipe[1], "", 1));
        return 0;
    }
    close(alive_pipe[1]);
    home->clone_into_works = pid > 0 &&
                             TEMP_FAILURE_RETRY(read(alive_pipe[0], &byte, 1)) == 1;
    close(alive_pipe[0]);
    if (pid < 0 || home->clone_into_works)
        return pid;
    TEMP_FAILURE_RETRY(waitpid(pid, NULL, 0));
    close(*pidfd);
    home->clone_into_fails = true;
    errno = ESTALE;
    return -1;
}

pid_t spawn_worker(const struct spawn *s, struct spawn_home *home, int *pidfd)
{
    pid_t parent = getpid(), pid = -1;
    bool lasting = true; /* a way that failed will fail again */
    unsigned first = home->way, way;

    if (first == 0 && (home->cgroup < 0 || home->clone_into_fails))
        first = 1;
    for (way = first; way < WAY_COUNT; way++) {
        bool is_born_there = ways[way].flags & CLONE_INTO_CGROUP;
        bool in_cgroup = home->cgroup < 0 || is_born_there;

        if (is_born_there && !home->clone_into_works)
            pid = clone_first_child(&ways[way], home, pidfd);
        else
            pid = clone_child(&ways[way], home->cgroup, pidfd);
        if (pid == 0)
            run_child(s, home, parent, in_cgroup);
        if (pid > 0 || errno == EAGAIN || errno == ENOMEM)
            break;
        lasting = lasting && errno != EMFILE && errno != ENFILE;
    }
    if (pid < 0)
        return -1;
    if (lasting && way > first)
        home->way = way;
    if (*pidfd < 0) /* the child is not reaped yet, so its pid is not reused */
        *pidfd = (int)syscall(SYS_pidfd_open, pid, 0u);
    return pid;
}
