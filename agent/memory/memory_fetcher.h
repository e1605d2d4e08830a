/* SPDX-License-Identifier: MIT */
#ifndef AGENT_MEMORY_MEMORY_FETCHER_H
#define AGENT_MEMORY_MEMORY_FETCHER_H

#include "agent/memory/keeper_internal.h"

/*
 * Gets parts of the set to restore from the agents that hold them. All with the lock.
 */

/* An agent that holds these ranks: "0-3", and "+" if it has the shared section. */
void memory_fetcher_add_holder(struct memory_keeper *k, const char *address,
                               const char *held);
/* A new epoch: what this node's workers restore, and is not here, is fetched. */
void memory_fetcher_begin(struct memory_keeper *k);
/* What becomes of a part that is not here: MEMORY_OK: it is being fetched, and the
 * keeper's thread is woken up. Else why it cannot be had. */
enum memory_status memory_fetcher_want(struct memory_keeper *k, uint32_t rank,
                                       bool shared, const char **why);
void memory_fetcher_fini(struct memory_keeper *k);

#endif
