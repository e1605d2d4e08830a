/* SPDX-License-Identifier: MIT */
#ifndef AGENT_MEMORY_MEMORY_FLUSH_H
#define AGENT_MEMORY_MEMORY_FLUSH_H

#include "agent/memory/keeper_internal.h"

/* Runs the program's command with what is here of that set, unless files have it, in a
 * thread of its own. A note tells the result. */
void memory_flush_start(struct memory_keeper *k, const struct memory_set *set,
                        uint32_t grace_ms);

#endif
