/* SPDX-License-Identifier: MIT */
/*
 * From clone to exec. The child runs only system calls: it is a copy of the guard that
 * must become the worker without leaving anything of the guard in it, and without ever
 * outliving the guard. What the kernel lacks is left out feature by feature: `ways`.
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

/* How to make the child, best first; the last one is fork. */
static const struct way {
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
    [SPAWN_WORLD] = "receive",
    [SPAWN_FENCE] = "fence",
};

const char *spawn_stage_name(enum spawn_stage stage)
{
    return stage < SPAWN_STAGE_COUNT ? stage_names[stage] : "?";
}

/* -- the child --------------------------------------------------------------------- */

static void record(const struct spawn *s, const struct spawn_home *home,
                   enum spawn_stage stage)
{
    struct spawn_failure f = { s->local_rank, stage, errno };

    while (write(home->errors, &f, sizeof(f)) < 0 && errno == EINTR)
        ;
}

static int put(int dir, const char *path, const char *text)
{
    int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));
    int saved_errno = errno;

    close(fd);
    errno = saved_errno;
    return n < 0 ? -1 : 0;
}

/* Dies with the guard from here on; the guard may be dead already. */
static void tie_to_parent(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_NOT_EXECUTED);
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

static int place_stdio(const int fd[3])
{
    for (int i = 0; i < 3; i++)
        if (dup2(fd[i], i) < 0)
            return -1;
    return 0;
}

static int take_terminal(bool is_tty)
{
    if (!is_tty)
        return 0;
    return ioctl(isatty(STDOUT_FILENO) ? STDOUT_FILENO : STDERR_FILENO, TIOCSCTTY, 0);
}

/*
 * Dispositions are those that the guard was started with, for it changes none but these
 * two: nohup's ignored SIGHUP stays so. Last, for from here on signals arrive.
 */
static void clean_signals(void)
{
    sigset_t none;

    signal(SIGPIPE, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The stage that failed, or SPAWN_EXEC if all is prepared. */
static enum spawn_stage prepare(const struct spawn *s, const struct spawn_home *home)
{
    if (setsid() < 0)
        return SPAWN_SETSID;
    if (home->oom_score_adj)
        put(AT_FDCWD, "/proc/self/oom_score_adj", home->oom_score_adj);
    if (s->cpus_size > 0 && sched_setaffinity(0, s->cpus_size, s->cpus) < 0)
        return SPAWN_AFFINITY;
    if (bind_memory(s->numa_node) < 0)
        return SPAWN_MEMPOLICY;
    if (place_stdio(s->fd) < 0)
        return SPAWN_STDIO;
    if (take_terminal(s->is_tty) < 0)
        return SPAWN_TTY;
    /* a second line: all that the guard opens is close-on-exec anyway */
    syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC);
    if (home->restore_nofile && setrlimit(RLIMIT_NOFILE, &home->nofile) < 0)
        return SPAWN_RLIMIT;
    return SPAWN_EXEC;
}

static void child(const struct spawn *s, const struct spawn_home *home, pid_t parent,
                  bool in_cgroup)
{
    enum spawn_stage stage;

    tie_to_parent(parent);
    if (!in_cgroup && put(home->cgroup, "cgroup.procs", "0") < 0)
        record(s, home, SPAWN_CGROUP);
    stage = prepare(s, home);
    if (stage == SPAWN_EXEC) {
        clean_signals();
        execve(s->argv[0], s->argv, s->env);
    }
    record(s, home, stage);
    _exit(EXIT_NOT_EXECUTED);
}

/* -- the parent -------------------------------------------------------------------- */

/* Errors that another way may not have: all but those of a machine that is full. */
static bool worth_another_way(int errnum)
{
    return errnum != EAGAIN && errnum != ENOMEM;
}

static pid_t make_child(const struct way *way, int cgroup, int *pidfd)
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
 * The first one to be born into a group says that it lives: our own group may have been
 * killed once, by somebody else, before we came there (see cgroup_make_below). -1 and
 * ESTALE: it was killed at birth, and so would be all others.
 */
static pid_t make_first_child(const struct way *way, struct spawn_home *home,
                              int *pidfd)
{
    int life[2];
    char sign;
    pid_t pid;

    if (pipe2(life, O_CLOEXEC) < 0)
        return -1;
    pid = make_child(way, home->cgroup, pidfd);
    if (pid == 0) {
        (void)TEMP_FAILURE_RETRY(write(life[1], "", 1));
        return 0;
    }
    close(life[1]);
    home->births_work = pid > 0 && TEMP_FAILURE_RETRY(read(life[0], &sign, 1)) == 1;
    close(life[0]);
    if (pid < 0 || home->births_work)
        return pid;
    TEMP_FAILURE_RETRY(waitpid(pid, NULL, 0));
    close(*pidfd);
    home->keep_out = true;
    errno = ESTALE;
    return -1;
}

static unsigned first_way(const struct spawn_home *home)
{
    return home->way == 0 && (home->cgroup < 0 || home->keep_out) ? 1 : home->way;
}

pid_t spawn_worker(const struct spawn *s, struct spawn_home *home, int *pidfd)
{
    pid_t parent = getpid(), pid = -1;
    bool lasting = true; /* what failed will fail again */
    unsigned first = first_way(home), way;

    for (way = first; way < WAY_COUNT; way++) {
        bool is_born_there = ways[way].flags & CLONE_INTO_CGROUP;
        bool in_cgroup = home->cgroup < 0 || is_born_there;

        if (is_born_there && !home->births_work)
            pid = make_first_child(&ways[way], home, pidfd);
        else
            pid = make_child(&ways[way], home->cgroup, pidfd);
        if (pid == 0)
            child(s, home, parent, in_cgroup);
        if (pid > 0 || !worth_another_way(errno))
            break;
        lasting = lasting && errno != EMFILE && errno != ENFILE;
    }
    if (pid < 0)
        return -1;
    if (lasting && way > first)
        home->way = way;
    if (*pidfd < 0) /* the child is not reaped yet, so this is surely it */
        *pidfd = (int)syscall(SYS_pidfd_open, pid, 0u);
    return pid;
}
