/* SPDX-License-Identifier: MIT */
#include "agent/agent.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "agent/agent_state.h"
#include "agent/deadline.h"
#include "agent/epoch_store.h"
#include "agent/fd_limits.h"
#include "agent/guard/guard.h"
#include "agent/host_linger.h"
#include "agent/join_request.h"
#include "agent/local_workers.h"
#include "agent/logs/logs.h"
#include "agent/rendezvous_host.h"
#include "agent/signals.h"
#include "agent/store/owner_lookup.h"
#include "agent/suspension.h"
#include "agent/trainjob/trainjob_status.h"
#include "agent/ui/event_file.h"
#include "agent/ui/job_messages.h"
#include "agent/ui/status_line.h"
#include "agent/workers/failure.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/loop.h"
#include "rendezvous/base/xalloc.h"
#include "rendezvous/client.h"
#include "rendezvous/keys/key_ring.h"
#include "rendezvous/protocol/proto.h"
#include "rendezvous/registry/job.h"
#include "rendezvous/server.h"

/*
 * Connects the parts of the agent: each occurrence becomes an event, the table in
 * agent_state.c gives its act, and one function for each act performs it.
 */
#define EXIT_USAGE 2
#define EXIT_EVICTED EX_TEMPFAIL
/* The job ends for its scheduler, after a checkpoint. */
#define EXIT_REQUEUE EX_TEMPFAIL
#define SIGNALLED_TOO_MS 1000

struct agent {
    const struct config *config;
    struct loop *loop;
    struct key_ring *keys; /* NULL: none, or nothing leaves this process */
    struct local_workers workers;
    struct event_file *events;
    struct status_line *status_line;
    struct job_messages *messages;
    struct trainjob_status *trainjob; /* NULL: this is none */
    struct msg_heartbeat told;        /* what its last post was made from */
    uint64_t steps;                   /* of the whole job, 0: not known */
    struct rendezvous_host rendezvous;
    struct client *client;
    struct epoch_store store; /* while an epoch runs and this node has rank 0 */

    enum agent_state state;
    struct msg_start start;
    struct msg_stop stop;
    uint64_t epoch;
    struct failure_list failures; /* of this node, in this epoch */
    struct failure_list held;     /* may be the work of a signal that crun gets too */
    struct loop_timer held_timer;

    char host[HOST_NAME_MAX_BYTES + 1]; /* once joined, its name in the job */
    const char *containment;            /* as sent when joining */
    bool has_joined;
    struct signals signals;
    struct suspension suspension;
    struct deadline deadline;
    int signo;             /* the last one from the user or the scheduler */
    uint64_t signalled_ms; /* when SIGTERM or SIGUSR1 came last; 0: never */
    int leave_code;        /* if this node leaves; 0: it does not */
    bool stops_fast;
    bool stop_waits; /* until the stacks of a hang are taken */
    char guard_died_why[ERROR_TEXT_MAX_BYTES + 1];
    struct msg_done result;
    int exit_code;
    struct host_linger linger;
};

static void handle_event(struct agent *a, enum agent_event event);
static void drop_held_failures(struct agent *a);

/* Of the job, if the signal ends it. */
static int code_of_signal(const struct agent *a)
{
    bool announced = a->signals.preempted || a->deadline.is_over;

    return announced && a->signo != SIGINT ? EXIT_REQUEUE : 128 + a->signo;
}

/* -- reports to the rendezvous -------------------------------------------------- */

static void send_report(struct agent *a, struct msg *m)
{
    m->epoch = a->epoch;
    if (a->client)
        client_report(a->client, m);
}

static void send_plain_report(struct agent *a, enum msg_type type)
{
    struct msg m = { .type = type };

    send_report(a, &m);
}

static void on_store_client(void *arg, int fd)
{
    epoch_store_adopt(&((struct agent *)arg)->store, fd);
}

static void on_store_report(void *arg, struct msg *m)
{
    send_report(arg, m);
}

/* -- acts ----------------------------------------------------------------------- */

static void report_own_failure(struct agent *a, const char *why, bool final)
{
    struct msg m = { .type = MSG_FAILED };

    failure_set_of_agent(&m.failed, a->start.first_rank, why, final);
    send_report(a, &m);
}

