/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/registry/exit_code.h"
#include "rendezvous/job/registry/limits.h"
#include "rendezvous/job/registry/registry_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/*
 * The messages of agents that have joined: resuming, heartbeats, and reports.
 */

/* Its end is forgotten, or all that was ever said of it. */
static void refuse_unknown(struct registry *g, struct registry_peer *p,
                           const struct msg *m)
{
    struct msg_event event = { .kind = "regressed",
                               .wall_ms = g->wall_ms,
                               .monotonic_ms = g->now_ms,
                               .instance = m->instance,
                               .epoch = m->epoch };

    registry_refuse(p, m, REFUSED_FENCED, false,
                    "job \"%s\" is not known here any more: this rendezvous has lost "
                    "it (a state directory from a backup, or none?)",
                    m->resume.run_id);
    snprintf(event.run_id, sizeof(event.run_id), "%s", m->resume.run_id);
    snprintf(event.text, sizeof(event.text),
             "a node of it comes back from %s, and no such job is known here",
             p->address);
    if (g->config.event)
        g->config.event(g->config.arg, &event, p->source);
}

void registry_on_resume(struct registry *g, struct registry_peer *p,
                        const struct msg *m)
{
    struct membership_event ev = { .type = MEMBERSHIP_EV_RESUME,
                                   .node = m->resume.node,
                                   .epoch = m->epoch,
                                   .incarnation = g->config.digest(
                                       g->config.arg, &m->resume.incarnation) };
    struct job *job = registry_find(g, p, m->resume.run_id);

    if (job && id128_equal(&job->membership.instance, &m->instance) &&
        membership_find(&job->membership, &ev.incarnation) == m->resume.node) {
        job->node[m->resume.node]->memory_port = m->resume.memory_port;
        ev.memory = registry_take_memory(g, job, m->resume.node, m->resume.memory);
    }
    if (!job)
        refuse_unknown(g, p, m);
    else if (!id128_equal(&job->membership.instance, &m->instance))
        registry_refuse(
            p, m, REFUSED_FENCED, false,
            "job \"%s\" has been launched again; this node belongs to an older "
            "launch",
            m->resume.run_id);
    else if (registry_step(g, job, &ev, p, m, NULL) == MEMBERSHIP_OK)
        return;
    else if (job->membership.state == JOB_DONE)
        registry_send_done(p, job, false);
    else
        registry_refuse(p, m, REFUSED_FENCED, false,
                        "this node was declared lost and is no longer part of the job");
}

/* -- signs of life ---------------------------------------------------------------- */

static struct membership_event event_of(const struct registry_peer *p,
                                        const struct msg *m,
                                        enum membership_event_type type)
{
    return (struct membership_event){
        .type = type,
        .node = p->node,
        .epoch = m->epoch,
        .incarnation = p->job->membership.node[p->node].incarnation
    };
}

static void beat_put_waiting(const struct registry *g,
                             const struct membership *membership, struct msg_beat *b)
{
    uint32_t here = membership_present(membership);

    b->waiting = true;
    b->present = here;
    b->wanted = here < membership->config.min_nodes ? membership->config.min_nodes
                                                    : membership->config.max_nodes;
    b->left_ms = membership_time_left(membership, g->now_ms);
}

/* The node ranks that are missing, if nodes are started by rank. */
static void beat_put_missing(const struct job *job, struct msg_beat *b)
{
    const struct membership *membership = &job->membership;
    bool there[256] = { false }, by_rank = false;
    size_t used = 0;

    if (membership->config.max_nodes > sizeof(there))
        return;
    MEMBERSHIP_EACH(i, membership)
        if (membership->node[i].wanted_slot != MEMBERSHIP_NONE)
            there[membership->node[i].wanted_slot] = by_rank = true;
    for (uint32_t slot = 0; by_rank && slot < membership->config.max_nodes; slot++)
        if (!there[slot] && used + 8 < sizeof(b->missing))
            used += (size_t)snprintf(b->missing + used, sizeof(b->missing) - used,
                                     "%s%" PRIu32, used ? ", " : "", slot);
}

