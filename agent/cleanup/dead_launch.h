/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

/* Kills the processes of a launch whose crun was killed: those of this user that have
 * its tag in their environment (launch_lock.h). True when none is left. */
bool dead_launch_kill(const char *tag);
