/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/wire/protocol/message.h"

/*
 * Lets each order through once: the rendezvous repeats the order in force whenever a
 * connection is resumed. Starts as zeroes.
 */
struct order_filter {
    uint64_t epoch; /* of the newest order */
    uint64_t started, stopped;
    uint32_t stop_grace_ms;
    bool live; /* started, and not yet reported to be at its end */
    bool done;
};

/* True if the agent must obey: it is not a repeat, and not from an older epoch. */
bool order_filter_take(struct order_filter *o, const struct msg *order);
/* The agent reports. */
void order_filter_reported(struct order_filter *o, const struct msg *report);
