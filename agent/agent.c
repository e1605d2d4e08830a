/* SPDX-License-Identifier: MIT */
#include "agent/agent.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "agent/agent_state.h"
#include "agent/fd_limits.h"
#include "agent/epoch_store.h"
#include "agent/ui/event_file.h"
#include "agent/workers/failure.h"
#include "agent/host_linger.h"
#include "agent/ui/status_line.h"
#include "agent/guard/guard.h"
#include "agent/rendezvous_host.h"
#include "agent/join_request.h"
#include "agent/local_workers.h"
#include "agent/logs/logs.h"
#include "agent/ui/job_messages.h"
#include "agent/signals.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/loop.h"
#include "rendezvous/base/xalloc.h"
#include "rendezvous/client.h"
#include "rendezvous/protocol/proto.h"
#include "rendezvous/registry/job.h"
#include "rendezvous/server.h"

/*
 * The agent ties its parts together: what happens is turned into an event, the table in
 * agent_state.c says what to do, and one function for each act does it.
 */
#define EXIT_USAGE 2
#define EXIT_EVICTED EX_TEMPFAIL

struct agent {
    const struct config *config;
    struct loop *loop;
    struct local_workers workers;
    struct event_file *events;
    struct status_line *foot;
    struct job_messages *say;
    struct rendezvous_host hosting;
    struct client *client;
    struct epoch_store store; /* while an epoch runs and rank 0 is here */

    enum agent_state state;
    struct msg_start start;
    struct msg_stop stop;
    uint64_t epoch;
    struct failure_list failures; /* of this node, in this epoch */

    char host[HOST_NAME_MAX_BYTES + 1]; /* once joined, what the job calls this node */
    const char *containment;            /* as joined */
    bool attached;
    struct signals signals;
    int signo;      /* the user's or the scheduler's last one */
    int leave_code; /* of a node that leaves; 0: it does not */
    bool hurries;
    char guard_died_why[ERROR_TEXT_MAX_BYTES + 1];
    struct msg_done result;
    int exit_code;
    struct host_linger farewell;
};

static void happen(struct agent *a, enum agent_event event);

/* -- saying things to the rendezvous -------------------------------------------- */

static void report(struct agent *a, struct msg *m)
{
    m->epoch = a->epoch;
    if (a->client)
        client_report(a->client, m);
}

static void report_plain(struct agent *a, enum msg_type type)
{
    struct msg m = { .type = type };

    report(a, &m);
}

static void on_store_client(void *arg, int fd)
{
    epoch_store_adopt(&((struct agent *)arg)->store, fd);
}

/* -- acts ----------------------------------------------------------------------- */

static void report_own_failure(struct agent *a, const char *why, bool final)
{
    struct msg m = { .type = MSG_FAILED };

    failure_of_agent(&m.failed, a->start.first_rank, why, final);
    report(a, &m);
}

static void act_start(struct agent *a)
{
    struct msg ready = { .type = MSG_STORE_READY };
    struct err e;

    failure_list_clear(&a->failures);
    if (a->start.host_store) {
        if (epoch_store_open(&a->store, a->client, &ready.store_ready, &e) < 0) {
            err_wrap(&e, "the store of rank 0");
            report_own_failure(a, e.text, true);
            return;
        }
        memcpy(a->start.address, ready.store_ready.address, sizeof(a->start.address));
        a->start.port = ready.store_ready.port;
        report(a, &ready);
    }
    job_messages_formed(a->say, &a->start, a->epoch);
    event_file_add_formed(a->events, a->epoch, &a->start);
    if (local_workers_start(&a->workers, &a->start, a->epoch, &e) < 0)
        report_own_failure(a, e.text, true);
}

static int stop_signals_signal(const struct agent *a)
{
    return signals_for_workers(&a->signals, a->signo);
}

static void act_stop(struct agent *a)
{
    uint32_t hurry_ms = a->config->job.failure_grace_ms;

    if (a->hurries && a->stop.grace_ms > hurry_ms)
        a->stop.grace_ms = hurry_ms;
    job_messages_stopping(a->say, &a->stop, group_alive(a->workers.group));
    event_file_add(a->events, "stopping", a->epoch, "%s", a->stop.text);
    if (a->stop.hang)
        progress_monitor_tell_ranks(a->workers.progress);
    local_workers_stop(&a->workers, stop_signals_signal(a), a->stop.grace_ms);
}

static void act_say_stopped(struct agent *a)
{
    job_messages_stopped(a->say);
    epoch_store_close(&a->store);
    report_plain(a, MSG_STOPPED);
}