static void act_start(struct agent *a)
{
    struct msg ready = { .type = MSG_STORE_READY };
    struct progress_store page;
    struct err e;

    failure_list_clear(&a->failures);
    drop_held_failures(a);
    a->stop_waits = false;
    a->store.token = (struct store_epoch){ .keys = a->keys,
                                           .instance = *session_instance(
                                               client_session(a->client)),
                                           .epoch = a->epoch };
    if (a->start.host_store) {
        if (epoch_store_open(&a->store, a->client, &ready.store_ready, &e) < 0) {
            err_wrap(&e, "the store of rank 0");
            report_own_failure(a, e.text, true);
            return;
        }
        memcpy(a->start.address, ready.store_ready.address, sizeof(a->start.address));
        a->start.port = ready.store_ready.port;
        send_report(a, &ready);
    } else {
        epoch_store_move_away(&a->store);
    }
    if (a->workers.guard)
        guard_set_store(a->workers.guard,
                        epoch_store_page(&a->store, &a->start, &page) ? &page : NULL);
    explicit_bzero(&page, sizeof(page));
    if (epoch_store_tunnel(&a->store, &a->start, &e) < 0) {
        report_own_failure(a, e.text, true);
        return;
    }
    rendezvous_host_found(&a->rendezvous);
    job_messages_formed(a->messages, &a->start, a->epoch);
    event_file_add_formed(a->events, a->epoch, &a->start);
    if (local_workers_start(&a->workers, &a->start, a->epoch, &e) < 0)
        report_own_failure(a, e.text, true);
}

static int signal_for_workers(const struct agent *a)
{
    return signals_for_workers(&a->signals, a->signo);
}

static void stop_workers(struct agent *a)
{
    local_workers_stop(&a->workers, signal_for_workers(a), a->stop.grace_ms);
}

static void act_stop(struct agent *a)
{
    uint32_t hurry_ms = a->config->job.failure_grace_ms;

    if (a->stops_fast && a->stop.grace_ms > hurry_ms)
        a->stop.grace_ms = hurry_ms;
    job_messages_stopping(a->messages, &a->stop, group_alive(a->workers.group));
    event_file_add(a->events, "stopping", a->epoch, "%s", a->stop.text);
    if (a->stop.hang) {
        progress_monitor_report_ranks(a->workers.progress);
        progress_monitor_ask_recorders(a->workers.progress);
    }
    a->stop_waits = a->stop.hang && !a->stop_waits && !a->stops_fast &&
                    progress_monitor_takes_stacks(a->workers.progress);
    if (!a->stop_waits)
        stop_workers(a);
}

static void on_stacks_taken(void *arg)
{
    struct agent *a = arg;

    if (a->stop_waits && a->state == AGENT_STOPPING)
        stop_workers(a);
    a->stop_waits = false;
}

static void act_report_stopped(struct agent *a)
{
    struct msg m = { .type = MSG_STOPPED };

    job_messages_stopped(a->messages);
    epoch_store_close(&a->store);
    m.stopped.step = progress_monitor_last_step(a->workers.progress);
    send_report(a, &m);
}

static void act_report_failed(struct agent *a)
{
    struct msg m = { .type = MSG_FAILED,
                     .failed = a->failures.item[a->failures.count - 1] };

    send_report(a, &m);
}

static void act_report_finished(struct agent *a)
{
    progress_monitor_end(a->workers.progress);
    trainjob_status_end(a->trainjob);
    send_plain_report(a, MSG_FINISHED);
}

static void act_report_guard_died(struct agent *a)
{
    report_own_failure(a, a->guard_died_why, false);
}

static void act_end(struct agent *a)
{
    local_workers_stop(&a->workers, signal_for_workers(a),
                       a->config->job.failure_grace_ms);
}

static void act_leave(struct agent *a)
{
    local_workers_release(&a->workers);
    epoch_store_release(&a->store);
    if (a->client)
        client_bye(a->client);
    host_linger_begin(&a->linger);
}