void registry_on_heartbeat(struct registry *g, struct registry_peer *p,
                           const struct msg *m)
{
    struct membership_event ev = event_of(p, m, MEMBERSHIP_EV_HEARTBEAT);
    struct msg beat = { .type = MSG_BEAT, .sequence = m->sequence };

    ev.step = m->heartbeat.step;
    ev.first_step = m->heartbeat.first_step;
    ev.first_ms = m->heartbeat.first_ms;
    ev.reached_ms = m->heartbeat.reached_ms;
    job_note_step(p->job, p->node, &m->heartbeat, g->now_ms);
    job_take_progress(p->job, p->node, m->epoch, &m->heartbeat);
    p->job->node[p->node]->progress_epoch = m->epoch;
    registry_step(g, p->job, &ev, p, m, NULL);
    registry_note_silence(g, p->job);
    registry_note_progress(g, p->job);
    job_note_busy(p->job, g->now_ms);
    if (p->job->membership.state == JOB_FORMING &&
        membership_backoff_left(&p->job->membership, g->now_ms) == 0) {
        beat_put_waiting(g, &p->job->membership, &beat.beat);
        beat_put_missing(p->job, &beat.beat);
        memcpy(beat.beat.refused, p->job->refused, sizeof(beat.beat.refused));
    }
    registry_send(p, &beat);
}

void registry_on_bye(struct registry *g, struct registry_peer *p, const struct msg *m)
{
    struct membership_event ev = event_of(p, m, MEMBERSHIP_EV_BYE);

    registry_step(g, p->job, &ev, p, m, NULL);
}

/* -- reports ---------------------------------------------------------------------- */

static void take_store_ready(struct registry_peer *p, const struct msg *m,
                             struct membership_event *ev)
{
    const struct membership *membership = &p->job->membership;
    const struct job_node *n = p->job->node[p->node];
    const char *address = *m->store_ready.address ? m->store_ready.address
                          : *n->address           ? n->address
                                                  : n->seen;

    if (p->node == membership->leader && m->epoch == membership->epoch &&
        !membership->store_ready) {
        snprintf(p->job->store_address, sizeof(p->job->store_address), "%s", address);
        p->job->store_port = m->store_ready.port;
        memcpy(p->job->free_ports, m->store_ready.free_ports,
               sizeof(p->job->free_ports));
    }
}

static void take_failed(struct registry_peer *p, const struct msg *m,
                        struct membership_event *ev)
{
    ev->at_ms = m->failed.at_ms;
    ev->age_ms = m->failed.age_ms;
    ev->still_ms = m->failed.still_ms;
    ev->succeeded = m->failed.succeeded;
    ev->again = m->failed.again;
    ev->origin = m->failed.origin < FAILURE_ORIGIN_COUNT ? m->failed.origin
                                                         : FAILURE_ORIGIN_OWN;
    ev->final = m->failed.final;
    ev->exit_code = job_exit_code(&m->failed);
}

static void take_stopped(struct registry_peer *p, const struct msg *m,
                         struct membership_event *ev)
{
    ev->step = m->stopped.step;
    ev->first_step = m->stopped.first_step;
    if (m->epoch == p->job->membership.epoch) /* else it holds something newer */
        ev->memory = registry_take_memory(p->registry, p->job, p->node,
                                          m->stopped.memory);
}

static void note_ended_by(struct job *job, const char *reason, const char *host)
{
    bool alone = job->membership.config.max_nodes == 1;

    job_set_ended_by(job, "stopped by %s%s%s", reason, alone ? "" : " on ",
                     alone ? "" : host);
}

static void take_leave(struct registry_peer *p, const struct msg *m,
                       struct membership_event *ev)
{
    const char *host = p->job->node[p->node]->host;

