/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/job/membership/membership.h"
#include "rendezvous/job/membership/membership_ranks.h"
#include "rendezvous/job/membership/membership_table.h"

/*
 * Shared by the files of the membership. A step has three parts: membership_events.c
 * admits the event, a handler there or in membership_join.c (which nodes are present)
 * changes facts, in membership_leave.c (which leave), membership_losses.c (which are
 * lost) or membership_root_cause.c (what failed), and membership_transitions.c moves to
 * another state as long as the facts require it. Only that file changes the state;
 * those that are listed below it say when.
 *
 * All stamps are in the membership's time: the owner's time less the time in which the
 * owner did not run. After a sleep of the daemon every lease, grace and deadline is as
 * far away as before.
 */
enum { EXIT_CODE_FAILED = 1, EXIT_CODE_NOT_FORMED = 69 };

struct step {
    struct membership *m;
    const struct membership_event *ev;
    const struct membership_sink *sink;
    struct membership_node *node; /* the event's, or NULL */
    uint64_t t;
    uint32_t node_out;
    uint32_t lost_member; /* of the running epoch, in this step */
};

typedef enum membership_verdict membership_handler(struct step *s);

/* membership_events.c: OK, or why the event does not count. */
enum membership_verdict membership_admit(struct step *s);
/* NULL if an event changes nothing in a state. */
extern membership_handler
    *const membership_handlers[JOB_STATE_COUNT][MEMBERSHIP_EV_COUNT];
void membership_hear(struct step *s, struct membership_node *n);
/* The running epoch needs the node. */
bool membership_is_vital(const struct membership *m, const struct membership_node *n);
void membership_forget_node(struct step *s, uint32_t i);

/* membership_join.c */
membership_handler membership_on_join, membership_on_resume;

/* membership_leave.c */
membership_handler membership_on_leave, membership_on_end;

/* membership_losses.c */
membership_handler membership_on_tick, membership_on_disconnect;
uint32_t membership_reconnect_grace(const struct job_config *c);
/* A running epoch may reach its end without nodes that have finished. */
void membership_end_if_hopeless(struct step *s);

/* membership_root_cause.c */
membership_handler membership_on_failed_running, membership_on_failed_stopping,
    membership_on_blamed;
bool membership_workers_have_ended(const struct membership *m);
/* When the wait for the failure that caused those so far is over, if it begins at t. */
uint64_t membership_blame_end(const struct membership *m, uint64_t t);

/* membership_transitions.c */
void membership_settle(struct step *s);
void membership_begin_stop(struct step *s, enum job_cause cause, uint32_t grace_ms);
void membership_stop_failed(struct step *s);
void membership_stop_regressed(struct step *s);
void membership_release(struct step *s, struct membership_node *n);
void membership_start_node(struct step *s, struct membership_node *n);
void membership_order_stop(struct step *s);

/* membership_restarts.c */
void membership_judge_root(struct membership *m);
/* membership_no_progress.c */
void membership_judge_progress(struct membership *m);
/* membership_backoff.c */
bool membership_is_backing_off(const struct step *s);
/* An epoch has been stopped. */
void membership_count_crash(struct membership *m);
/* membership_forming.c */
bool membership_is_ready_to_form(struct step *s);
/* When the wait for nodes is over. */
uint64_t membership_join_deadline(const struct membership *m);

/* membership_scale_up.c: whether nodes that wait get a part, and when. */
bool membership_wants_newcomers(const struct membership *m);
void membership_settle_scale_up(struct step *s);

/* membership_checkpoint.c: a planned stop waits for the checkpoint of the workers, for
 * at most within_ms. True when it may come. */
bool membership_checkpoint_is_over(struct step *s, enum job_cause cause,
                                   uint32_t within_ms);

static inline void membership_act(struct step *s, enum membership_action_type type,
                                  uint32_t node)
{
    struct membership_action a = { .type = type, .node = node, .from = s->m->state };

    s->sink->act(s->sink->arg, s->m, &a);
}

static inline uint32_t membership_index(const struct membership *m,
                                        const struct membership_node *n)
{
    return (uint32_t)(n - m->node);
}

static inline void membership_set_state(struct step *s, struct membership_node *n,
                                        enum membership_node_state state)
{
    membership_table_set_state(s->m, n, state);
    membership_act(s, MEMBERSHIP_ACT_SAVE_NODE, membership_index(s->m, n));
}

static inline bool membership_is_member(const struct membership_node *n)
{
    return n->state == MEMBERSHIP_NODE_ACTIVE || n->state == MEMBERSHIP_NODE_FINISHED ||
           n->state == MEMBERSHIP_NODE_STOPPED;
}

/* A member that may still have live workers of the epoch. */
static inline bool membership_is_unstopped(const struct membership_node *n)
{
    return n->state == MEMBERSHIP_NODE_ACTIVE || n->state == MEMBERSHIP_NODE_FINISHED;
}

/* Nodes that could be in the next epoch. */
static inline uint32_t membership_candidates(const struct membership *m)
{
    return m->tally.live - m->tally.leaving;
}

/* How long the epoch has run, the sleeps of the owner included. */
static inline uint64_t membership_age(const struct membership *m)
{
    return m->formed_at ? m->clock.now - m->formed_at : UINT64_MAX;
}

/* The result is decided; the job ends with this stop, or now. */
static inline void membership_decide(struct membership *m, enum job_reason reason,
                                     int32_t exit_code)
{
    m->stop.ending = true;
    m->stop.reason = reason;
    m->stop.exit_code = exit_code;
}