static void (*const acts[AGENT_ACT_COUNT])(struct agent *) = {
    [AGENT_ACT_START] = act_start,
    [AGENT_ACT_STOP] = act_stop,
    [AGENT_ACT_REPORT_STOPPED] = act_report_stopped,
    [AGENT_ACT_REPORT_FAILED] = act_report_failed,
    [AGENT_ACT_REPORT_FINISHED] = act_report_finished,
    [AGENT_ACT_REPORT_GUARD_DIED] = act_report_guard_died,
    [AGENT_ACT_END] = act_end,
    [AGENT_ACT_LEAVE] = act_leave,
};

static void handle_event(struct agent *a, enum agent_event event)
{
    struct agent_edge edge = agent_edge(a->state, event);

    log_debug("%s --%s--> %s", agent_state_name(a->state), agent_event_name(event),
              agent_state_name(edge.to));
    a->state = edge.to;
    if (edge.act != AGENT_ACT_NONE)
        acts[edge.act](a);
}

/* -- orders of the rendezvous --------------------------------------------------- */

static void on_start(struct agent *a, const struct msg *m)
{
    a->epoch = m->epoch;
    a->start = m->start;
    handle_event(a, AGENT_EV_START);
}

/* A job succeeds when all workers have ended well, and ours have not. */
static bool is_false_success(const struct agent *a, const struct msg_done *done)
{
    return done->reason == JOB_REASON_SUCCESS &&
           (a->state == AGENT_RUNNING || a->state == AGENT_STOPPING);
}

/* The person at this terminal knows. */
static void print_ended_by(struct agent *a, const char *text)
{
    if (!a->signals.typed)
        job_messages_ended_by(a->messages, text);
}

static void on_done(struct agent *a, const struct msg *m)
{
    a->result = m->done;
    if (m->done.reason == JOB_REASON_USER)
        print_ended_by(a, m->done.text);
    a->exit_code = failure_exit_code(&m->done);
    if (is_false_success(a, &m->done)) {
        log_error("the rendezvous says that the job has succeeded, but the workers of "
                  "this node have not ended: they are stopped");
        a->exit_code = EXIT_FAILURE;
    }
    if (m->done.reason == JOB_REASON_RELEASED && a->leave_code) {
        a->exit_code = a->leave_code;
        if (*a->signals.sender)
            snprintf(a->result.text, sizeof(a->result.text), "%.400s: %s", m->done.text,
                     a->signals.sender);
    }
    handle_event(a, AGENT_EV_DONE);
}

static void on_refused(struct agent *a, const struct msg *m)
{
    log_error("%s", m->refused.text);
    a->linger.until_job_ends = m->refused.why == REFUSED_UNFIT &&
                               job_can_spare(&a->config->job) &&
                               rendezvous_host_must_stay(&a->rendezvous, a->config);
    a->exit_code = join_request_exit_code(m->refused.why);
    handle_event(a, AGENT_EV_REFUSED);
}

static void on_stop(struct agent *a, const struct msg *m)
{
    a->epoch = m->epoch; /* the epoch may have ended before it began here */
    a->stop = m->stop;
    job_messages_cause(a->messages, &m->stop, m->epoch);
    if (m->stop.cause == JOB_CAUSE_USER)
        print_ended_by(a, m->stop.text);
    handle_event(a, AGENT_EV_STOP);
}

static void on_members(struct agent *a, const struct msg *m)
{
    epoch_store_allow(&a->store, a->client, &m->members);
}

static void on_beat(struct agent *a, const struct msg *m)
{
    job_messages_waiting(a->messages, &m->beat);
}

static void on_joined(struct agent *a, const struct msg *m)
{
    if (*m->joined.host)
        memcpy(a->host, m->joined.host, sizeof(a->host));
    job_messages_joined(a->messages, &m->joined);
}

static void on_notice(struct agent *a, const struct msg *m)
{
    if (!job_messages_are_first_nodes(a->messages))
        log_info("%s", m->notice.text);
    event_file_add(a->events, "notice", a->epoch, "%s", m->notice.text);
}

static void on_checkpoint_asked(struct agent *a, const struct msg *m)
{
    if (m->epoch == a->epoch)
        progress_monitor_request_checkpoint(a->workers.progress,
                                            m->ask_checkpoint.within_ms);
}

