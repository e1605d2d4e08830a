/* SPDX-License-Identifier: MIT */
#ifndef AGENT_MEMORY_MEMORY_PEERS_H
#define AGENT_MEMORY_MEMORY_PEERS_H

#include "agent/memory/keeper_internal.h"

/* The port for other agents of the job: takes their copies, and gives what is here.
 * Each connection has a thread. */
void memory_peers_accept(struct memory_keeper *k);

#endif
