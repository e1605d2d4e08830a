/* SPDX-License-Identifier: MIT */
#ifndef AGENT_FD_LIMITS_H
#define AGENT_FD_LIMITS_H

#include "rendezvous/base/err.h"

struct config;

/*
 * How many descriptors this process may have: an agent that hosts a rendezvous and a
 * store needs many, and the guard and its workers are to have the limit that crun was
 * started with.
 */
void fd_limits_raise(void);
void fd_limits_restore(void); /* as before the first raise */

/*
 * Whether the hard limit leaves enough for the job's workers: told before one of them
 * starts, instead of a group that starts by half. -1: it does not, e says so.
 */
int fd_limits_suffice(const struct config *config, struct err *e) MUST_CHECK;

#endif