static void on_stacks_asked(struct agent *a, const struct msg *m)
{
    progress_monitor_ask_stacks(a->workers.progress, &m->ask_stacks);
}

static void on_find_owners(struct agent *a, const struct msg *m)
{
    struct msg answer = { .type = MSG_OWNERS };

    owner_lookup_answer(&m->ask_owners, &answer.owners);
    send_report(a, &answer);
}

static void on_owners_found(struct agent *a, const struct msg *m)
{
    epoch_store_owners_found(&a->store, &m->owners);
}

static void on_order(void *arg, const struct msg *m)
{
    static void (*const handlers[MSG_TYPE_MAX])(struct agent *, const struct msg *) = {
        [MSG_JOINED] = on_joined,
        [MSG_MEMBERS] = on_members,
        [MSG_START] = on_start,
        [MSG_STOP] = on_stop,
        [MSG_ASK_CHECKPOINT] = on_checkpoint_asked,
        [MSG_BEAT] = on_beat,
        [MSG_NOTICE] = on_notice,
        [MSG_ASK_STACKS] = on_stacks_asked,
        [MSG_FIND_OWNERS] = on_find_owners,
        [MSG_OWNERS_FOUND] = on_owners_found,
        [MSG_DONE] = on_done,
        [MSG_REFUSED] = on_refused,
    };
    struct agent *a = arg;

    a->has_joined = true;
    if (m->type < MSG_TYPE_MAX && handlers[m->type])
        handlers[m->type](a, m);
}

static void on_outage(void *arg, bool out, const char *why)
{
    struct agent *a = arg;

    if (a->has_joined && job_messages_tell_of_rendezvous(a->messages))
        job_messages_outage(out, why);
    else if (!a->has_joined)
        job_messages_unreached(a->messages, out, why);
    if (!out)
        epoch_store_ask_again(&a->store);
}

/* A job of one node has no other nodes to lose contact with. */
static void on_fence(void *arg, uint64_t until_ms)
{
    struct agent *a = arg;
    const struct job_config *job = &a->config->job;
    struct fence_terms terms = fence_terms_of(job->strict_fence, until_ms,
                                              job->lease_ms, job->failure_grace_ms);

    if (a->config->rendezvous != CONFIG_LOCAL && a->workers.guard)
        guard_fence(a->workers.guard, &terms);
}

static void print_abandoned(const struct agent *a, const char *why)
{
    log_error("%s", why);
    if (a->has_joined && a->config->job.strict_fence)
        log_error("this node has fenced itself (--fence=strict); the job can continue "
                  "without it");
    else if (a->has_joined)
        log_error("the job ends here; a standalone crund on a separate machine would "
                  "outlive any node (crund(8))");
}

static void on_abandoned(void *arg, const char *why)
{
    struct agent *a = arg;

    if (job_messages_tell_of_rendezvous(a->messages))
        print_abandoned(a, why);
    a->exit_code = !a->has_joined                ? EX_UNAVAILABLE
                   : a->config->job.strict_fence ? EXIT_EVICTED
                                                 : EXIT_FAILURE;
    handle_event(a, AGENT_EV_ABANDONED);
}

/* The guard ends the workers by itself: this process was asleep, or busy for too
 * long. */
static void on_fenced(void *arg)
{
    struct agent *a = arg;

    if (a->state == AGENT_ENDING || a->state == AGENT_OVER)
        return;
    log_error("no answer from the rendezvous in time: ending this node's workers");
    a->exit_code = EXIT_EVICTED;
    handle_event(a, AGENT_EV_ABANDONED);
}

/* -- the workers ---------------------------------------------------------------- */

static void report_note(struct agent *a, enum note_kind kind, const char *text)
{
    struct msg m = { .type = MSG_NOTE, .note = { .kind = kind } };

    snprintf(m.note.text, sizeof(m.note.text), "%s", text);
    send_report(a, &m);
}

static void on_remark(void *arg, enum note_kind kind, const char *text)
{
    struct agent *a = arg;

    log_warn("%s", text);
    event_file_add(a->events, proto_note_name(kind), a->epoch, "%s", text);
    report_note(a, kind, text);
}