static void act_say_failed(struct agent *a)
{
    struct msg m = { .type = MSG_FAILED,
                     .failed = a->failures.item[a->failures.count - 1] };

    report(a, &m);
}

static void act_say_finished(struct agent *a)
{
    progress_monitor_end(a->workers.progress);
    report_plain(a, MSG_FINISHED);
}

static void act_say_guard_died(struct agent *a)
{
    report_own_failure(a, a->guard_died_why, false);
}

static void act_end(struct agent *a)
{
    local_workers_stop(&a->workers, stop_signals_signal(a),
                       a->config->job.failure_grace_ms);
}

static void act_leave(struct agent *a)
{
    local_workers_release(&a->workers);
    epoch_store_close(&a->store);
    if (a->client)
        client_bye(a->client);
    host_linger_begin(&a->farewell);
}

static void (*const acts[AGENT_ACT_COUNT])(struct agent *) = {
    [AGENT_ACT_START] = act_start,
    [AGENT_ACT_STOP] = act_stop,
    [AGENT_ACT_REPORT_STOPPED] = act_say_stopped,
    [AGENT_ACT_REPORT_FAILED] = act_say_failed,
    [AGENT_ACT_REPORT_FINISHED] = act_say_finished,
    [AGENT_ACT_REPORT_GUARD_DIED] = act_say_guard_died,
    [AGENT_ACT_END] = act_end,
    [AGENT_ACT_LEAVE] = act_leave,
};

static void happen(struct agent *a, enum agent_event event)
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
    happen(a, AGENT_EV_START);
}

static void on_done(struct agent *a, const struct msg *m)
{
    a->result = m->done;
    a->exit_code = failure_exit_code(&m->done);
    if (m->done.reason == JOB_REASON_RELEASED && a->leave_code)
        a->exit_code = a->leave_code;
    happen(a, AGENT_EV_DONE);
}

static void on_refused(struct agent *a, const struct msg *m)
{
    log_error("%s", m->refused.text);
    a->farewell.serves_on = m->refused.why == REFUSED_UNFIT &&
                            job_can_spare(&a->config->job) &&
                            rendezvous_host_goes_on(&a->hosting, a->config);
    a->exit_code = join_request_exit_code(m->refused.why);
    happen(a, AGENT_EV_REFUSED);
}

static void on_stop(struct agent *a, const struct msg *m)
{
    a->epoch = m->epoch; /* which may have ended before it began here */
    a->stop = m->stop;
    job_messages_cause(a->say, &m->stop, m->epoch);
    happen(a, AGENT_EV_STOP);
}

static void on_members(struct agent *a, const struct msg *m)
{
    epoch_store_allow(&a->store, a->client, &m->members);
}

static void on_beat(struct agent *a, const struct msg *m)
{
    job_messages_waiting(a->say, &m->beat);
}

static void on_joined(struct agent *a, const struct msg *m)
{
    if (*m->joined.host)
        memcpy(a->host, m->joined.host, sizeof(a->host));
    job_messages_joined(a->say, &m->joined);
}

static void on_notice(struct agent *a, const struct msg *m)
{
    log_info("%s", m->notice.text);
    event_file_add(a->events, "notice", a->epoch, "%s", m->notice.text);
}

static void on_checkpoint_asked(struct agent *a, const struct msg *m)
{
    if (m->epoch == a->epoch)
        progress_monitor_ask_checkpoint(a->workers.progress,
                                        m->ask_checkpoint.within_ms);
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
        [MSG_DONE] = on_done,
        [MSG_REFUSED] = on_refused,
    };
    struct agent *a = arg;

    a->attached = true;
    if (m->type < MSG_TYPE_MAX && handlers[m->type])
        handlers[m->type](a, m);
}

static void on_outage(void *arg, bool out, const char *why)
{
    struct agent *a = arg;

    if (a->attached)
        job_messages_outage(out, why);
    else
        job_messages_unreached(a->say, out, why);
}

/* A job of one node has nobody to be cut off from. */
static void on_fence(void *arg, uint64_t until_ms)
{
    struct agent *a = arg;
    const struct job_config *job = &a->config->job;
    struct fence_terms terms = fence_terms_of(job->strict_fence, until_ms,
                                              job->lease_ms, job->failure_grace_ms);

    if (a->config->rendezvous != CONFIG_LOCAL && a->workers.guard)
        guard_fence(a->workers.guard, &terms);
}

