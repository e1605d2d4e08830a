/* SPDX-License-Identifier: MIT */
#include "agent/warden.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/kin.h"

#define KIN_PER_ROUND 256
#define KILL_ROUND_US_MAX 50000

void warden_prepare(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void warden_become(pid_t guard)
{
    char pid[16];
    char *argv[] = { (char *)WARDEN_ARGV0, pid, NULL }, *env[] = { NULL };

    snprintf(pid, sizeof(pid), "%d", (int)guard);
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

    for (useconds_t round_us = 500; kin_any(); round_us *= 2) {
        size_t count = kin_children(pids, KIN_PER_ROUND);

        for (size_t i = 0; i < count; i++)
            kill(pids[i], SIGKILL);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (round_us > KILL_ROUND_US_MAX)
            round_us = KILL_ROUND_US_MAX;
        usleep(round_us);
    }
}

/* Nobody but our own parent half gives this name and the pid of a child. */
static pid_t asked(int argc, char **argv)
{
    siginfo_t info;
    pid_t guard;

    if (argc != 2 || strcmp(argv[0], WARDEN_ARGV0) != 0)
        return 0;
    guard = (pid_t)atoi(argv[1]);
    if (guard <= 0 ||
        waitid(P_PID, (id_t)guard, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
        return 0;
    return guard;
}

void warden_main_if_asked(int argc, char **argv)
{
    pid_t guard = asked(argc, argv);
    int code;

    if (guard == 0)
        return;
    setsid();
    prctl(PR_SET_NAME, WARDEN_ARGV0);
    code = wait_for(guard);
    end_what_is_left();
    _exit(code);
}