/* An unfit node leaves, at the cost of no restart: no worker has results to save
 * yet. */
static void on_group_unfit(void *arg, const struct failure *f)
{
    struct agent *a = arg;
    struct failure own = *f;
    struct msg m;

    if (a->leave_code)
        return;
    gpu_monitor_explain(a->workers.gpus, &own);
    a->exit_code = a->leave_code = EX_UNAVAILABLE;
    report_note(a, NOTE_PREFLIGHT, own.what); /* reaches all nodes, this one too */
    a->linger.until_job_ends = rendezvous_host_must_stay(&a->rendezvous, a->config);
    if (signals_report(SIGNAL_LEAVE_FAST, EX_UNAVAILABLE, "unfit", &m))
        send_report(a, &m);
}

/*
 * Slurm signals all processes of a step at once. A worker that ends by such a signal
 * has not failed, its node is taken away: nothing is waited for, and it costs no
 * restart.
 */
static void leave_without_workers(struct agent *a)
{
    enum signal_action action = a->signals.cannot_leave ? SIGNAL_END
                                                        : SIGNAL_LEAVE_FAST;
    struct msg m;

    if (signals_report(action, code_of_signal(a), a->signals.sender, &m))
        send_report(a, &m);
}

static bool is_end_by_signal(const struct failure *f)
{
    if (f->kind == FAILURE_SIGNAL)
        return f->code == SIGTERM || f->code == SIGUSR1;
    return f->kind == FAILURE_EXIT &&
           (f->code == 128 + SIGTERM || f->code == 128 + SIGUSR1);
}

static void take_failure(struct agent *a, const struct failure *f)
{
    struct failure own = *f;

    snprintf(own.host, sizeof(own.host), "%s", a->host);
    gpu_monitor_explain(a->workers.gpus, &own);
    own.final |= failure_is_final(&own, &a->config->job);
    failure_list_add(&a->failures, &own);
    event_file_add_failed(a->events, a->epoch, &own);
    handle_event(a, AGENT_EV_FAILED);
}

/* No signal has followed. */
static void on_held_long_enough(void *arg)
{
    struct agent *a = arg;
    struct failure_list held = a->held;

    a->held = (struct failure_list){ 0 };
    for (size_t i = 0; i < held.count; i++)
        take_failure(a, &held.item[i]);
    failure_list_clear(&held);
}

static void drop_held_failures(struct agent *a)
{
    loop_timer_cancel(&a->held_timer);
    failure_list_clear(&a->held);
}

static void on_group_failed(void *arg, const struct failure *f)
{
    struct agent *a = arg;

    if (a->state != AGENT_RUNNING || !is_end_by_signal(f))
        take_failure(a, f);
    else if (a->signalled_ms && clock_ms() - a->signalled_ms <= SIGNALLED_TOO_MS)
        leave_without_workers(a);
    else if (!a->config->under_slurm)
        take_failure(a, f);
    else { /* the order of the signals is any */
        failure_list_add(&a->held, f);
        loop_timer_arm(&a->held_timer, clock_ms() + SIGNALLED_TOO_MS);
    }
}

static void on_stacks(void *arg, const struct msg *m)
{
    struct msg answer = *m;

    send_report(arg, &answer);
}

static void on_checkpointed(void *arg)
{
    send_plain_report(arg, MSG_CHECKPOINTED);
}

/* The state of the job, as seen from this node. */
static void on_status_asked(void *arg, char *text, size_t size)
{
    struct agent *a = arg;
    struct msg_heartbeat progress = { 0 };

    progress_monitor_fill_heartbeat(a->workers.progress, &progress);
    job_messages_status(a->messages, &progress, text, size);
}

static void on_progress_asked(void *arg, struct msg_heartbeat *progress)
{
    struct agent *a = arg;
    char buf[sizeof(progress->containment)];
    const char *now = a->workers.guard
                          ? local_workers_containment(&a->workers, buf, sizeof(buf))
                          : a->containment;

    progress_monitor_fill_heartbeat(a->workers.progress, progress);
    gpu_monitor_fill_heartbeat(a->workers.gpus, progress);
    progress_monitor_note_gpus(a->workers.progress, progress);
    if (strcmp(now, a->containment) != 0)
        snprintf(progress->containment, sizeof(progress->containment), "%s", now);
}

