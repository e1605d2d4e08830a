/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/guard/spawn.h"

/* As spawn_worker, and whether and when it is tried again on a machine that has no room
 * for one more process. */
pid_t spawn_with_retries(const struct spawn *s, struct spawn_home *home, int *pidfd);
