/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/job/membership/membership.h"

/*
 * The nodes of a membership: their order, and how many are in which state. It alone
 * writes node.state, connected, leaving and quarantined,
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

/* Asserts list, buckets and tally. */
void membership_table_sane(const struct membership *m);