/* Of the node of rank 0, which speaks for the job. */
static bool on_trainjob_asked(void *arg, struct trainjob_progress *progress)
{
    struct agent *a = arg;
    uint64_t last = progress_monitor_last_step(a->workers.progress);
    uint64_t steps = progress_monitor_steps(a->workers.progress);

    if (a->epoch == 0 || a->start.group_rank != 0)
        return false;
    progress_monitor_fill_heartbeat(a->workers.progress, &a->told);
    *progress = (struct trainjob_progress){
        .step = last > a->told.step ? last : a->told.step,
        .steps = steps ? steps : a->steps,
        .steps_per_s = a->told.steps_per_s,
        .loss = a->told.loss,
    };
    a->steps = progress->steps;
    return true;
}

static void on_group_finished(void *arg)
{
    handle_event(arg, AGENT_EV_ALL_EXITED);
}

static void on_group_stopped(void *arg)
{
    handle_event(arg, AGENT_EV_ALL_STOPPED);
}

static void on_guard_died(void *arg, const char *why, const struct err *e)
{
    struct agent *a = arg;

    snprintf(a->guard_died_why, sizeof(a->guard_died_why),
             "the guard of the workers died (%s), and the workers with it", why);
    if (*e->text) {
        log_error("%s", e->text);
        a->exit_code = EXIT_FAILURE;
        a->state = AGENT_ENDING;
    }
    handle_event(a, AGENT_EV_GUARD_DIED);
}

/* -- signals -------------------------------------------------------------------- */

static void set_checkpoint(struct msg *m, bool wanted)
{
    if (m->type == MSG_LEAVE)
        m->leave.checkpoint = wanted;
    else if (m->type == MSG_END)
        m->end.checkpoint = wanted;
}

static void shorten_stop(struct agent *a)
{
    log_info("a second signal: this node leaves without waiting for a checkpoint");
    a->stops_fast = true;
    if (a->state == AGENT_STOPPING)
        act_stop(a);
}

static void on_stop_signal(void *arg, int signo, enum signal_action action)
{
    struct agent *a = arg;
    struct msg m;

    a->signo = signo;
    if (signo == SIGTERM)
        a->signalled_ms = clock_ms();
    a->leave_code = 128 + signo;
    a->exit_code = code_of_signal(a);
    if (!a->has_joined || a->state == AGENT_OVER) {
        if (!a->signals.typed)
            log_info("stopped by %s", a->signals.sender);
        loop_stop(a->loop);
        return;
    }
    if (action == SIGNAL_LEAVE_FAST)
        shorten_stop(a);
    if (signals_report(action, code_of_signal(a), a->signals.sender, &m)) {
        set_checkpoint(&m, a->signals.announces);
        send_report(a, &m);
    }
    if (a->held.count > 0) {
        drop_held_failures(a);
        leave_without_workers(a);
    }
    if (action == SIGNAL_LEAVE_KILLED || action == SIGNAL_KILL)
        local_workers_stop(&a->workers, SIGKILL, 0);
}

/* Of all nodes' reports the first one counts. */
static void on_deadline(void *arg, uint32_t within_ms)
{
    struct agent *a = arg;
    struct msg m = {
        .type = MSG_END,
        .end = { .exit_code = EXIT_REQUEUE, .checkpoint = true, .within_ms = within_ms }
    };
    char end[96];

    deadline_describe(a->config, end, sizeof(end));
    if (a->state == AGENT_OVER || a->state == AGENT_ENDING)
        return;
    if (!a->has_joined) {
        log_info("no job before the end of this node's time, %s", end);
        a->exit_code = EXIT_REQUEUE;
        loop_stop(a->loop);
        return;
    }
    snprintf(m.end.reason, sizeof(m.end.reason), "the time limit, %.44s", end);
    send_report(a, &m);
}

static uint64_t on_checkpoint_time_asked(void *arg)
{
    struct agent *a = arg;

    return progress_monitor_checkpoint_ms(a->workers.progress);
}

