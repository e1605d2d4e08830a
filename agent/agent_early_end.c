/* SPDX-License-Identifier: MIT */
#include "agent/agent_internal.h"

#include <signal.h>
#include <stdio.h>

#include "agent/interface/event_file.h"
#include "agent/interface/job_messages.h"
#include "agent/logs/logs.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"

/* The job ends for its scheduler, after a checkpoint. */
#define EXIT_REQUEUE EX_TEMPFAIL
#define SIGNALLED_TOO_MS 1000

/* The job's exit code if the signal ends it. */
static int code_of_signal(const struct agent *a)
{
    bool announced = a->signals.preempted || a->deadline.is_over;

    return announced && a->signo != SIGINT ? EXIT_REQUEUE : 128 + a->signo;
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
        agent_send_report(a, &m);
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
    agent_handle_event(a, AGENT_EV_FAILED);
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

void agent_drop_held_failures(struct agent *a)
{
    loop_timer_cancel(&a->held_timer);
    failure_list_clear(&a->held);
}

void agent_on_group_failed(void *arg, const struct failure *f)
{
    struct agent *a = arg;

    if (a->state != AGENT_RUNNING || !is_end_by_signal(f))
        take_failure(a, f);
    else if (a->signalled_ms && clock_ms() - a->signalled_ms <= SIGNALLED_TOO_MS)
        leave_without_workers(a);
    else if (!a->config->under_slurm)
        take_failure(a, f);
    else { /* the worker's signal may have come before that of crun */
        failure_list_add(&a->held, f);
        loop_timer_arm(&a->held_timer, clock_ms() + SIGNALLED_TOO_MS);
    }
}

/* -- signals ----------------------------------------------------------------------- */

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
    if (action == SIGNAL_LEAVE_FAST) {
        log_info("a second signal: this node leaves without waiting for a checkpoint");
        a->stops_fast = true;
        if (a->state == AGENT_STOPPING)
            agent_act_stop(a);
    }
    if (signals_report(action, code_of_signal(a), a->signals.sender, &m)) {
        if (m.type == MSG_LEAVE)
            m.leave.checkpoint = a->signals.announces;
        else if (m.type == MSG_END)
            m.end.checkpoint = a->signals.announces;
        agent_send_report(a, &m);
    }
    if (a->held.count > 0) {
        agent_drop_held_failures(a);
        leave_without_workers(a);
    }
    if (action != SIGNAL_NO_CHANGE)
        agent_await_answer(a, code_of_signal(a));
    if (action == SIGNAL_LEAVE_KILLED || action == SIGNAL_KILL)
        agent_hurry_answer(a);
}

/* Each node reports it; the rendezvous obeys the first report. */
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
    agent_send_report(a, &m);
    agent_await_answer(a, EXIT_REQUEUE);
}

/* As for a program that is killed by SIGPIPE, but its workers may write checkpoints. */
static void on_output_closed(void *arg)
{
    struct agent *a = arg;
    struct msg m = { .type = MSG_END, .end = { .exit_code = 128 + SIGPIPE } };

    if (a->state == AGENT_OVER || a->state == AGENT_ENDING)
        return;
    a->exit_code = 128 + SIGPIPE;
    if (!a->has_joined) {
        loop_stop(a->loop);
        return;
    }
    snprintf(m.end.reason, sizeof(m.end.reason), "its closed standard output");
    agent_send_report(a, &m);
    agent_await_answer(a, 128 + SIGPIPE);
}

static uint64_t on_checkpoint_time_asked(void *arg)
{
    struct agent *a = arg;

    return progress_monitor_checkpoint_ms(a->workers.progress);
}

/* A job that ends does so first. */
static void on_suspend_signal(void *arg, int signo)
{
    struct agent *a = arg;

    if (signo == SIGCONT)
        suspension_cancel(&a->suspension);
    else if (a->state <= AGENT_FINISHED)
        suspension_begin(&a->suspension);
}

void agent_init_ends(struct agent *a)
{
    loop_timer_init(&a->held_timer, a->loop, on_held_long_enough, a);
    agent_init_unanswered(a);
}

void agent_watch_ends(struct agent *a)
{
    a->signals = (struct signals){ .fn = on_stop_signal,
                                   .suspend = on_suspend_signal,
                                   .arg = a };
    a->deadline = (struct deadline){ .checkpoint_ms = on_checkpoint_time_asked,
                                     .due = on_deadline,
                                     .arg = a };
    deadline_init(&a->deadline, a->loop, a->config);
    if (logs_need_reader(a->config))
        logs_on_closed(a->workers.logs, on_output_closed, a);
    signals_watch(&a->signals, a->loop, a->config);
}