static void on_abandoned(void *arg, const char *why)
{
    struct agent *a = arg;

    log_error("%s", why);
    if (a->attached)
        log_error("the job ends here; a standalone crund on a machine of its own would "
                  "outlive any node (crund(8))");
    a->exit_code = !a->attached                  ? EX_UNAVAILABLE
                   : a->config->job.strict_fence ? EXIT_EVICTED
                                                 : EXIT_FAILURE;
    happen(a, AGENT_EV_ABANDONED);
}

/* The guard has not waited for us: we were asleep, or busy for far too long. */
static void on_fenced(void *arg)
{
    struct agent *a = arg;

    if (a->state == AGENT_ENDING || a->state == AGENT_OVER)
        return;
    log_error(
        "the rendezvous was not heard from in time: this node's workers are ended");
    a->exit_code = EXIT_EVICTED;
    happen(a, AGENT_EV_ABANDONED);
}

/* -- the workers ---------------------------------------------------------------- */

static void note(struct agent *a, enum note_kind kind, const char *text)
{
    struct msg m = { .type = MSG_NOTE, .note = { .kind = kind } };

    snprintf(m.note.text, sizeof(m.note.text), "%s", text);
    report(a, &m);
}

static void on_remark(void *arg, enum note_kind kind, const char *text)
{
    struct agent *a = arg;

    log_warn("%s", text);
    event_file_add(a->events, proto_note_name(kind), a->epoch, "%s", text);
    note(a, kind, text);
}

/* An unfit node leaves, which costs the job no restart: no worker has anything to save
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
    note(a, NOTE_PREFLIGHT, own.what); /* which all nodes are told, this one too */
    a->farewell.serves_on = rendezvous_host_goes_on(&a->hosting, a->config);
    if (signals_report(SIGNAL_HURRY, EX_UNAVAILABLE, "unfit", &m))
        report(a, &m);
}

static void on_group_failed(void *arg, const struct failure *f)
{
    struct agent *a = arg;
    struct failure own = *f;

    snprintf(own.host, sizeof(own.host), "%s", a->host);
    gpu_monitor_explain(a->workers.gpus, &own);
    own.final |= failure_is_final(&own, &a->config->job);
    failure_list_add(&a->failures, &own);
    event_file_add_failed(a->events, a->epoch, &own);
    happen(a, AGENT_EV_FAILED);
}

static void on_checkpointed(void *arg)
{
    report_plain(arg, MSG_CHECKPOINTED);
}

/* How the job stands, as seen from this node. */
static void on_standing_asked(void *arg, char *text, size_t size)
{
    struct agent *a = arg;
    struct msg_heartbeat progress = { 0 };

    progress_monitor_progress(a->workers.progress, &progress);
    job_messages_standing(a->say, &progress, text, size);
}

static void on_progress_asked(void *arg, struct msg_heartbeat *progress)
{
    struct agent *a = arg;
    const char *now = a->workers.guard ? guard_containment(a->workers.guard)
                                       : a->containment;

    progress_monitor_progress(a->workers.progress, progress);
    gpu_monitor_progress(a->workers.gpus, progress);
    if (strcmp(now, a->containment) != 0)
        snprintf(progress->containment, sizeof(progress->containment), "%s", now);
}

static void on_group_finished(void *arg)
{
    happen(arg, AGENT_EV_ALL_EXITED);
}

static void on_group_stopped(void *arg)
{
    happen(arg, AGENT_EV_ALL_STOPPED);
}

static void on_guard_died(void *arg, const char *why, const struct err *e)
{
    struct agent *a = arg;

    snprintf(a->guard_died_why, sizeof(a->guard_died_why),
             "the guard of the workers died (%s), and they with it", why);
    if (*e->text) {
        log_error("%s", e->text);
        a->exit_code = EXIT_FAILURE;
        a->state = AGENT_ENDING;
    }
    happen(a, AGENT_EV_GUARD_DIED);
}

/* -- signals -------------------------------------------------------------------- */

static void hurry(struct agent *a)
{
    log_info("a second signal: this node leaves without waiting for a checkpoint");
    a->hurries = true;
    if (a->state == AGENT_STOPPING)
        act_stop(a);
}

static void on_signal(void *arg, int signo, enum signal_wish wish)
{
    struct agent *a = arg;
    struct msg m;

    a->signo = signo;
    a->exit_code = a->leave_code = 128 + signo;
    if (!a->attached || a->state == AGENT_OVER) {
        loop_stop(a->loop);
        return;
    }
    if (wish == SIGNAL_HURRY)
        hurry(a);
    if (signals_report(wish, a->leave_code, strsignal(signo), &m))
        report(a, &m);
    if (wish == SIGNAL_GO || wish == SIGNAL_KILL)
        local_workers_stop(&a->workers, SIGKILL, 0);
}