/* A job that ends does so first. */
static void on_suspend_signal(void *arg)
{
    struct agent *a = arg;

    if (a->state <= AGENT_FINISHED)
        suspension_begin(&a->suspension);
}

/* -- start and end -------------------------------------------------------------- */

static void on_fatal(void *arg, const char *why)
{
    struct agent *a = arg;

    log_error("%s", why);
    a->exit_code = EX_SOFTWARE;
    loop_stop(a->loop);
}

/* This node hosts the rendezvous: it cannot leave before the others. */
static void note_host(struct agent *a)
{
    a->signals.cannot_leave = a->rendezvous.server != NULL;
    a->suspension.hosts_rendezvous = a->rendezvous.server != NULL;
}

/* Until this node has joined, each answer may say that the rendezvous is to be here. */
static void on_resolved(void *arg, const struct net_addr *list, size_t count,
                        const char *why)
{
    struct agent *a = arg;
    struct err e;

    if (a->has_joined || a->rendezvous.server)
        return;
    if (rendezvous_host_consider(&a->rendezvous, list, count, why, &e) < 0) {
        log_error("%s", e.text);
        a->exit_code = EXIT_USAGE;
        loop_stop(a->loop);
        return;
    }
    note_host(a);
    if (a->rendezvous.server)
        client_use_server(a->client, a->rendezvous.server);
}

static int join_job(struct agent *a, const char *unfit, struct err *e)
{
    struct client_calls calls = { .order = on_order,
                                  .outage = on_outage,
                                  .abandoned = on_abandoned,
                                  .fence = on_fence,
                                  .progress = on_progress_asked,
                                  .resolved = on_resolved,
                                  .arg = a };
    struct client_config cc;

    a->containment = guard_containment(a->workers.guard);
    join_request_fill(&cc, a->config, a->rendezvous.server, a->host, a->containment);
    cc.keys = a->keys;
    snprintf(cc.session.join.unfit, sizeof(cc.session.join.unfit), "%s", unfit);
    a->client = client_create(a->loop, &cc, &calls, e);
    return a->client ? 0 : -1;
}

static void on_checked(void *arg, const char *unfit)
{
    struct err e;

    if (join_job(arg, unfit, &e) < 0)
        on_fatal(arg, e.text);
}

static int start_parts(struct agent *a, struct err *e)
{
    struct status_line_calls status_calls = { .status = on_status_asked, .arg = a };
    struct rendezvous_host_calls host_calls = { .store_client = on_store_client,
                                                .fatal = on_fatal,
                                                .arg = a };
    struct local_workers_calls calls = {
        .group = { .failed = on_group_failed,
                   .unfit = on_group_unfit,
                   .finished = on_group_finished,
                   .stopped = on_group_stopped,
                   .arg = a },
        .progress = { .remark = on_remark,
                      .stacks = on_stacks,
                      .stacks_taken = on_stacks_taken,
                      .checkpointed = on_checkpointed,
                      .arg = a },
        .gpu = { .remark = on_remark, .arg = a },
        .fenced = on_fenced,
        .guard_died = on_guard_died,
        .arg = a,
    };

    loop_timer_init(&a->held_timer, a->loop, on_held_long_enough, a);
    if (local_workers_init(&a->workers, a->loop, a->config, &calls, e) < 0)
        return -1;
    a->events = event_file_create(a->config);
    a->status_line = status_line_create(a->loop, logs_console(a->workers.logs),
                                        &status_calls);
    a->messages = job_messages_create(a->loop, a->config, a->status_line);
    a->trainjob = trainjob_status_create(a->loop, on_trainjob_asked, a);
    host_linger_init(&a->linger, a->loop, a->config, &a->rendezvous);
    a->suspension = (struct suspension){ .config = a->config,
                                         .workers = &a->workers,
                                         .status_line = a->status_line };
    suspension_init(&a->suspension, a->loop);
    a->signals = (struct signals){ .fn = on_stop_signal,
                                   .suspend = on_suspend_signal,
                                   .arg = a };
    a->deadline = (struct deadline){ .checkpoint_ms = on_checkpoint_time_asked,
                                     .due = on_deadline,
                                     .arg = a };
    deadline_init(&a->deadline, a->loop, a->config);
    signals_watch(&a->signals, a->loop, a->config);
    if (rendezvous_host_start(&a->rendezvous, a->loop, a->config, a->keys, &host_calls,
                              e) < 0)
        return -1;
    note_host(a);
    if (!a->config->job.preflight)
        return join_job(a, "", e);
    gpu_monitor_check(a->workers.gpus, on_checked, a);
    return 0;
}

