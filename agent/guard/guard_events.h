/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GUARD_GUARD_EVENTS_H
#define AGENT_GUARD_GUARD_EVENTS_H

#include "agent/guard/guard_wire.h"

/*
 * What the guard has to tell its agent and the socket had no room for yet. One queue,
 * of a fixed size: the guard allocates nothing.
 */
enum guard_tells_state {
    GUARD_TELLS_SENT,
    GUARD_TELLS_WAIT, /* for room in the socket */
    GUARD_TELLS_LOST  /* nobody listens, or not for so long that it is the same */
};

void guard_tells_add(struct guard_tell t);
enum guard_tells_state guard_tells_flush(void);

#endif
