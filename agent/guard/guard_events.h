/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/guard/guard_wire.h"

/*
 * The events for the agent for which the socket had no room yet. One queue of a fixed
 * size, because the guard allocates nothing.
 */
enum guard_events_state {
    GUARD_EVENTS_SENT,
    GUARD_EVENTS_WAIT, /* for room in the socket */
    GUARD_EVENTS_LOST  /* the agent has ended, or has not read for very long */
};

void guard_events_add(struct guard_event t);
enum guard_events_state guard_events_flush(void);
