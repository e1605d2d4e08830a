/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/text.h"
#include "rendezvous/job/registry/registry_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/job/records/journal.h"
#include "rendezvous/job/registry/job_records.h"
#include "rendezvous/job/registry/worker_roles.h"

/*
 * Carries out the actions of the membership, one function for each: save, send a
 * message to a node, add an event. No decisions are made here.
 */
typedef void actor(struct registry_step *s, const struct membership_action *a);

static struct registry_peer *peer_of(const struct registry_step *s, uint32_t node)
{
    return s->job->node[node] ? s->job->node[node]->peer : NULL;
}

/* A new node: its name and addresses are in the JOIN being stepped. */
static void adopt_node(struct registry_step *s, uint32_t node)
{
    const struct msg_join *join = &s->msg->join;
    struct job_node *n = job_add_node(s->job, node);

    job_name_node(s->job, node, join->host);
    snprintf(n->address, sizeof(n->address), "%s", join->address);
    snprintf(n->containment, sizeof(n->containment), "%s", join->containment);
    if (strcmp(join->role, ROLE_DEFAULT) != 0)
        snprintf(n->role, sizeof(n->role), "%s", join->role);
    n->pid = join->pid;
    n->memory_port = join->memory_port;
    registry_count_node(s->registry, n, s->peer->source);
    registry_bind(s->peer, s->job, node);
    job_records_put_node(s->registry->journal, s->job, node);
    n->same_arguments = job_has_same_arguments(&s->job->membership.config,
                                               &join->config);
    registry_report(s->registry, s->job, "joined", n->host,
                    "%s joined (pid %" PRIu32 ", %" PRIu32 " worker%s)%s", n->host,
                    n->pid, join->workers, text_plural(join->workers),
                    s->job->membership.node[node].quarantined ? ", in quarantine" : "");
}

static void save_job(struct registry_step *s, const struct membership_action *a)
{
    job_count_stop(s->job);
    registry_choose_memory(s->job);
    job_records_put_state(s->registry->journal, s->job);
}

static void save_node(struct registry_step *s, const struct membership_action *a)
{
    if (!s->job->node[a->node])
        adopt_node(s, a->node);
    job_records_put_place(s->registry->journal, s->job, a->node);
}

static void save_past(struct registry_step *s, const struct membership_action *a)
{
    job_records_put_past(s->registry->journal, s->job, a->node);
}

static void drop_node(struct registry_step *s, const struct membership_action *a)
{
    struct registry_peer *p = peer_of(s, a->node);

    if (p) { /* no later message of it counts */
        registry_unbind(p);
        s->registry->config.hang_up(s->registry->config.arg, p->conn);
    }
    job_records_put_drop(s->registry->journal, s->job, a->node);
    registry_count_node(s->registry, s->job->node[a->node], SOURCE_NONE);
    registry_forget_memory(s->job, a->node);
    job_drop_node(s->job, a->node);
}

static void send_joined(struct registry_step *s, const struct membership_action *a)
{
    const struct membership *membership = &s->job->membership;
    const struct membership_node *n = &membership->node[a->node];
    struct msg m = { .type = MSG_JOINED };

    if (s->peer)
        registry_bind(s->peer, s->job, a->node);
    m.joined.node = a->node;
    m.joined.slot = n->slot == MEMBERSHIP_NONE ? -1 : (int32_t)n->slot;
    m.joined.spare = n->state == MEMBERSHIP_NODE_WAITING &&
                     (membership->state != JOB_FORMING ||
                      membership->tally.here > membership->config.max_nodes);
    m.joined.lease_ms = membership->config.lease_ms;
    memcpy(m.joined.host, s->job->node[a->node]->host, sizeof(m.joined.host));
    if (!peer_of(s, a->node))
        return;
    registry_send(peer_of(s, a->node), &m);
    registry_send_keepers(peer_of(s, a->node));
    registry_ask_owners_again(peer_of(s, a->node));
}

/*
 * The node of rank 0 serves the store only to members. It gets their addresses page by
 * page, so that no message grows with the number of nodes. Loopback is always allowed,
 * and adjacent members with the same address are listed once. The address of the node
 * that this rendezvous runs in is known only to the receiver.
 */
