/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/job/membership/membership.h"

/*
 * The memory of hosts beyond one life of an agent, by identity: when their nodes were
 * the root cause of a stop, and whether that was too often. Private to membership/.
 */

/* A node of that host was the root cause of a stop. Returns the index of its record in
 * membership.past, or MEMBERSHIP_NONE. *news: the host is in quarantine from now on,
 * which requires that another host is present. */
uint32_t membership_past_blame(struct membership *m, uint64_t identity, uint64_t t,
                               bool *news);

bool membership_past_is_quarantined(const struct membership *m, uint64_t identity);
