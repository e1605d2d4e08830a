/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_MEMBERSHIP_MEMBERSHIP_TABLE_H
#define RENDEZVOUS_MEMBERSHIP_MEMBERSHIP_TABLE_H

#include "rendezvous/membership/membership.h"

/*
 * The nodes of a membership: who is there, in which order they came, how many are in
 * which state, and who gets which slot. The only writer of node.state, connected,
 * leaving and quarantined, because the tally must follow them. Used by the membership's
 * own files alone.
 */
void membership_table_init(struct membership *m);

/* A record for a newcomer at the end of the order, or MEMBERSHIP_NONE when all are in
 * use.
 */
uint32_t membership_table_add(struct membership *m, const struct id128 *incarnation);
void membership_table_remove(struct membership *m, uint32_t index);
void membership_table_put(struct membership *m, uint32_t index,
                          const struct membership_node *saved);
/* After the last membership_table_put: find out again which records are free. */
void membership_table_rebuild(struct membership *m);

void membership_table_set_state(struct membership *m, struct membership_node *n,
                                enum membership_node_state state);
void membership_table_set_connected(struct membership *m, struct membership_node *n,
                                    bool connected);
void membership_table_set_leaving(struct membership *m, struct membership_node *n,
                                  bool leaving);
void membership_table_set_quarantined(struct membership *m, struct membership_node *n,
                                      bool on);

/* Who of the live nodes holds the slot, or has asked for it by name; or
 * MEMBERSHIP_NONE. */
uint32_t membership_table_holder(const struct membership *m, uint32_t slot);

/*
 * Choose the members of the next epoch among the connected, waiting nodes: slot_node,
 * each one's slot and ranks, group_size, world_size and leader. Those who asked for a
 * slot by name have it; then those who have held one keep it; then the rendezvous' own
 * node takes slot 0; then who is back on a host that had one takes that; then the
 * others, in the order they came, the lowest free one that nobody absent has had, or
 * any. Of those in quarantine only as many as the
 * minimum takes, the oldest.
 */
void membership_table_place(struct membership *m);
/* Who was away, or came too late, when its slot was given to another, has none: true if
 * that is so. */
bool membership_table_forget_lost_slot(struct membership *m, uint32_t index);

/* Asserts list, buckets and tally. */
void membership_table_sane(const struct membership *m);

#endif