    ev->exit_code = m->leave.exit_code;
    ev->now = m->leave.now;
    ev->checkpoint = m->leave.checkpoint;
    note_ended_by(p->job, m->leave.reason, host); /* too few nodes may remain */
    registry_report(p->registry, p->job, "leaving", host, "%s wants to leave%s: %s",
                    host, ev->now ? " at once" : "", m->leave.reason);
}

static void take_end(struct registry_peer *p, const struct msg *m,
                     struct membership_event *ev)
{
    const char *host = p->job->node[p->node]->host;

    ev->exit_code = m->end.exit_code;
    ev->now = m->end.now;
    ev->checkpoint = m->end.checkpoint && !m->end.now;
    ev->within_ms = m->end.within_ms;
    note_ended_by(p->job, m->end.reason, host);
    registry_report(p->registry, p->job, "ending", host, "%s ends the job: %s", host,
                    m->end.reason);
}

/* A note only informs users. */
static void take_note(struct registry_peer *p, const struct msg *m,
                      struct membership_event *ev)
{
    struct job *job = p->job;
    const char *kind = proto_note_name(m->note.kind);
    const char *host = job->node[p->node]->host;

    if (m->epoch != job->membership.epoch || job->notes >= NOTES_PER_EPOCH_MAX)
        return;
    job->notes++;
    if (m->note.kind == NOTE_PREFLIGHT)
        registry_notice(p->registry, job, kind, host, "%s", m->note.text);
    else
        registry_report(p->registry, job, kind, host, "%s", m->note.text);
    if (job->membership.state == JOB_STOPPING && m->note.kind == NOTE_RANK)
        job_add_hang_line(job, "%s: %s", host, m->note.text);
}

/* The event that a report becomes, and further actions. */
static const struct {
    enum membership_event_type event;
    registry_taker *take; /* NULL: nothing */
} reports[MSG_TYPE_MAX] = {
    [MSG_STORE_READY] = { MEMBERSHIP_EV_STORE_READY, take_store_ready },
    [MSG_FAILED] = { MEMBERSHIP_EV_FAILED, take_failed },
    [MSG_FINISHED] = { MEMBERSHIP_EV_FINISHED, NULL },
    [MSG_STOPPED] = { MEMBERSHIP_EV_STOPPED, take_stopped },
    [MSG_CHECKPOINTED] = { MEMBERSHIP_EV_CHECKPOINTED, NULL },
    [MSG_LEAVE] = { MEMBERSHIP_EV_LEAVE, take_leave },
    [MSG_END] = { MEMBERSHIP_EV_END, take_end },
    [MSG_NOTE] = { MEMBERSHIP_EV_HEARTBEAT, take_note }, /* a sign of life */
    [MSG_STACKS] = { MEMBERSHIP_EV_HEARTBEAT, registry_take_stacks },
    [MSG_LOGS] = { MEMBERSHIP_EV_HEARTBEAT, registry_take_logs },
    [MSG_KEEPING] = { MEMBERSHIP_EV_HEARTBEAT, registry_take_keeping },
    [MSG_FLUSHED] = { MEMBERSHIP_EV_HEARTBEAT, registry_take_flushed },
    [MSG_ASK_OWNERS] = { MEMBERSHIP_EV_HEARTBEAT, registry_ask_owners },
    [MSG_OWNERS] = { MEMBERSHIP_EV_HEARTBEAT, registry_take_owners },
};

/* Every report is acknowledged, even if it comes too late to count. */
void registry_on_report(struct registry *g, struct registry_peer *p,
                        const struct msg *m)
{
    struct membership_event ev = event_of(p, m, reports[m->type].event);

    if (reports[m->type].take)
        reports[m->type].take(p, m, &ev);
    registry_acknowledge(p, m); /* the step may release the node */
    registry_step(g, p->job, &ev, p, m, NULL);
}
