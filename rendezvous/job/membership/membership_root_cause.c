/* SPDX-License-Identifier: MIT */
/* Which failure caused the others, and how long the ones that may have are waited for.
 */
#include "rendezvous/job/membership/membership_internal.h"

/* Time of the reported error, as far as the report's own delay is known. */
static uint64_t error_time(const struct step *s)
{
    return s->t - (s->ev->age_ms < s->t ? s->ev->age_ms : s->t);
}

static void take_as_root(struct step *s)
{
    struct membership_stop *stop = &s->m->stop;

    stop->root.node = membership_index(s->m, s->node);
    stop->root.identity = s->node->identity;
    stop->root.at = s->ev->at_ms;
    stop->root.erred_at = error_time(s);
    stop->root.origin = s->ev->origin;
    stop->root.final = s->ev->final;
    stop->root.exit_code = s->ev->exit_code;
    membership_act(s, MEMBERSHIP_ACT_ROOT_CAUSE, stop->root.node);
}

/* The origins are in the order of likelihood. Among equals the earlier error counts. */
static bool is_likelier_root(const struct step *s)
{
    const struct membership_stop *stop = &s->m->stop;

    if (s->ev->origin != stop->root.origin)
        return s->ev->origin < stop->root.origin;
    if (membership_index(s->m, s->node) == stop->root.node)
        return s->ev->at_ms < stop->root.at;
    return error_time(s) < stop->root.erred_at;
}

bool membership_workers_have_ended(const struct membership *m)
{
    uint64_t ended = m->stop.failures;

    MEMBERSHIP_EACH(i, m) {
        if (m->node[i].state == MEMBERSHIP_NODE_FINISHED)
            ended += m->node[i].workers;
        else if (m->node[i].state == MEMBERSHIP_NODE_ACTIVE)
            ended += m->node[i].succeeded;
    }
    return ended >= m->world_size;
}

/* The rank that caused the failures so far may still be ending. */
static bool culprit_may_follow(const struct membership *m)
{
    return m->stop.root.origin != FAILURE_ORIGIN_OWN &&
           m->config.failure_grace_ms > 0 && !membership_workers_have_ended(m);
}

/* The node's other workers have ended well since its failure was reported. */
static enum membership_verdict on_failed_again(struct step *s)
{
    struct membership *m = s->m;

    s->node->succeeded = s->ev->succeeded;
    if (membership_index(m, s->node) == m->stop.root.node &&
        s->ev->at_ms == m->stop.root.at)
        membership_act(s, MEMBERSHIP_ACT_ROOT_CAUSE, m->stop.root.node);
    if (membership_workers_have_ended(m))
        membership_stop_failed(s);
    return MEMBERSHIP_OK;
}

uint64_t membership_blame_end(const struct membership *m, uint64_t t)
{
    uint32_t grace_ms = m->config.failure_grace_ms;

    return t + (grace_ms < BLAME_WAIT_MS ? grace_ms : BLAME_WAIT_MS);
}

enum membership_verdict membership_on_failed_running(struct step *s)
{
    struct membership *m = s->m;
    bool waited = m->stop.blame_until > 0;

    if (s->node->state != MEMBERSHIP_NODE_ACTIVE || (s->ev->again && !waited))
        return MEMBERSHIP_IGNORED;
    if (s->ev->again)
        return on_failed_again(s);
    time_spent_error(&m->time, m->clock.now - s->ev->age_ms - s->ev->still_ms,
                     m->clock.now);
    if (m->stop.failures++ == 0) {
        m->stop.root.heard_at = s->t;
        m->stop.young = membership_age(m) < m->config.restart_min_uptime_ms;
    }
    if (s->ev->succeeded > s->node->succeeded)
        s->node->succeeded = s->ev->succeeded;
    if (!waited || is_likelier_root(s))
        take_as_root(s);
    else
        membership_act(s, MEMBERSHIP_ACT_AFTERWARDS, membership_index(m, s->node));
    if (!culprit_may_follow(m))
        membership_stop_failed(s);
    else if (!waited)
        m->stop.blame_until = membership_blame_end(m, s->t);
    if (m->stop.blame_until > 0)
        membership_act(s, MEMBERSHIP_ACT_SAVE_JOB, MEMBERSHIP_NONE);
    return MEMBERSHIP_OK;
}

/* Not the root cause, unless it is likelier than the one that is known. */
enum membership_verdict membership_on_failed_stopping(struct step *s)
{
    struct membership *m = s->m;

    if (s->ev->again)
        return MEMBERSHIP_IGNORED;
    if (m->stop.cause != JOB_CAUSE_FAILURE || !is_likelier_root(s)) {
        membership_act(s, MEMBERSHIP_ACT_AFTERWARDS, membership_index(m, s->node));
        return MEMBERSHIP_OK;
    }
    take_as_root(s);
    membership_judge_root(m);
    membership_act(s, MEMBERSHIP_ACT_ROOT_NAMED, m->stop.root.node);
    membership_act(s, MEMBERSHIP_ACT_SAVE_JOB, MEMBERSHIP_NONE);
    return MEMBERSHIP_OK;
}

/* The failure stands as it was reported, but another node has caused it. */
enum membership_verdict membership_on_blamed(struct step *s)
{
    struct membership *m = s->m;

    if (m->stop.cause != JOB_CAUSE_FAILURE)
        return MEMBERSHIP_IGNORED;
    m->stop.root.node = membership_index(m, s->node);
    m->stop.root.identity = s->node->identity;
    m->stop.root.at = 0; /* nothing on this node comes before it */
    membership_act(s, MEMBERSHIP_ACT_SAVE_JOB, MEMBERSHIP_NONE);
    return MEMBERSHIP_OK;
}
