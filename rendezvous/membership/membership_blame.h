/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_MEMBERSHIP_MEMBERSHIP_BLAME_H
#define RENDEZVOUS_MEMBERSHIP_MEMBERSHIP_BLAME_H

#include "rendezvous/membership/membership.h"

/*
 * What is remembered of nodes beyond one life of an agent, by their identity: how often
 * they brought an epoch down of late, and whether that is too often. Used by the
 * the membership's own files alone.
 */

/* A node of that host was the root cause of a stop. Returns its record (an index of
 * membership.past), or MEMBERSHIP_NONE if none is kept; *news: it is in quarantine from
 * now on, which it is only while another host is there. */
uint32_t membership_past_blame(struct membership *m, uint64_t identity, uint64_t t,
                               bool *news);

bool membership_past_is_quarantined(const struct membership *m, uint64_t identity);

#endif
