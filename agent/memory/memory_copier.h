/* SPDX-License-Identifier: MIT */
#ifndef AGENT_MEMORY_MEMORY_COPIER_H
#define AGENT_MEMORY_MEMORY_COPIER_H

#include "agent/memory/keeper_internal.h"

/* A thread that sends what the workers commit to the neighbour, once there is one. With
 * the lock, which its work does not hold. */
void memory_copier_start(struct memory_keeper *k);

#endif
