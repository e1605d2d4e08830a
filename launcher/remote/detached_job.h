/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

struct remote;

/*
 * What the launcher leaves behind with --detach: the record of a job that runs on other
 * machines, by which crunctl reaches it there and learns of its end; and the lines that
 * say so. False: the job has ended already, or has never begun.
 */
bool detached_job_leave(const struct remote *r);
