/* SPDX-License-Identifier: MIT */
/* What is reported of a job's course: why a node was lost, what stopped, the time that
 * it cost. */
#include "rendezvous/job/registry/registry_internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "rendezvous/common/base/text.h"
#include "rendezvous/job/registry/job_records.h"

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

void registry_report_eviction(struct registry_step *s,
                              const struct membership_action *a)
{
    struct registry_peer *p = registry_peer_of(s, a->node);
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

/* A stop that was under way keeps its own reason. */
void registry_report_regression(struct registry_step *s,
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

void registry_report_last_checkpoint(struct registry_step *s,
                                     const struct membership_action *a)
{
    registry_notice(s->registry, s->job, "ending", "",
                    "%s: the workers are asked for a checkpoint, then the job ends",
                    s->job->ended_by);
}

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
static char *describe_lost(const struct time_spent_sums *sums, char *buf, size_t size)
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

void registry_report_resumed(struct registry_step *s, const struct membership_action *a)
{
    const struct membership *membership = &s->job->membership;
    struct time_spent_sums last = membership->time.last;
    char phases[NOTICE_MAX_BYTES / 2], memory[160], again[64] = "";

    registry_note_first_step(s->registry, s->job);
    if (membership->epoch == 1)
        return;
    histogram_add(&s->job->counts.recovery, JOB_RECOVERY_UNIT_US,
                  1000 * time_spent_lost(&last));
    registry_describe_memory(s->job, s->msg->heartbeat.memory.restored, memory,
                             sizeof(memory));
    if ((last.steps_again || *memory) && !last.unplaced)
        snprintf(again, sizeof(again), "%s%" PRIu64 " step%s to be done again",
                 *memory ? ", " : "", last.steps_again, text_plural(last.steps_again));
    registry_notice(s->registry, s->job, "resumed", "",
                    "training again after %.1f s%s%s%s%s",
                    (double)time_spent_lost(&last) / 1000,
                    describe_lost(&last, phases, sizeof(phases)),
                    *memory || *again ? "; " : "", memory, again);
}

/* Where the time went, if restarts have cost some: to one node, as each of them may
 * have the same terminal. */
static void report_time(struct registry_step *s)
{
    const struct time_spent *t = &s->job->membership.time;
    uint32_t reporter = registry_reporter_of(s->job);
    struct msg m = { .type = MSG_NOTICE, .notice = { .kind = "time" } };
    struct time_spent_sums all = time_spent_all(t, s->registry->now_ms);
    uint64_t age = time_spent_age(&all), lost = time_spent_lost(&all);
    char phases[NOTICE_MAX_BYTES / 2];

    if (!t->reports_steps || all.unplaced || s->job->membership.epoch < 2 || age == 0)
        return;
    snprintf(m.notice.text, sizeof(m.notice.text),
             "productive for %.1f %% of %.1f s, lost %.1f s%s",
             100 * (double)(age - lost) / (double)age, (double)age / 1000,
             (double)lost / 1000, describe_lost(&all, phases, sizeof(phases)));
    registry_report(s->registry, s->job, "time", "", "%s", m.notice.text);
    if (reporter != MEMBERSHIP_NONE && registry_peer_of(s, reporter))
        registry_send(registry_peer_of(s, reporter), &m);
}

void registry_report_state(struct registry_step *s, const struct membership_action *a)
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
