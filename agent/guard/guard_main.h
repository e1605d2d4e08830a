/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GUARD_GUARD_MAIN_H
#define AGENT_GUARD_GUARD_MAIN_H

/*
 * Called in main before anything else: if this process was executed to be a guard, or
 * its reaper (guard_reaper.h), it becomes one and does not return.
 */
void guard_main_if_asked(int argc, char **argv);

#endif
