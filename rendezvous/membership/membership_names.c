/* SPDX-License-Identifier: MIT */
#include "rendezvous/membership/membership.h"

/* What people and logs call the things of a round. */

static const char *const state_names[ROUND_STATE_COUNT] = {
    [ROUND_FORMING] = "forming",
    [ROUND_RUNNING] = "running",
    [ROUND_STOPPING] = "stopping",
    [ROUND_DONE] = "done",
};

static const char *const cause_names[ROUND_CAUSE_COUNT] = {
    [ROUND_CAUSE_NONE] = "none",   [ROUND_CAUSE_FAILURE] = "failure",
    [ROUND_CAUSE_LOST] = "lost",   [ROUND_CAUSE_SCALE_UP] = "scale-up",
    [ROUND_CAUSE_DRAIN] = "drain", [ROUND_CAUSE_USER] = "user",
};

static const char *const reason_names[ROUND_REASON_COUNT] = {
    [ROUND_REASON_NONE] = "none",
    [ROUND_REASON_SUCCESS] = "success",
    [ROUND_REASON_FAILURE] = "failure",
    [ROUND_REASON_LOST] = "lost",
    [ROUND_REASON_NOT_FORMED] = "not-formed",
    [ROUND_REASON_USER] = "user",
};

static const char *const event_names[ROUND_EV_COUNT] = {
    [ROUND_EV_JOIN] = "join",
    [ROUND_EV_RESUME] = "resume",
    [ROUND_EV_DISCONNECT] = "disconnect",
    [ROUND_EV_HEARTBEAT] = "heartbeat",
    [ROUND_EV_STORE_READY] = "store-ready",
    [ROUND_EV_FAILED] = "failed",
    [ROUND_EV_FINISHED] = "finished",
    [ROUND_EV_STOPPED] = "stopped",
    [ROUND_EV_CHECKPOINTED] = "checkpointed",
    [ROUND_EV_LEAVE] = "leave",
    [ROUND_EV_DRAIN] = "drain",
    [ROUND_EV_END] = "end",
    [ROUND_EV_BYE] = "bye",
    [ROUND_EV_TICK] = "tick",
};

static const char *const verdict_names[ROUND_VERDICT_COUNT] = {
    [ROUND_OK] = "ok",
    [ROUND_IGNORED] = "ignored",
    [ROUND_STALE] = "stale",
    [ROUND_FENCED] = "fenced",
    [ROUND_REFUSED_DONE] = "refused: the job has a result",
    [ROUND_REFUSED_FULL] = "refused: too many nodes",
    [ROUND_REFUSED_SPARES] = "refused: enough spares",
    [ROUND_REFUSED_SLOT_RANGE] = "refused: no such node rank",
    [ROUND_REFUSED_SLOT_TAKEN] = "refused: the node rank is taken",
    [ROUND_REFUSED_MIN] = "refused: too few nodes would remain",
};

const char *round_state_name(enum round_state s)
{
    return state_names[s];
}

const char *round_cause_name(enum round_cause c)
{
    return cause_names[c];
}

const char *round_reason_name(enum round_reason reason)
{
    return reason_names[reason];
}

const char *round_event_name(enum round_event_type t)
{
    return event_names[t];
}

const char *round_verdict_name(enum round_verdict v)
{
    return verdict_names[v];
}
