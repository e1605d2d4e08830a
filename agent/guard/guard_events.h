/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GUARD_GUARD_EVENTS_H
#define AGENT_GUARD_GUARD_EVENTS_H

#include "agent/guard/guard_wire.h"

/*
 * What the guard has to tell its agent and the socket had no room for yet. One queue,
 * of a fixed size: the guard allocates nothing.
 */
enum guard_events_state {
    GUARD_EVENTS_SENT,
    GUARD_EVENTS_WAIT, /* for room in the socket */
    GUARD_EVENTS_LOST  /* nobody listens, or not for so long that it is the same */
};

void guard_events_add(struct guard_tell t);
enum guard_events_state guard_events_flush(void);

#endif
