/* SPDX-License-Identifier: MIT */
#include "rendezvous/membership/membership.h"

/* What people and logs call the things of a round. */

static const char *const state_names[MEMBERSHIP_STATE_COUNT] = {
    [MEMBERSHIP_FORMING] = "forming",
    [MEMBERSHIP_RUNNING] = "running",
    [MEMBERSHIP_STOPPING] = "stopping",
    [MEMBERSHIP_DONE] = "done",
};

static const char *const cause_names[MEMBERSHIP_CAUSE_COUNT] = {
    [MEMBERSHIP_CAUSE_NONE] = "none",   [MEMBERSHIP_CAUSE_FAILURE] = "failure",
    [MEMBERSHIP_CAUSE_LOST] = "lost",   [MEMBERSHIP_CAUSE_SCALE_UP] = "scale-up",
    [MEMBERSHIP_CAUSE_DRAIN] = "drain", [MEMBERSHIP_CAUSE_USER] = "user",
};

static const char *const reason_names[MEMBERSHIP_REASON_COUNT] = {
    [MEMBERSHIP_REASON_NONE] = "none",
    [MEMBERSHIP_REASON_SUCCESS] = "success",
    [MEMBERSHIP_REASON_FAILURE] = "failure",
    [MEMBERSHIP_REASON_LOST] = "lost",
    [MEMBERSHIP_REASON_NOT_FORMED] = "not-formed",
    [MEMBERSHIP_REASON_USER] = "user",
};

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

const char *membership_state_name(enum membership_state s)
{
    return state_names[s];
}

const char *membership_cause_name(enum membership_cause c)
{
    return cause_names[c];
}

const char *membership_reason_name(enum membership_reason reason)
{
    return reason_names[reason];
}

const char *membership_event_name(enum membership_event_type t)
{
    return event_names[t];
}

const char *membership_verdict_name(enum membership_verdict v)
{
    return verdict_names[v];
}