static void send_members(struct registry_step *s, struct registry_peer *leader)
{
    const struct membership *membership = &s->job->membership;
    struct msg m = { .type = MSG_MEMBERS };
    const char *previous = "";
    size_t used = 0;

    for (uint32_t slot = 0; slot < membership->config.max_nodes; slot++) {
        const char *seen;

        if (membership->slot_node[slot] == MEMBERSHIP_NONE)
            continue;
        seen = s->job->node[membership->slot_node[slot]]->seen;
        if (!*seen && membership->slot_node[slot] != membership->leader)
            seen = MEMBERS_RENDEZVOUS;
        if (!*seen || registry_is_loopback(seen) || strcmp(seen, previous) == 0)
            continue;
        previous = seen;
        if (used + strlen(seen) + 2 > sizeof(m.members.addresses)) {
            registry_send(leader, &m);
            used = 0;
        }
        used += (size_t)snprintf(m.members.addresses + used,
                                 sizeof(m.members.addresses) - used, "%s%s",
                                 used ? " " : "", seen);
    }
    if (used)
        registry_send(leader, &m);
}

static void send_start(struct registry_step *s, const struct membership_action *a)
{
    const struct membership *membership = &s->job->membership;
    const struct membership_node *n = &membership->node[a->node];
    const struct job_node *info = s->job->node[a->node];
    struct registry_peer *p = peer_of(s, a->node);
    struct msg m = { .type = MSG_START };

    if (!p)
        return;
    if (s->job->roles_epoch != membership->epoch)
        worker_roles_count(s->job);
    s->job->roles_epoch = membership->epoch;
    m.start = (struct msg_start){ .group_rank = n->group_rank,
                                  .group_size = membership->group_size,
                                  .first_rank = n->first_rank,
                                  .world_size = membership->world_size,
                                  .workers = n->workers,
                                  .role_first_rank = info->role_first_rank,
                                  .role_world_size = info->role_world_size,
                                  .slot = n->slot,
                                  .restarts = membership->restarts,
                                  .max_restarts = membership->config.max_restarts,
                                  .host_store = a->node == membership->leader };
    if (!m.start.host_store) {
        m.start.port = s->job->store_port;
        memcpy(m.start.free_ports, s->job->free_ports, sizeof(m.start.free_ports));
        memcpy(m.start.address, s->job->store_address, sizeof(m.start.address));
    }
    m.start.past_step = membership->time.past_step;
    m.start.cause = membership->epoch == 1 ? JOB_CAUSE_FIRST : membership->stop.cause;
    if (m.start.host_store) /* before START: the store opens after them */
        send_members(s, p);
    registry_start_memory(p, &m.start);
    registry_send(p, &m);
}

/* The cause of a consequence has not ended, so it may hang: a rank gives up when its
 * library's own timeout is over. */
static bool is_unexplained(const struct job *job)
{
    return job->failure.origin == FAILURE_ORIGIN_PEER && !job->failure.succeeded &&
           job->membership.config.failure_grace_ms > 0; /* it was waited for */
}

static void send_stop(struct registry_step *s, const struct membership_action *a)
{
    struct msg m = { .type = MSG_STOP };

    if (!peer_of(s, a->node))
        return;
    m.stop.grace_ms = s->job->membership.stop.grace_ms;
    m.stop.last = s->job->membership.stop.ending;
    m.stop.hang = s->job->membership.stop.cause == JOB_CAUSE_FAILURE &&
                  (s->job->failure.kind == FAILURE_HANG || is_unexplained(s->job));
    m.stop.cause = s->job->membership.stop.cause;
    snprintf(m.stop.text, sizeof(m.stop.text), "%s", job_stop_text(s->job));
    registry_send(peer_of(s, a->node), &m);
}

static void send_ask_checkpoint(struct registry_step *s,
                                const struct membership_action *a)
{
    const struct membership *membership = &s->job->membership;
    uint64_t now = membership->clock.now - membership->clock.stalled;
    struct msg m = { .type = MSG_ASK_CHECKPOINT };

    if (!peer_of(s, a->node))
        return;
    if (membership->checkpoint.until > now)
        m.ask_checkpoint.within_ms = (uint32_t)(membership->checkpoint.until - now);
    m.ask_checkpoint.cause = membership->checkpoint.cause;
    registry_send(peer_of(s, a->node), &m);
}

/* Of a job that ends: the connected member with the lowest rank, as far as it is known.
 * It is looked for once, not for each of the members that are told of the end. */
