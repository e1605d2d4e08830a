/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/wire/protocol/message.h"
#include "tests/sim/sim.h"
#include "tests/sim/view.h"

struct sim_agent;

/*
 * What the oracle remembers, shared by its parts: every instance of every job that ever
 * was, and every epoch of each, as told to the nodes that had a part in it.
 */
#define EPOCH_NODES_MAX 64

/* One epoch, as the orders that arrived describe it. */
struct epoch_facts {
    struct epoch_facts *next;
    uint64_t epoch;
    uint32_t group_size, world_size, restarts;
    struct {
        const struct sim_agent *agent; /* NULL: not heard of */
        uint32_t slot, first_rank, workers;
        uint32_t role_first_rank, role_world_size;
    } node[EPOCH_NODES_MAX];
    char store_address[ADDRESS_MAX_BYTES + 1]; /* as rank 0's agent reported it */
    uint32_t store_port;
    bool has_memory;
    char memory[MEMORY_SET_BYTES + 1]; /* START.memory */
};

/* Where the time of a job went, painted on a line: each span lasts until the next. */
#define TIME_SPANS_MAX 2048

struct time_facts {
    uint64_t begun_at;                 /* by the membership's clock */
    uint64_t base_ms[JOB_PHASE_COUNT]; /* of before the daemon's last crash */
    unsigned spans;
    struct {
        uint64_t from;
        enum job_phase phase;
    } span[TIME_SPANS_MAX];
    bool over, reports_steps;
    uint64_t top_step, past_step, steps_again, unplaced;
    uint64_t slack_ms; /* what is known of lost nodes is that much out, all together */
    uint64_t lost_at;  /* in the step under way: the silence of the node, 0: none */
    enum job_state entered[4]; /* in the step under way */
    unsigned entries;
    struct time_spent_sums committed;
    enum job_phase committed_phase;
    struct time_spent_sums
        before_line; /* before the first epoch of the job's history */
};

/* One instance of a job. */
struct job_facts {
    struct job_facts *next;
    struct id128 instance;
    struct view now, committed, maybe;
    bool in_doubt;       /* `maybe` may have become durable */
    uint64_t entered_ms; /* the state; times without the daemon's sleeps, */
    uint64_t entered_at; /* and by the membership's clock, with them */
    bool was_empty;      /* no node was there since: a sleep then counts */
    bool loses;          /* a node, in the step under way */
    uint64_t formed_ms;  /* the epoch, by the membership's clock; 0: not known */
    uint64_t asked_ms, leaves_ms; /* for a checkpoint, and a node to go; 0: none */
    struct epoch_facts *epochs;
    struct time_facts time;
    bool ended;
    struct msg_done result; /* what the first agent was told */
};

struct membership;
struct membership_action;
struct membership_event;

struct oracle {
    struct sim *sim;
    struct trace *trace;
    struct job_facts *jobs;
    bool regresses; /* until the daemon is up again */
    bool regressed; /* once: what policies were about is not known any more */
};

#define VIOLATION(o, ...) trace_violation((o)->trace, __VA_ARGS__)

/* In the daemon, or NULL. */
struct job;
const struct job *facts_find_job(struct oracle *o, const struct id128 *instance);
/* Never NULL: what nothing is known of yet is begun. */
struct job_facts *facts_of_job(struct oracle *o, const struct id128 *instance);
/* Epochs from this one on were another past. */
void facts_forget_epochs(struct job_facts *f, uint64_t from);
struct epoch_facts *facts_of_epoch(struct oracle *o, struct job_facts *f,
                                   uint64_t epoch);

/* oracle_policy.c: the parts of oracle_acts and oracle_stepped about policies. */
void policy_acts(struct oracle *o, const struct membership *r,
                 const struct membership_event *ev, const struct membership_action *a);
void policy_stepped(struct oracle *o, const struct membership *before,
                    const struct membership *after);

/* oracle_time.c: where the time went. */
void time_acts(struct oracle *o, const struct membership *r,
               const struct membership_action *a);
void time_stepped(struct oracle *o, const struct membership *before,
                  const struct membership *after, const struct membership_event *ev);
void time_committed(struct job_facts *f, const struct membership *r);
void time_restored(struct oracle *o, struct job_facts *f, const struct membership *r);

/* oracle_memory.c: an epoch has formed; START arrives. */
void memory_entered(struct oracle *o, const struct membership *r);
void memory_start(struct oracle *o, const struct sim_agent *a, const struct msg *m,
                  struct epoch_facts *e);

/* By how much the membership may be behind the daemon's clock without its sleeps. */
uint64_t facts_slack_ms(const struct membership *r);

const struct job_config *facts_config(const struct sim_agent *a);
/* The job of that agent's name as the daemon has it now, or NULL. */
const struct job *facts_current_job(const struct oracle *o, const struct sim_agent *a);
