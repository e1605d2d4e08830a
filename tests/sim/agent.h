/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/agent_state.h"
#include "agent/guard/fence.h"
#include "rendezvous/job/membership/membership.h"
#include "rendezvous/wire/protocol/message.h"
#include "tests/sim/memory.h"

struct sim_link;
struct sim_machine;
struct session;
struct sim;
struct sim_upcall;

/*
 * One life of one agent: the real session and the real table of states, and in place of
 * processes a group of workers that start, run, fail, finish and stop by chance. A
 * fault may keep the workers from stopping.
 */
enum agent_end {
    AGENT_LIVES,
    AGENT_TOLD,      /* DONE */
    AGENT_REFUSED,   /* with `refusal` */
    AGENT_ABANDONED, /* outage grace, fence or connect deadline */
    AGENT_GUARDLESS, /* its guard died, and there is no other */
    AGENT_CRASHED,
};

/* What the rendezvous could know about an agent, kept by the oracle. Times are the
 * daemon's own, without those it slept. */
struct agent_facts {
    struct sim_link *attached; /* the connection it last joined or resumed on */
    bool connected;
    uint64_t heard_ms, gone_ms;
    bool joined;
    bool evicted;
    bool evicted_for_good;       /* and that is durable */
    enum job_state state_before; /* of its job, before the message at hand */
    bool done;                   /* was told the result */
    bool leaves;                 /* has asked to go */
    bool hurries;                /* and again */
    uint64_t epoch;              /* of the last START that arrived */
    uint64_t told;               /* the greatest epoch in anything that arrived */
    uint32_t slot;               /* it had then */
    uint64_t failed_epoch, finished_epoch; /* what it truly reported */
    uint64_t checkpointed_epoch;
    uint64_t over_epoch,
        over_ms;         /* the last one that it said to have failed or ended */
    bool placed;         /* it has had a slot */
    uint64_t trouble_us; /* when a fault last touched it */
};

struct sim_agent {
    struct sim_agent *next;
    struct sim *sim;
    struct sim_machine *machine;
    char name[16];
    struct id128 incarnation;
    int32_t node_rank; /* asked for, or -1 */
    struct session *session;
    struct sim_link *link;
    struct sim_link *silent_link; /* the last one that was given up */
    enum agent_state state;
    enum agent_end end;     /* AGENT_LIVES until it has left */
    enum agent_end verdict; /* how it will end when its workers have */
    enum refusal refusal;
    uint64_t tick_at_us;
    struct sim_upcall *upcalls;
    bool settling;
    uint64_t epoch; /* of the last START or STOP */
    struct msg_start start;
    struct msg_stop stop;
    struct msg failed; /* the last failure of a worker */
    bool hurries;      /* a second signal has come */

    /* the group */
    uint64_t group_epoch;
    uint64_t generation; /* of timers that are about the group */
    uint32_t alive;      /* workers that exist */
    uint32_t unfinished; /* workers that have not exited with 0 */
    bool started;        /* all of them run */
    uint64_t run_at_us;  /* since then */
    bool stopping;       /* the agent wants to hear when nothing lives */
    uint64_t gone_at_us; /* 0: nothing ends them */
    bool unkillable;     /* its workers outlive KILL */
    bool disobeys;       /* they do, or its store does not start in time */
    bool was_at_rest;    /* when all had healed */

    /* the guard */
    struct fence fence;
    uint64_t fence_at_us;

    struct sim_memory memory;

    struct agent_facts facts;
};

struct sim_agent *agent_start(struct sim_machine *m, int32_t node_rank);
/* The process dies, and with it its workers; `quiet`: so does the machine. */
void agent_crash(struct sim_agent *a, bool quiet);
void agent_destroy(struct sim_agent *a);

/* To the rendezvous, through the session. */
void agent_report(struct sim_agent *a, const struct msg *m);
/* To the table of states: what happens. */
void agent_happens(struct sim_agent *a, enum agent_event event);

/* From outside. SIGTERM: leaves; again: hurries; again: kills its workers. */
void agent_leave(struct sim_agent *a);
void agent_end_job(struct sim_agent *a, bool now);
void agent_give_up(struct sim_agent *a);
/* The guard dies, and the workers with it; `for_good`: there is no other. */
void agent_lose_guard(struct sim_agent *a, bool for_good);
/* The guard ends the workers because it has not heard from the agent. */
void agent_fenced(struct sim_agent *a);

/* The agent at the client's end of a connection, or NULL if it is no agent. */
struct sim_agent *agent_of_link(const struct sim_link *l);
struct sim_agent *agent_find(struct sim *s, const struct id128 *incarnation);
