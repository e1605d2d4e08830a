/* SPDX-License-Identifier: MIT */
#ifndef AGENT_AGENT_STATE_H
#define AGENT_AGENT_STATE_H

#include "agent/workers/failure.h"
#include "rendezvous/protocol/message.h"

/*
 * What an agent does when, apart from how: a pure table of state and event. agent.c
 * performs what it says.
 *
 * IDLE      nothing of the job lives here: waiting to be told to start
 * RUNNING   the group runs, or part of it has failed and the order to stop will come
 * FINISHED  all workers have exited 0; the others may still run, or fail
 * STOPPING  the group has been told to stop
 * ENDING    as STOPPING, but nobody waits for it any more: then it is over
 * OVER      the result is known; nothing of the job lives here
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
    AGENT_EV_REFUSED,     /* the rendezvous will not have us */
    AGENT_EV_ABANDONED,   /* the rendezvous is gone for good */
    AGENT_EV_FAILED,      /* the group: a worker failed */
    AGENT_EV_ALL_EXITED,  /* the group: all have exited 0 */
    AGENT_EV_ALL_STOPPED, /* the group: nothing of it lives */
    AGENT_EV_GUARD_DIED,  /* and the group with it; there is a new one */
    AGENT_EVENT_COUNT
};

enum agent_act {
    AGENT_ACT_NONE,        /* means nothing here */
    AGENT_ACT_START,       /* open the store if asked, start the group */
    AGENT_ACT_STOP,        /* tell the group to stop, or to hurry */
    AGENT_ACT_SAY_STOPPED, /* nothing lives: say so to the rendezvous */
    AGENT_ACT_SAY_FAILED,
    AGENT_ACT_SAY_FINISHED,
    AGENT_ACT_SAY_GUARD_DIED, /* report it as the failure */
    AGENT_ACT_END,            /* stop the group; the job is over for us */
    AGENT_ACT_LEAVE,          /* end: say the result, say goodbye */
    AGENT_ACT_COUNT
};

struct agent_edge {
    enum agent_act act;
    enum agent_state to;
};

/* What to do, and the state after it. */
struct agent_edge agent_edge(enum agent_state state, enum agent_event event);

const char *agent_state_name(enum agent_state s);
const char *agent_event_name(enum agent_event e);

#endif
