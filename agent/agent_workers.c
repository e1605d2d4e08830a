/* SPDX-License-Identifier: MIT */
/* What happens to this node's workers, as events of the agent's table and reports to
 * the rendezvous. */
#include "agent/agent_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "agent/interface/event_file.h"
#include "agent/logs/logs.h"
#include "rendezvous/common/base/log.h"

/* The guard ends the workers by itself: this process was asleep, or busy for too
 * long. */
static void on_fenced(void *arg)
{
    struct agent *a = arg;

    if (a->state == AGENT_ENDING || a->state == AGENT_OVER)
        return;
    log_error("no answer from the rendezvous in time: ending this node's workers");
    a->exit_code = EXIT_EVICTED;
    agent_handle_event(a, AGENT_EV_ABANDONED);
}

static void report_note(struct agent *a, enum note_kind kind, const char *text)
{
    struct msg m = { .type = MSG_NOTE, .note = { .kind = kind } };

    snprintf(m.note.text, sizeof(m.note.text), "%s", text);
    agent_send_report(a, &m);
}

static void on_remark(void *arg, enum note_kind kind, const char *text)
{
    struct agent *a = arg;

    log_warn("%s", text);
    event_file_add(a->events, proto_note_name(kind), a->epoch, "%s", text);
    report_note(a, kind, text);
}

/* It may have closed the connections whose end the failed worker saw. */
static void on_group_succeeded_late(void *arg, uint32_t rank)
{
    struct agent *a = arg;
    struct failure *f = a->failures.item;
    struct msg m = { .type = MSG_FAILED };

    if (a->state != AGENT_RUNNING || !a->failures.count ||
        f->origin == FAILURE_ORIGIN_OWN)
        return;
    if (f->succeeded++ == 0)
        f->succeeded_rank = rank;
    f->again = true;
    m.failed = *f;
    agent_send_report(a, &m);
}

static void on_group_left(void *arg, const char *text)
{
    on_remark(arg, NOTE_LEFTOVER, text);
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
        agent_send_report(a, &m);
}

static void send_answer(void *arg, const struct msg *m)
{
    struct msg answer = *m;

    agent_send_report(arg, &answer);
}

static void on_stepped(void *arg)
{
    struct agent *a = arg;

    client_hurry(a->client);
}

static void on_checkpointed(void *arg)
{
    struct msg m = { .type = MSG_CHECKPOINTED };

    agent_send_report(arg, &m);
}

static void on_output_shown(void *arg)
{
    struct agent *a = arg;

    agent_handle_event(a, a->workers_end);
}

/* The rendezvous may end with the job, and then no tool can ask for output any more. */
static void on_group_finished(void *arg)
{
    struct agent *a = arg;

    a->workers_end = AGENT_EV_ALL_EXITED;
    if (a->state != AGENT_RUNNING || !logs_finish(a->workers.logs, on_output_shown, a))
        agent_handle_event(a, AGENT_EV_ALL_EXITED);
}

/* Before a restart there is no wait: the output of the attempt before can be read. */
static void on_group_stopped(void *arg)
{
    struct agent *a = arg;

    a->workers_end = AGENT_EV_ALL_STOPPED;
    if (a->state != AGENT_STOPPING || !a->stop.last ||
        !logs_finish(a->workers.logs, on_output_shown, a))
        agent_handle_event(a, AGENT_EV_ALL_STOPPED);
}

static void on_guard_died(void *arg, const char *why, const struct err *e)
{
    struct agent *a = arg;

    snprintf(a->guard_died_why, sizeof(a->guard_died_why),
             "the guard of the workers died (%s), and the workers with it", why);
    if (*e->text) {
        log_error("%s", e->text);
        a->exit_code = EXIT_FAILURE;
    }
    agent_handle_event(a, *e->text ? AGENT_EV_GUARD_LOST : AGENT_EV_GUARD_DIED);
}

int agent_open_workers(struct agent *a, struct err *e)
{
    struct local_workers_calls calls = {
        .group = { .failed = agent_on_group_failed,
                   .succeeded_late = on_group_succeeded_late,
                   .unfit = on_group_unfit,
                   .left = on_group_left,
                   .finished = on_group_finished,
                   .stopped = on_group_stopped,
                   .arg = a },
        .progress = { .remark = on_remark,
                      .stacks = send_answer,
                      .stacks_taken = agent_on_stacks_taken,
                      .checkpointed = on_checkpointed,
                      .stepped = on_stepped,
                      .arg = a },
        .gpu = { .remark = on_remark, .arg = a },
        .fenced = on_fenced,
        .guard_died = on_guard_died,
        .arg = a,
    };

    if (local_workers_init(&a->workers, a->loop, a->config, &calls, e) < 0)
        return -1;
    logs_on_answer(a->workers.logs, send_answer, a);
    return 0;
}
