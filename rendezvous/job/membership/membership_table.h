/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/job/membership/membership.h"

/*
 * The nodes of a membership: their order, how many are in which state, and which node
 * gets which slot. It alone writes node.state, connected, leaving and quarantined,
 * because the tally must follow them. Private to membership/.
 */
void membership_table_init(struct membership *m);

/* A record for a new node at the end of the order, or MEMBERSHIP_NONE: all are in
 * use. */
uint32_t membership_table_add(struct membership *m, const struct id128 *incarnation);
void membership_table_remove(struct membership *m, uint32_t index);
void membership_table_put(struct membership *m, uint32_t index,
                          const struct membership_node *saved);
/* After the last membership_table_put: rebuild the list of free records. */
void membership_table_rebuild(struct membership *m);

void membership_table_set_state(struct membership *m, struct membership_node *n,
                                enum membership_node_state state);
void membership_table_set_connected(struct membership *m, struct membership_node *n,
                                    bool connected);
void membership_table_set_leaving(struct membership *m, struct membership_node *n,
                                  bool leaving);
void membership_table_set_quarantined(struct membership *m, struct membership_node *n,
                                      bool on);

/* The live node that has asked for the slot, or MEMBERSHIP_NONE. A node that has it
 * without having asked gives it back in the next epoch. */
uint32_t membership_table_namesake(const struct membership *m, uint32_t slot);

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
void membership_table_place(struct membership *m);
/* A node whose slot was given to another one while it was away loses it. True if so. */
bool membership_table_forget_lost_slot(struct membership *m, uint32_t index);

/* Asserts list, buckets and tally. */
void membership_table_sane(const struct membership *m);
