/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/workers/failure.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * The reaction of an agent to each event: a pure table of state and event. agent.c
 * performs the acts.
 *
 * IDLE      no process of the job is alive here: it waits for the order to start
 * RUNNING   the group runs, or part of it has failed and the order to stop will come
 * FINISHED  all workers have exited 0; those of other nodes may run, or fail
 * STOPPING  the group has been ordered to stop
 * ENDING    as STOPPING, but the job is over for this node: then OVER
 * OVER      the result is known; no process of the job is alive here
 */
enum agent_state {
    AGENT_IDLE,
    AGENT_RUNNING,
    AGENT_FINISHED,
    AGENT_STOPPING,
    AGENT_ENDING,
    AGENT_OVER,
    AGENT_STATE_COUNT
};

enum agent_event {
    AGENT_EV_START,       /* ordered */
    AGENT_EV_STOP,        /* ordered */
    AGENT_EV_DONE,        /* ordered: the result */
    AGENT_EV_REFUSED,     /* the rendezvous refuses this node */
    AGENT_EV_ABANDONED,   /* the rendezvous is gone for good */
    AGENT_EV_FAILED,      /* the group: a worker failed */
    AGENT_EV_ALL_EXITED,  /* the group: all have exited 0 */
    AGENT_EV_ALL_STOPPED, /* the group: none of its processes is alive */
    AGENT_EV_GUARD_DIED,  /* its group died with it; there is a new guard */
    AGENT_EV_GUARD_LOST,  /* likewise, and there cannot be a new one */
    AGENT_EVENT_COUNT
};

enum agent_act {
    AGENT_ACT_NONE,           /* the event changes nothing */
    AGENT_ACT_START,          /* open the store if ordered, start the group */
    AGENT_ACT_STOP,           /* stop the group, or shorten its grace */
    AGENT_ACT_REPORT_STOPPED, /* no process is alive: report that */
    AGENT_ACT_REPORT_FAILED,
    AGENT_ACT_REPORT_FINISHED,
    AGENT_ACT_REPORT_GUARD_DIED, /* report it as a failure */
    AGENT_ACT_END,               /* stop the group; the job is over for this node */
    AGENT_ACT_LEAVE, /* end: report the result, send BYE to the rendezvous */
    AGENT_ACT_COUNT
};

struct agent_edge {
    enum agent_act act;
    enum agent_state to;
};

/* The act of an event, and the state after it. */
struct agent_edge agent_edge(enum agent_state state, enum agent_event event);

const char *agent_state_name(enum agent_state s);
const char *agent_event_name(enum agent_event e);
