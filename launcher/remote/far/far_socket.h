/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_REMOTE_FAR_FAR_SOCKET_H
#define LAUNCHER_REMOTE_FAR_FAR_SOCKET_H

/*
 * `crun --agent-socket`: the bytes of its standard input go to the socket of the crun
 * that the far side has started, and those of the socket to its standard output; so
 * the launcher's own socket leads to the job, also where no port does.
 */
#define FAR_SOCKET_VARIABLE "CRUN_AGENT_PID"
#define FAR_SOCKET_SAYS "CRUN_AGENT_SAYS" /* set: it begins with FAR_REACH_RUNS */

/* The exit code. */
int far_socket_run(void);

#endif
