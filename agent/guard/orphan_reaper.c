/* SPDX-License-Identifier: MIT */
#include "agent/guard/orphan_reaper.h"

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

#include "agent/cleanup/child_procs.h"
#include "agent/cleanup/launch_lock.h"
#include "agent/cleanup/run_tmpdir.h"

#define PIDS_PER_ROUND 256
#define KILL_ROUND_US_MAX 50000

void orphan_reaper_prepare(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* The setting of TMPDIR in the environment, not copied: the memory is the agent's. */
static char *find_tmpdir_variable(void)
{
    for (char **at = environ; at && *at; at++)
        if (strncmp(*at, "TMPDIR=", 7) == 0)
            return *at;
    return NULL;
}

void orphan_reaper_become(pid_t guard, pid_t agent, const char *tmpdir_tag)
{
    char guard_pid[16], agent_pid[16];
    char *argv[] = { (char *)ORPHAN_REAPER_ARGV0, guard_pid, agent_pid,
                     (char *)tmpdir_tag, NULL };
    char *env[] = { find_tmpdir_variable(), NULL };

    snprintf(guard_pid, sizeof(guard_pid), "%d", (int)guard);
    snprintf(agent_pid, sizeof(agent_pid), "%d", (int)agent);
    execve("/proc/self/exe", argv, env);
    execve((const char *)getauxval(AT_EXECFN), argv, env);
    _exit(127);
}

/* How the guard ended, as an exit code. */
static int wait_for_guard(pid_t guard)
{
    pid_t pid;
    int status = 0;

    do
        pid = waitpid(-1, &status, 0);
    while (pid > 0 && pid != guard);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void kill_remaining_children(void)
{
    static pid_t pids[PIDS_PER_ROUND];

    for (useconds_t round_us = 500; child_procs_exist(); round_us *= 2) {
        size_t count = child_procs_list(pids, PIDS_PER_ROUND);

        for (size_t i = 0; i < count; i++)
            kill(pids[i], SIGKILL);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (round_us > KILL_ROUND_US_MAX)
            round_us = KILL_ROUND_US_MAX;
        usleep(round_us);
    }
}

/* The agent, our parent, with a pidfd to poll;
 * -1 if it has ended already, or the kernel is too old. */
struct agent_handle {
    pid_t pid;
    int pidfd;
};

static struct agent_handle open_agent(pid_t pid)
{
    struct agent_handle p = { pid, (int)syscall(SYS_pidfd_open, pid, 0u) };

    if (p.pidfd >= 0 && getppid() != pid) { /* the pid may have been reused */
        close(p.pidfd);
        p.pidfd = -1;
    }
    return p;
}

static bool agent_is_gone(const struct agent_handle *p, int wait_ms)
{
    struct pollfd end = { .fd = p->pidfd, .events = POLLIN };

    return p->pidfd < 0 ? getppid() != p->pid : poll(&end, 1, wait_ms) > 0;
}

/*
 * An agent that was killed before the guard may still be dying, while a living agent
 * must learn of the guard's end now. So a child of the reaper stays: it waits for the
 * agent's death, or is killed by the agent with the guard's other leftovers.
 */
static void clean_up_after_agent(const struct agent_handle *agent,
                                 const char *tmpdir_tag)
{
    bool gone = agent_is_gone(agent, 0);

    if (gone || (agent->pidfd >= 0 && fork() == 0 && agent_is_gone(agent, -1))) {
        run_tmpdir_remove_empty(tmpdir_tag);
        launch_lock_remove(tmpdir_tag);
    }
}

/* The name and the pid of a child prove that orphan_reaper_become executed this
 * process. */
static pid_t guard_to_wait_for(int argc, char **argv)
{
    siginfo_t info;
    pid_t guard;

    if (argc != 4 || strcmp(argv[0], ORPHAN_REAPER_ARGV0) != 0)
        return 0;
    guard = (pid_t)atoi(argv[1]);
    if (guard <= 0 ||
        waitid(P_PID, (id_t)guard, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
        return 0;
    return guard;
}

void orphan_reaper_main_if_asked(int argc, char **argv)
{
    pid_t guard = guard_to_wait_for(argc, argv);
    struct agent_handle agent;
    int code;

    if (guard == 0)
        return;
    setsid();
    prctl(PR_SET_NAME, ORPHAN_REAPER_ARGV0);
    agent = open_agent((pid_t)atoi(argv[2]));
    code = wait_for_guard(guard);
    kill_remaining_children();
    if (code != EXIT_SUCCESS) /* else the guard has cleaned up */
        clean_up_after_agent(&agent, argv[3]);
    _exit(code);
}
