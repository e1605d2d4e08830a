/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_MEMBERSHIP_MEMBERSHIP_TABLE_H
#define RENDEZVOUS_MEMBERSHIP_MEMBERSHIP_TABLE_H

#include "rendezvous/membership/membership.h"

/*
 * The nodes of a round: who is there, in which order they came, how many are in which
 * state, and who gets which slot. The only writer of node.state, connected, leaving and
 * quarantined, because the tally must follow them. Used by the round's own
 * files alone.
 */
void round_table_init(struct round *r);

/* A record for a newcomer at the end of the order, or ROUND_NONE when all are in use.
 */
uint32_t round_table_add(struct round *r, const struct id128 *incarnation);
void round_table_remove(struct round *r, uint32_t index);
void round_table_put(struct round *r, uint32_t index, const struct round_node *saved);
/* After the last round_table_put: find out again which records are free. */
void round_table_rebuild(struct round *r);

void round_table_set_state(struct round *r, struct round_node *n,
                           enum round_node_state state);
void round_table_set_connected(struct round *r, struct round_node *n, bool connected);
void round_table_set_leaving(struct round *r, struct round_node *n, bool leaving);
void round_table_set_quarantined(struct round *r, struct round_node *n, bool on);

/* Who of the live nodes holds the slot, or has asked for it by name; or ROUND_NONE. */
uint32_t round_table_holder(const struct round *r, uint32_t slot);

/*
 * Choose the members of the next epoch among the connected, waiting nodes: slot_node,
 * each one's slot and ranks, group_size, world_size and leader. Those who asked for a
 * slot by name have it; then those who have held one keep it; then the rendezvous' own
 * node takes slot 0; then who is back on a host that had one takes that; then the
 * others, in the order they came, the lowest free one that nobody absent has had, or
 * any. Of those in quarantine only as many as the
 * minimum takes, the oldest.
 */
void round_table_place(struct round *r);
/* Who was away, or came too late, when its slot was given to another, has none: true if
 * that is so. */
bool round_table_forget_lost_slot(struct round *r, uint32_t index);

/* Asserts list, buckets and tally. */
void round_table_sane(const struct round *r);

#endif