static uint32_t reporter_of(struct job *job)
{
    const struct membership *m = &job->membership;

    if (job->reporter != MEMBERSHIP_NONE)
        return job->reporter;
    MEMBERSHIP_EACH(i, m)
        if (job->node[i]->peer &&
            (job->reporter == MEMBERSHIP_NONE ||
             m->node[i].group_rank < m->node[job->reporter].group_rank))
            job->reporter = i;
    return job->reporter;
}

void registry_send_done(struct registry_peer *p, struct job *job, bool released)
{
    const struct membership *membership = &job->membership;
    struct msg m = { .type = MSG_DONE,
                     .instance = membership->instance,
                     .epoch = membership->epoch };

    m.done.restarts = membership->restarts;
    m.done.max_restarts = membership->config.max_restarts;
    if (released) {
        m.done.reason = JOB_REASON_RELEASED;
        snprintf(m.done.text, sizeof(m.done.text), "this node has left the job%s%s",
                 *job->node[p->node]->drained_by ? ": " : "",
                 job->node[p->node]->drained_by);
    } else {
        m.done.exit_code = membership->stop.exit_code;
        m.done.reason = membership->stop.reason;
        snprintf(m.done.text, sizeof(m.done.text), "%s",
                 m.done.reason == JOB_REASON_USER ? job_ended_by_text(job) : job->text);
        if (membership->stop.reason == JOB_REASON_FAILURE ||
            membership->stop.reason == JOB_REASON_LOST)
            m.done.failure = job->failure;
        memcpy(m.done.afterwards, job->afterwards, sizeof(m.done.afterwards));
        m.done.reports = p->job == job && p->node == reporter_of(job);
        snprintf(m.done.memory, sizeof(m.done.memory), "%s", registry_last_memory(job));
    }
    registry_send(p, &m);
}

static void send_done(struct registry_step *s, const struct membership_action *a)
{
    if (peer_of(s, a->node))
        registry_send_done(peer_of(s, a->node), s->job, false);
}

static void release_node(struct registry_step *s, const struct membership_action *a)
{
    const char *host = s->job->node[a->node]->host;

    registry_forget_memory(s->job, a->node);
    registry_report(s->registry, s->job, "left", host, "%s left in good order", host);
    if (peer_of(s, a->node))
        registry_send_done(peer_of(s, a->node), s->job, true);
}

/* Why a node was declared lost. */
static const char *loss_text(const struct membership *membership,
                             const struct membership_node *n)
{
    bool overdue = membership->clock.now - membership->clock.stalled >= n->deadline;

    if (overdue && n->connected)
        return "nothing was heard from it for a whole lease";
    if (overdue)
        return "its connection did not come back";
    return membership->state == JOB_STOPPING ? "its workers did not end in time"
                                             : "it did not open the store in time";
}

static void report_eviction(struct registry_step *s, const struct membership_action *a)
{
    struct registry_peer *p = peer_of(s, a->node);
    const char *host = s->job->node[a->node]->host;
    uint32_t source = s->registry->source;

    s->registry->source = s->job->node[a->node]->source;
    registry_report(s->registry, s->job, "lost", host, "%s was lost: %s", host,
                    loss_text(&s->job->membership, &s->job->membership.node[a->node]));
    s->registry->source = source;
    if (p)
        registry_refuse(p, NULL, REFUSED_FENCED, false,
                        "this node was declared lost and is no longer part of the job");
}

/* If another root cause of this stop was known, it becomes one of the failures that
 * followed. */
static void keep_failure(struct registry_step *s, const struct failure *f,
                         bool is_first)
{
    struct job *job = s->job;

    if (is_first)
        job->afterwards[0] = '\0';
    else
        job_add_afterwards(job, &job->failure);
    job->failure = *f;
    job_set_failure_text(job);
    job_records_put_failure(s->registry->journal, job);
}

static void keep_root_cause(struct registry_step *s, const struct membership_action *a)
{
    const struct membership *membership = &s->job->membership;
    struct failure f = s->msg->failed;

    memcpy(f.host, s->job->node[a->node]->host, sizeof(f.host));
    if (f.again) {
        s->job->failure = f;
        job_records_put_failure(s->registry->journal, s->job);
        return;
    }
    keep_failure(s, &f,
                 membership->state == JOB_RUNNING && membership->stop.failures == 1);
}

