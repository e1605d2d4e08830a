/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/job/membership/membership.h"

/* Which node gets which slot, and with it its ranks. Private to membership/. */

/* The live node that has asked for the slot, or MEMBERSHIP_NONE. A node that has it
 * without having asked gives it back in the next epoch. */
uint32_t membership_ranks_namesake(const struct membership *m, uint32_t slot);

/*
 * Choose the members of the next epoch among the connected, waiting nodes: sets
 * slot_node, each member's slot and ranks, group_size, world_size and leader. Slots are
 * given in this order:
 *
 *   1. nodes that asked for a slot (--node-rank) get it
 *   2. nodes that have held a slot keep it
 *   3. the node that hosts the rendezvous takes slot 0
 *   4. a node whose host had a slot takes that
 *   5. the others, in the order of joining, take the lowest free slot: first
 *      a slot that no absent host has had, then any
 *
 * Nodes in quarantine are placed only if the minimum needs them, oldest first.
 */
void membership_ranks_assign(struct membership *m);
/* A node whose slot was given to another one while it was away loses it. True if so. */
bool membership_ranks_forget_lost_slot(struct membership *m, uint32_t index);
