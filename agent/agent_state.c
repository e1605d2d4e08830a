/* SPDX-License-Identifier: MIT */
#include "agent/agent_state.h"

/* Edges that are not listed do nothing and keep the state. */

static const struct {
    bool listed;
    struct agent_edge edge;
} edges[AGENT_STATE_COUNT][AGENT_EVENT_COUNT] = {
#define TO(event, act, state) [event] = { true, { act, state } }
    [AGENT_IDLE] = { TO(AGENT_EV_START, AGENT_ACT_START, AGENT_RUNNING),
                     TO(AGENT_EV_STOP, AGENT_ACT_REPORT_STOPPED, AGENT_IDLE),
                     TO(AGENT_EV_DONE, AGENT_ACT_LEAVE, AGENT_OVER),
                     TO(AGENT_EV_REFUSED, AGENT_ACT_LEAVE, AGENT_OVER),
                     TO(AGENT_EV_ABANDONED, AGENT_ACT_LEAVE, AGENT_OVER),
                     TO(AGENT_EV_GUARD_LOST, AGENT_ACT_LEAVE, AGENT_OVER) },
    [AGENT_RUNNING] = { TO(AGENT_EV_STOP, AGENT_ACT_STOP, AGENT_STOPPING),
                        TO(AGENT_EV_FAILED, AGENT_ACT_REPORT_FAILED, AGENT_RUNNING),
                        TO(AGENT_EV_ALL_EXITED, AGENT_ACT_REPORT_FINISHED,
                           AGENT_FINISHED),
                        TO(AGENT_EV_DONE, AGENT_ACT_END, AGENT_ENDING),
                        TO(AGENT_EV_REFUSED, AGENT_ACT_END, AGENT_ENDING),
                        TO(AGENT_EV_ABANDONED, AGENT_ACT_END, AGENT_ENDING),
                        TO(AGENT_EV_GUARD_DIED, AGENT_ACT_REPORT_GUARD_DIED,
                           AGENT_IDLE),
                        TO(AGENT_EV_GUARD_LOST, AGENT_ACT_LEAVE, AGENT_OVER) },
    [AGENT_FINISHED] = { TO(AGENT_EV_STOP, AGENT_ACT_REPORT_STOPPED, AGENT_IDLE),
                         TO(AGENT_EV_DONE, AGENT_ACT_LEAVE, AGENT_OVER),
                         TO(AGENT_EV_REFUSED, AGENT_ACT_LEAVE, AGENT_OVER),
                         TO(AGENT_EV_ABANDONED, AGENT_ACT_LEAVE, AGENT_OVER),
                         TO(AGENT_EV_GUARD_LOST, AGENT_ACT_LEAVE, AGENT_OVER) },
    [AGENT_STOPPING] = { TO(AGENT_EV_STOP, AGENT_ACT_STOP, AGENT_STOPPING),
                         TO(AGENT_EV_FAILED, AGENT_ACT_REPORT_FAILED, AGENT_STOPPING),
                         TO(AGENT_EV_ALL_STOPPED, AGENT_ACT_REPORT_STOPPED, AGENT_IDLE),
                         TO(AGENT_EV_DONE, AGENT_ACT_END, AGENT_ENDING),
                         TO(AGENT_EV_REFUSED, AGENT_ACT_END, AGENT_ENDING),
                         TO(AGENT_EV_ABANDONED, AGENT_ACT_END, AGENT_ENDING),
                         TO(AGENT_EV_GUARD_DIED, AGENT_ACT_REPORT_STOPPED, AGENT_IDLE),
                         TO(AGENT_EV_GUARD_LOST, AGENT_ACT_LEAVE, AGENT_OVER) },
    [AGENT_ENDING] = { TO(AGENT_EV_ALL_EXITED, AGENT_ACT_LEAVE, AGENT_OVER),
                       TO(AGENT_EV_ALL_STOPPED, AGENT_ACT_LEAVE, AGENT_OVER),
                       TO(AGENT_EV_GUARD_DIED, AGENT_ACT_LEAVE, AGENT_OVER),
                       TO(AGENT_EV_GUARD_LOST, AGENT_ACT_LEAVE, AGENT_OVER) },
#undef TO
};

struct agent_edge agent_edge(enum agent_state state, enum agent_event event)
{
    if (edges[state][event].listed)
        return edges[state][event].edge;
    return (struct agent_edge){ AGENT_ACT_NONE, state };
}

static const char *const state_names[AGENT_STATE_COUNT] = {
    [AGENT_IDLE] = "idle",         [AGENT_RUNNING] = "running",
    [AGENT_FINISHED] = "finished", [AGENT_STOPPING] = "stopping",
    [AGENT_ENDING] = "ending",     [AGENT_OVER] = "over",
};

static const char *const event_names[AGENT_EVENT_COUNT] = {
    [AGENT_EV_START] = "start",
    [AGENT_EV_STOP] = "stop",
    [AGENT_EV_DONE] = "done",
    [AGENT_EV_REFUSED] = "refused",
    [AGENT_EV_ABANDONED] = "abandoned",
    [AGENT_EV_FAILED] = "failed",
    [AGENT_EV_ALL_EXITED] = "all-exited",
    [AGENT_EV_ALL_STOPPED] = "all-stopped",
    [AGENT_EV_GUARD_DIED] = "guard-died",
    [AGENT_EV_GUARD_LOST] = "guard-lost",
};

const char *agent_state_name(enum agent_state s)
{
    return state_names[s];
}

const char *agent_event_name(enum agent_event e)
{
    return event_names[e];
}
