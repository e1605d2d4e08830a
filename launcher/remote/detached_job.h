/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_REMOTE_DETACHED_JOB_H
#define LAUNCHER_REMOTE_DETACHED_JOB_H

#include <stdbool.h>

struct remote;

/*
 * What the launcher leaves behind with --detach: the record of a job that runs on other
 * machines, by which crunctl reaches it there and learns of its end; and the lines that
 * say so. False: the job has ended already, or has never begun.
 */
bool detached_job_leave(const struct remote *r);

#endif
