/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/base/err.h"

struct config;

/*
 * The limit of open descriptors: an agent that hosts a rendezvous and a store needs
 * many, but the guard and its workers get the original limit of crun.
 */
void fd_limits_raise(void);
void fd_limits_restore(void); /* back to the limit before the first raise */

/* How many the agent and its workers need, also while all workers are started again. */
unsigned fd_limits_need(const struct config *config);

/*
 * Checks that the hard limit is enough for the job's workers before any of them starts.
 * -1: it is not, see e.
 */
int fd_limits_suffice(const struct config *config, struct err *e) MUST_CHECK;
