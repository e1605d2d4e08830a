/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_SESSION_ORDER_FILTER_H
#define RENDEZVOUS_SESSION_ORDER_FILTER_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/protocol/message.h"

/*
 * Which orders an agent has been given, so that it gets each of them once: the
 * rendezvous repeats the order in force whenever a connection is resumed. Zeroes are
 * the beginning.
 */
struct order_filter {
    uint64_t epoch; /* of the newest order */
    uint64_t started, stopped;
    uint32_t stop_grace_ms;
    bool live; /* started, and not yet reported to be at its end */
    bool done;
};

/* True if the agent is to have it: not a repeat, not about an epoch that is over. */
bool order_filter_take(struct order_filter *o, const struct msg *order);
/* The agent reports. */
void order_filter_reported(struct order_filter *o, const struct msg *report);

#endif
