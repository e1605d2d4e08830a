/* SPDX-License-Identifier: MIT */
#include "agent/guard/guard_reaper.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/cleanup/launch_lock.h"
#include "agent/cleanup/child_procs.h"
#include "agent/cleanup/run_tmpdir.h"

#define KIN_PER_ROUND 256
#define KILL_ROUND_US_MAX 50000

void guard_reaper_prepare(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* The place of TMPDIR in the environment; it is not copied: the memory is the agent's.
 */
static char *tmpdir_setting(void)
{
    for (char **at = environ; at && *at; at++)
        if (strncmp(*at, "TMPDIR=", 7) == 0)
            return *at;
    return NULL;
}

void guard_reaper_become(pid_t guard, pid_t agent, const char *scratch)
{
    char guard_pid[16], agent_pid[16];
    char *argv[] = { (char *)GUARD_REAPER_ARGV0, guard_pid, agent_pid, (char *)scratch,
                     NULL };
    char *env[] = { tmpdir_setting(), NULL };

    snprintf(guard_pid, sizeof(guard_pid), "%d", (int)guard);
    snprintf(agent_pid, sizeof(agent_pid), "%d", (int)agent);
    execve("/proc/self/exe", argv, env);
    execve((const char *)getauxval(AT_EXECFN), argv, env);
    _exit(127);
}

/* How the guard ended, as an exit code. */
static int wait_for(pid_t guard)
{
    pid_t pid;
    int status = 0;

    do
        pid = waitpid(-1, &status, 0);
    while (pid > 0 && pid != guard);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void end_what_is_left(void)
{
    static pid_t pids[KIN_PER_ROUND];

    for (useconds_t round_us = 500; child_procs_any(); round_us *= 2) {
        size_t count = child_procs_children(pids, KIN_PER_ROUND);

        for (size_t i = 0; i < count; i++)
            kill(pids[i], SIGKILL);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (round_us > KILL_ROUND_US_MAX)
            round_us = KILL_ROUND_US_MAX;
        usleep(round_us);
    }
}

/* Our parent, also as something to poll; -1 where it is gone already, or the kernel
 * old. */
struct parent {
    pid_t pid;
    int pidfd;
};

static struct parent watch(pid_t pid)
{
    struct parent p = { pid, (int)syscall(SYS_pidfd_open, pid, 0u) };

    if (p.pidfd >= 0 && getppid() != pid) { /* it may be anybody's pid by now */
        close(p.pidfd);
        p.pidfd = -1;
    }
    return p;
}

static bool is_gone(const struct parent *p, int wait_ms)
{
    struct pollfd end = { .fd = p->pidfd, .events = POLLIN };

    return p->pidfd < 0 ? getppid() != p->pid : poll(&end, 1, wait_ms) > 0;
}

/*
 * An agent that was killed before the guard may still be dying, and one that lives must
 * hear of the guard's end now. So a child stays: it waits for the agent's death, or is
 * killed by it with all that the guard left behind.
 */
static void clean_up_after(const struct parent *agent, const char *scratch)
{
    bool gone = is_gone(agent, 0);

    if (gone || (agent->pidfd >= 0 && fork() == 0 && is_gone(agent, -1))) {
        run_tmpdir_remove_empty(scratch);
        launch_lock_remove(scratch);
    }
}

/* Nobody but our own parent half gives this name and the pid of a child. */
static pid_t asked(int argc, char **argv)
{
    siginfo_t info;
    pid_t guard;

    if (argc != 4 || strcmp(argv[0], GUARD_REAPER_ARGV0) != 0)
        return 0;
    guard = (pid_t)atoi(argv[1]);
    if (guard <= 0 ||
        waitid(P_PID, (id_t)guard, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
        return 0;
    return guard;
}

void guard_reaper_main_if_asked(int argc, char **argv)
{
    pid_t guard = asked(argc, argv);
    struct parent agent;
    int code;

    if (guard == 0)
        return;
    setsid();
    prctl(PR_SET_NAME, GUARD_REAPER_ARGV0);
    agent = watch((pid_t)atoi(argv[2]));
    code = wait_for(guard);
    end_what_is_left();
    if (code != EXIT_SUCCESS) /* else the guard has done it */
        clean_up_after(&agent, argv[3]);
    _exit(code);
}
