/* SPDX-License-Identifier: MIT */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

/*
 * How a job that goes on without its launcher is reached later: a command for sh on its
 * host. It prints one of these lines; what the login shell says comes before.
 */
#define FAR_REACH_RUNS "@crun-job@"  /* and then is a connection to the job's crun */
#define FAR_REACH_ENDED "@crun-end@" /* and then the record of its end, JSON */
#define FAR_REACH_GONE "@crun-none@" /* its crun was killed */

/* For the crun with that pid, whose output goes to log. To be freed by the caller. */
char *far_reach_command(pid_t pid, const char *log);

/* The file for the record of the end: beside that with the output, whose path (or that
 * of a link to it) is given. False: there is none. */
bool far_side_end_file(const char *log, char path[PATH_MAX + 8]);

/*
 * `crun --agent-socket`: the bytes of its standard input go to the socket of the crun
 * with the pid of FAR_SOCKET_VARIABLE, and those of the socket to its standard output;
 * so tools reach a job that goes on without its launcher, also where no port does.
 */
#define FAR_SOCKET_VARIABLE "CRUN_AGENT_PID"
#define FAR_SOCKET_SAYS "CRUN_AGENT_SAYS" /* set: it begins with FAR_REACH_RUNS */

/* A connection to the crun with that pid, or -1. */
int far_socket_connect(pid_t pid);
/* The exit code. */
int far_socket_run(void);