/* Not told before all other failures that may be the cause have been waited for. */
static void report_root_cause(struct registry_step *s,
                              const struct membership_action *a)
{
    struct job *job = s->job;

    job_set_failure_text(job);
    registry_report_failure(s->registry, job,
                            job->failure.kind == FAILURE_HANG ? "hang" : "failed",
                            &job->failure, job->text);
    if (job->membership.state != JOB_RUNNING)
        return;
    if (job->failure.kind == FAILURE_HANG) /* before STOP */
        registry_ask_stacks(s->registry, job, STACKS_FOR_HANG);
    else if (is_unexplained(job))
        registry_ask_stacks(s->registry, job, STACKS_FOR_CAUSE);
}

static void keep_root_lost(struct registry_step *s, const struct membership_action *a)
{
    const struct membership *membership = &s->job->membership;
    const struct membership_node *n = &membership->node[a->node];
    struct failure f = { .kind = FAILURE_LOST, .wall_ms = s->registry->wall_ms };
    size_t used;

    if (n->group_rank != MEMBERSHIP_NONE)
        f.rank = n->first_rank;
    memcpy(f.host, s->job->node[a->node]->host, sizeof(f.host));
    keep_failure(s, &f,
                 membership->state == JOB_RUNNING && membership->stop.failures == 0);
    used = strlen(s->job->text);
    if (n->state == MEMBERSHIP_NODE_ACTIVE && s->registry->journal &&
        !membership->config.strict_fence)
        snprintf(s->job->text + used, sizeof(s->job->text) - used,
                 "; if it is only cut off, its workers run until its --outage-grace is "
                 "over (--fence=strict ends them first)");
}

static void keep_afterwards(struct registry_step *s, const struct membership_action *a)
{
    struct failure f = s->msg->failed;
    char text[ERROR_TEXT_MAX_BYTES + 1];

    memcpy(f.host, s->job->node[a->node]->host, sizeof(f.host));
    job_add_afterwards(s->job, &f);
    job_records_put_failure(s->registry->journal, s->job);
    registry_report_failure(s->registry, s->job, "afterwards", &f,
                            job_describe_failure(&f, text, sizeof(text)));
}

static void report_quarantine(struct registry_step *s,
                              const struct membership_action *a)
{
    const struct job_config *c = &s->job->membership.config;
    const char *host = s->job->failure.host;

    registry_notice(s->registry, s->job, "quarantined", host,
                    "%s is in quarantine: it was the root cause of %" PRIu32
                    " stops within %d minutes; it joins an epoch only if "
                    "fewer than %" PRIu32 " other node%s there",
                    host, c->quarantine, QUARANTINE_WINDOW_MS / 60000, c->min_nodes,
                    c->min_nodes == 1 ? " is" : "s are");
}

/* A stop that was under way keeps its own reason. */
static void report_regression(struct registry_step *s,
                              const struct membership_action *a)
{
    const struct membership *membership = &s->job->membership;
    const char *host = s->job->node[a->node]->host;
    char text[NOTICE_MAX_BYTES + 1];

    snprintf(text, sizeof(text),
             "the rendezvous knows epoch %" PRIu64 ", and %.100s is in epoch %" PRIu64
             ": what was decided since is lost (a state directory from a backup, or a "
             "damaged disk?); that epoch stops, and restarts since are not counted",
             membership->epoch, host, s->msg->epoch);
    if (membership->state == JOB_STOPPING) {
        registry_notice(s->registry, s->job, "regressed", host, "%s", text);
        return;
    }
    s->job->failure = (struct failure){ .kind = FAILURE_NONE };
    s->job->afterwards[0] = '\0';
    snprintf(s->job->text, sizeof(s->job->text), "%s", text);
    job_records_put_failure(s->registry->journal, s->job);
    registry_report(s->registry, s->job, "regressed", host, "%s", text);
}

static void report_last_checkpoint(struct registry_step *s,
                                   const struct membership_action *a)
{
    registry_notice(s->registry, s->job, "ending", "",
                    "%s: the workers are asked for a checkpoint, then the job ends",
                    s->job->ended_by);
}

/* -- a new state ------------------------------------------------------------------ */

