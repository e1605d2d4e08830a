/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_REMOTE_FAR_FAR_SOCKET_H
#define LAUNCHER_REMOTE_FAR_FAR_SOCKET_H

#include <sys/types.h>

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

#endif
