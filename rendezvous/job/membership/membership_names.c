/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/membership/membership.h"

/* The names of events and verdicts in logs and tests. */

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

static const char *const verdict_names[MEMBERSHIP_VERDICT_COUNT] = {
    [MEMBERSHIP_OK] = "ok",
    [MEMBERSHIP_IGNORED] = "ignored",
    [MEMBERSHIP_STALE] = "stale",
    [MEMBERSHIP_FENCED] = "fenced",
    [MEMBERSHIP_REFUSED_DONE] = "refused: the job has a result",
    [MEMBERSHIP_REFUSED_FULL] = "refused: too many nodes",
    [MEMBERSHIP_REFUSED_SPARES] = "refused: enough spares",
    [MEMBERSHIP_REFUSED_SLOT_RANGE] = "refused: no such node rank",
    [MEMBERSHIP_REFUSED_SLOT_TAKEN] = "refused: the node rank is taken",
    [MEMBERSHIP_REFUSED_MIN] = "refused: too few nodes would remain",
};

const char *membership_event_name(enum membership_event_type t)
{
    return event_names[t];
}

const char *membership_verdict_name(enum membership_verdict v)
{
    return verdict_names[v];
}
