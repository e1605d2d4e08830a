/* SPDX-License-Identifier: MIT */
#include "tests/worlds/membership_names.h"

static const char *const event_names[MEMBERSHIP_EV_COUNT] = {
    [MEMBERSHIP_EV_JOIN] = "join",
    [MEMBERSHIP_EV_RESUME] = "resume",
    [MEMBERSHIP_EV_DISCONNECT] = "disconnect",
    [MEMBERSHIP_EV_HEARTBEAT] = "heartbeat",
    [MEMBERSHIP_EV_STORE_READY] = "store-ready",
    [MEMBERSHIP_EV_FAILED] = "failed",
    [MEMBERSHIP_EV_FINISHED] = "finished",
    [MEMBERSHIP_EV_STOPPED] = "stopped",
    [MEMBERSHIP_EV_CHECKPOINTED] = "checkpointed",
    [MEMBERSHIP_EV_BLAMED] = "blamed",
    [MEMBERSHIP_EV_LEAVE] = "leave",
    [MEMBERSHIP_EV_DRAIN] = "drain",
    [MEMBERSHIP_EV_END] = "end",
    [MEMBERSHIP_EV_BYE] = "bye",
    [MEMBERSHIP_EV_TICK] = "tick",
};

const char *membership_event_name(enum membership_event_type t)
{
    return event_names[t];
}