/* Lost output alone is an error, but never hides another one. */
static void report_result(struct agent *a, const struct logs_end *end)
{
    struct failure_report r = { .job = job_messages_job(a->messages),
                                .done = &a->result,
                                .others = &a->failures,
                                .epoch = a->epoch,
                                .own_host = a->host,
                                .is_first_nodes = job_messages_are_first_nodes(
                                    a->messages) };
    bool only_lost = end->has_lost && a->exit_code == 0;
    int exit_code = only_lost ? EX_IOERR : a->exit_code;

    if (end->open_line && (exit_code || a->result.reason == JOB_REASON_RELEASED))
        (void)!write(STDERR_FILENO, "\n", 1); /* there will be a message */
    event_file_add(a->events, "done", a->epoch, "%s, exit code %d",
                   proto_reason_name(a->result.reason), exit_code);
    failure_report_result(&r, a->exit_code);
    if (only_lost)
        log_error("exit code %d, because output was lost", exit_code);
    a->exit_code = exit_code;
}

static void destroy_parts(struct agent *a)
{
    struct logs_end end;

    client_destroy(a->client);
    epoch_store_release(&a->store);
    rendezvous_host_end(&a->rendezvous);
    host_linger_fini(&a->linger);
    suspension_fini(&a->suspension);
    deadline_fini(&a->deadline);
    trainjob_status_destroy(a->trainjob);
    status_line_destroy(a->status_line);
    end = local_workers_fini(&a->workers);
    if (a->messages) /* all parts have started */
        report_result(a, &end);
    event_file_destroy(a->events);
    job_messages_destroy(a->messages);
    failure_list_clear(&a->failures);
    failure_list_clear(&a->held);
    loop_timer_fini(&a->held_timer);
    loop_destroy(a->loop);
    key_ring_close(a->keys);
}

/* A job within this process needs no key: it is not even looked for. */
static int open_keys(struct agent *a, struct err *e)
{
    if (a->config->rendezvous == CONFIG_LOCAL)
        return 0;
    if (a->config->key_text) {
        a->keys = key_ring_open_text("the launcher's key", a->config->key_text, e);
        return a->keys ? 0 : -1;
    }
    if (key_ring_open_own(a->config->key_file, a->config->require_key, &a->keys, e) < 0)
        return -1;
    if (!a->keys && a->config->job.store_tunnel)
        return err_set(e, "--store-tunnel needs a key, the same on all nodes "
                          "(crunctl keygen)");
    if (!a->keys || key_ring_access(a->keys) == ACCESS_AGENT)
        return 0;
    err_set(e, "%s has no key for a node of a job, only one of the role \"%s\"",
            key_ring_path(a->keys), access_names[key_ring_access(a->keys)]);
    key_ring_close(a->keys);
    return -1;
}

int agent_run(const struct config *config)
{
    struct agent a = { .config = config, .exit_code = EXIT_FAILURE };
    struct err e;

    if (fd_limits_suffice(config, &e) < 0 || open_keys(&a, &e) < 0) {
        log_error("%s", e.text);
        return EXIT_USAGE;
    }
    a.store = (struct epoch_store){
        .config = config, .host = &a.rendezvous, .report = on_store_report, .arg = &a
    };
    a.store.keys = a.keys;
    join_request_host_name(a.host, sizeof(a.host));
    a.loop = a.store.loop = loop_create();
    if (start_parts(&a, &e) < 0) {
        log_error("%s", e.text);
        a.exit_code = EXIT_USAGE;
    } else {
        loop_run(a.loop);
    }
    destroy_parts(&a);
    return a.exit_code;
}