/* -- from beginning to end ------------------------------------------------------ */

static void on_fatal(void *arg, const char *why)
{
    struct agent *a = arg;

    log_error("%s", why);
    a->exit_code = EX_SOFTWARE;
    loop_stop(a->loop);
}

static int join(struct agent *a, const char *unfit, struct err *e)
{
    struct client_calls calls = { .order = on_order,
                                  .outage = on_outage,
                                  .abandoned = on_abandoned,
                                  .fence = on_fence,
                                  .progress = on_progress_asked,
                                  .arg = a };
    struct client_config cc;

    a->containment = guard_containment(a->workers.guard);
    join_request_fill(&cc, a->config, a->hosting.server, a->host, a->containment);
    snprintf(cc.session.join.unfit, sizeof(cc.session.join.unfit), "%s", unfit);
    a->client = client_create(a->loop, &cc, &calls, e);
    return a->client ? 0 : -1;
}

static void on_checked(void *arg, const char *unfit)
{
    struct err e;

    if (join(arg, unfit, &e) < 0)
        on_fatal(arg, e.text);
}

static int begin(struct agent *a, struct err *e)
{
    struct status_line_calls foot_calls = { .standing = on_standing_asked, .arg = a };
    struct rendezvous_host_calls hosting_calls = { .store_client = on_store_client,
                                                   .fatal = on_fatal,
                                                   .arg = a };
    struct local_workers_calls calls = {
        .group = { .failed = on_group_failed,
                   .unfit = on_group_unfit,
                   .finished = on_group_finished,
                   .stopped = on_group_stopped,
                   .arg = a },
        .progress = { .remark = on_remark, .checkpointed = on_checkpointed, .arg = a },
        .gpu = { .remark = on_remark, .arg = a },
        .fenced = on_fenced,
        .guard_died = on_guard_died,
        .arg = a,
    };

    if (local_workers_init(&a->workers, a->loop, a->config, &calls, e) < 0)
        return -1;
    a->events = event_file_create(a->config);
    a->foot = status_line_create(a->loop, logs_console(a->workers.logs), &foot_calls);
    a->say = job_messages_create(a->loop, a->config, a->foot);
    host_linger_init(&a->farewell, a->loop, a->config, &a->hosting);
    a->signals = (struct signals){ .fn = on_signal, .arg = a };
    signals_watch(&a->signals, a->loop, a->config);
    if (rendezvous_host_decide(&a->hosting, a->loop, a->config, &hosting_calls, e) < 0)
        return -1;
    a->signals.stays = a->hosting.server != NULL;
    if (!a->config->job.preflight)
        return join(a, "", e);
    gpu_monitor_check(a->workers.gpus, on_checked, a);
    return 0;
}

static void say_result(struct agent *a)
{
    struct failure_report r = { .job = job_messages_job(a->say),
                                .done = &a->result,
                                .others = &a->failures,
                                .epoch = a->epoch,
                                .own_host = a->host };

    event_file_add(a->events, "done", a->epoch, "%s, exit code %d",
                   proto_reason_name(a->result.reason), a->exit_code);
    failure_tell_result(&r, a->exit_code);
}

static void finish(struct agent *a)
{
    client_destroy(a->client);
    epoch_store_close(&a->store);
    server_destroy(a->hosting.server);
    host_linger_fini(&a->farewell);
    status_line_destroy(a->foot);
    local_workers_fini(&a->workers);
    say_result(a);
    event_file_destroy(a->events);
    job_messages_destroy(a->say);
    failure_list_clear(&a->failures);
    loop_destroy(a->loop);
}

int agent_run(const struct config *config)
{
    struct agent a = { .config = config, .exit_code = EXIT_FAILURE };
    struct err e;

    if (fd_limits_suffice(config, &e) < 0) {
        log_error("%s", e.text);
        return EXIT_USAGE;
    }
    a.store = (struct epoch_store){ .config = config, .hosting = &a.hosting };
    join_request_name_host(a.host, sizeof(a.host));
    a.loop = loop_create();
    if (begin(&a, &e) < 0) {
        log_error("%s", e.text);
        a.exit_code = EXIT_USAGE;
    } else {
        loop_run(a.loop);
    }
    finish(&a);
    return a.exit_code;
}