static void report_stopping(struct registry_step *s)
{
    const struct membership *membership = &s->job->membership;
    char next[64] = "it re-forms, which costs no restart";

    if (membership->stop.ending)
        snprintf(next, sizeof(next), "the job ends");
    else if (membership->stop.restart_spent)
        snprintf(next, sizeof(next), "restart %" PRIu32 " of %" PRIu32,
                 membership->restarts, membership->config.max_restarts);
    if (membership->stop.cause == JOB_CAUSE_SCALE_UP ||
        membership->stop.cause == JOB_CAUSE_DRAIN)
        job_set_change_text(s->job);
    registry_report(s->registry, s->job, "stopping", "",
                    "epoch %" PRIu64 " stops (%s): %s", membership->epoch,
                    proto_cause_name(membership->stop.cause), next);
}

static void report_result(struct registry_step *s)
{
    static const char *const results[JOB_REASON_COUNT] = {
        [JOB_REASON_SUCCESS] = "finished",
        [JOB_REASON_NOT_FORMED] = "not started",
    };
    enum job_reason reason = s->job->membership.stop.reason;
    struct job *job = s->job;

    job->done_ms = s->registry->now_ms;
    job_set_result_text(job);
    job_records_put_state(s->registry->journal, job);
    if (reason == JOB_REASON_USER)
        registry_report(s->registry, job, "done", "", "%s, exit code %" PRId32,
                        job->text, job->membership.stop.exit_code);
    else
        registry_report(s->registry, job, "done", "", "%s, exit code %" PRId32 ": %s",
                        results[reason] ? results[reason] : "failed",
                        job->membership.stop.exit_code, job->text);
}

char *registry_describe_wait(const struct registry *g, const struct job *job, char *buf,
                             size_t size)
{
    const struct membership *membership = &job->membership;
    uint64_t left = membership_backoff_left(membership, g->now_ms);

    buf[0] = '\0';
    if (left > 0)
        snprintf(buf, size, "restart %" PRIu32 " of %" PRIu32 " in %" PRIu64 " s: %s",
                 membership->restarts, membership->config.max_restarts,
                 (left + 999) / 1000, job->text);
    return buf;
}

/* "0.1 s to detect, 2.0 s to stop": what took a tenth of a second. Returns buf. */
static char *describe_lost(const struct job_time_sums *sums, char *buf, size_t size)
{
    static const char *const phases[JOB_PHASE_COUNT] = {
        [JOB_PHASE_DETECT] = "to detect",
        [JOB_PHASE_STOP] = "to stop",
        [JOB_PHASE_FORM] = "to form",
        [JOB_PHASE_START] = "to start",
        [JOB_PHASE_FIRST_STEP] = "to the first step",
        [JOB_PHASE_REWORK] = "for steps done again",
    };
    size_t used = 0;

    buf[0] = '\0';
    for (unsigned i = 0; i < JOB_PHASE_COUNT; i++)
        if (phases[i] && sums->ms[i] >= 100 && used < size)
            used += (size_t)snprintf(buf + used, size - used, "%s%.1f s %s",
                                     used ? ", " : ": ", (double)sums->ms[i] / 1000,
                                     phases[i]);
    return buf;
}

static void report_resumed(struct registry_step *s, const struct membership_action *a)
{
    const struct membership *membership = &s->job->membership;
    struct job_time_sums last = membership->time.last;
    char phases[NOTICE_MAX_BYTES / 2], memory[160], again[64] = "";

    registry_note_first_step(s->registry, s->job);
    if (membership->epoch == 1)
        return;
    histogram_add(&s->job->counts.recovery, JOB_RECOVERY_UNIT_US,
                  1000 * job_time_lost(&last));
    registry_describe_memory(s->job, s->msg->heartbeat.memory.restored, memory,
                             sizeof(memory));
    if ((last.steps_again || *memory) && !last.unplaced)
        snprintf(again, sizeof(again), "%s%" PRIu64 " step%s to be done again",
                 *memory ? ", " : "", last.steps_again, text_plural(last.steps_again));
    registry_notice(s->registry, s->job, "resumed", "",
                    "training again after %.1f s%s%s%s%s",
                    (double)job_time_lost(&last) / 1000,
                    describe_lost(&last, phases, sizeof(phases)),
                    *memory || *again ? "; " : "", memory, again);
}

/* Where the time went, if restarts have cost some: to one node, as each of them may
 * have the same terminal. */
