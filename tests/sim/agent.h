/* SPDX-License-Identifier: MIT */
#ifndef TESTS_SIM_AGENT_H
#define TESTS_SIM_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/protocol/message.h"
#include "rendezvous/membership/membership.h"

struct link;
struct machine;
struct session;
struct sim;

/*
 * One life of one agent: the real member, and in place of an agent's machinery a bag of
 * workers that start, run, fail, finish and stop as chance has it. It obeys, except
 * where a fault says that it does not.
 */
enum agent_end {
    AGENT_LIVES,
    AGENT_TOLD,      /* DONE */
    AGENT_REFUSED,   /* with `refusal` */
    AGENT_ABANDONED, /* outage grace, fence or connect deadline */
    AGENT_CRASHED,
};

/* What the rendezvous could know about an agent, kept by the oracle. Times are the
 * daemon's own, without those it slept. */
struct agent_facts {
    struct link *attached; /* the connection it last joined or resumed on */
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
    bool placed;         /* it has had a slot */
    uint64_t trouble_us; /* when a fault last touched it */
};

struct agent {
    struct agent *next;
    struct sim *sim;
    struct machine *machine;
    char name[16];
    struct id128 incarnation;
    int32_t node_rank; /* asked for, or -1 */
    struct session *member;
    struct link *link;
    enum agent_end end;
    enum refusal refusal;
    uint64_t tick_at_us;
    struct order *orders;

    /* the group */
    uint64_t epoch;      /* START or STOP was for this */
    uint64_t generation; /* of timers that are about the group */
    uint32_t alive;      /* workers that exist */
    uint32_t unfinished; /* workers that have not exited with 0 */
    uint32_t first_rank;
    bool started; /* all of them run */
    bool stopping;
    /* its workers do not stop, or its store does not start, in time */
    bool disobeys;
    bool was_at_rest; /* when all had healed */

    struct agent_facts facts;
};

struct order;

struct agent *agent_start(struct machine *m, int32_t node_rank);
/* The process dies, and with it its workers; `quiet`: so does the machine. */
void agent_crash(struct agent *a, bool quiet);
void agent_destroy(struct agent *a);

/* To the rendezvous, by way of the member. */
void agent_report(struct agent *a, const struct msg *m);
void agent_leave(struct agent *a);
void agent_end_job(struct agent *a, bool now);

/* The agent at the client's end of a connection, or NULL if it is somebody else. */
struct agent *agent_of_link(const struct link *l);
struct agent *agent_find(struct sim *s, const struct id128 *incarnation);

#endif