static void report_time(struct registry_step *s)
{
    const struct job_time *t = &s->job->membership.time;
    uint32_t reporter = reporter_of(s->job);
    struct msg m = { .type = MSG_NOTICE, .notice = { .kind = "time" } };
    struct job_time_sums all = job_time_all(t, s->registry->now_ms);
    uint64_t age = job_time_age(&all), lost = job_time_lost(&all);
    char phases[NOTICE_MAX_BYTES / 2];

    if (!t->reports_steps || all.unplaced || s->job->membership.epoch < 2 || age == 0)
        return;
    snprintf(m.notice.text, sizeof(m.notice.text),
             "productive for %.1f %% of %.1f s, lost %.1f s%s",
             100 * (double)(age - lost) / (double)age, (double)age / 1000,
             (double)lost / 1000, describe_lost(&all, phases, sizeof(phases)));
    registry_report(s->registry, s->job, "time", "", "%s", m.notice.text);
    if (reporter != MEMBERSHIP_NONE && peer_of(s, reporter))
        registry_send(peer_of(s, reporter), &m);
}

static void report_state(struct registry_step *s, const struct membership_action *a)
{
    const struct membership *membership = &s->job->membership;
    char text[NOTICE_MAX_BYTES + 1];

    if (membership->state != JOB_STOPPING)
        registry_conclude_asks(s->registry, s->job, membership->state == JOB_DONE);
    switch (membership->state) {
    case JOB_FORMING:
        registry_describe_wait(s->registry, s->job, text, sizeof(text));
        if (*text)
            registry_notice(s->registry, s->job, "waiting", "", "%s", text);
        break;
    case JOB_RUNNING:
        s->job->refused[0] = '\0';
        s->job->notes = 0;
        s->job->store_port = 0;
        s->job->store_address[0] = s->job->free_ports[0] = '\0';
        job_forget_steps(s->job);
        registry_report(s->registry, s->job, "formed", "",
                        "epoch %" PRIu64 " formed: %" PRIu32 " node%s, %" PRIu32
                        " worker%s, rank 0 on %s",
                        membership->epoch, membership->group_size,
                        text_plural(membership->group_size), membership->world_size,
                        text_plural(membership->world_size),
                        s->job->node[membership->leader]->host);
        registry_note_formed(s->registry, s->job, job_stop_text(s->job));
        break;
    case JOB_STOPPING:
        registry_note_end(s->registry, s->job);
        report_stopping(s);
        break;
    case JOB_DONE:
        registry_note_end(s->registry, s->job);
        report_time(s);
        report_result(s);
        break;
    default:
        break;
    }
}

static actor *const actors[MEMBERSHIP_ACT_COUNT] = {
    [MEMBERSHIP_ACT_SAVE_JOB] = save_job,
    [MEMBERSHIP_ACT_SAVE_NODE] = save_node,
    [MEMBERSHIP_ACT_DROP_NODE] = drop_node,
    [MEMBERSHIP_ACT_SAVE_PAST] = save_past,
    [MEMBERSHIP_ACT_JOINED] = send_joined,
    [MEMBERSHIP_ACT_START] = send_start,
    [MEMBERSHIP_ACT_STOP] = send_stop,
    [MEMBERSHIP_ACT_ASK_CHECKPOINT] = send_ask_checkpoint,
    [MEMBERSHIP_ACT_DONE] = send_done,
    [MEMBERSHIP_ACT_RELEASED] = release_node,
    [MEMBERSHIP_ACT_EVICTED] = report_eviction,
    [MEMBERSHIP_ACT_ROOT_CAUSE] = keep_root_cause,
    [MEMBERSHIP_ACT_ROOT_LOST] = keep_root_lost,
    [MEMBERSHIP_ACT_ROOT_NAMED] = report_root_cause,
    [MEMBERSHIP_ACT_AFTERWARDS] = keep_afterwards,
    [MEMBERSHIP_ACT_QUARANTINED] = report_quarantine,
    [MEMBERSHIP_ACT_LAST_CHECKPOINT] = report_last_checkpoint,
    [MEMBERSHIP_ACT_REGRESSED] = report_regression,
    [MEMBERSHIP_ACT_RESUMED] = report_resumed,
    [MEMBERSHIP_ACT_ENTERED] = report_state,
};

void registry_act(struct registry_step *s, const struct membership_action *a)
{
    actors[a->type](s, a);
}
