/* SPDX-License-Identifier: MIT */
/* Why this node or the job ends early: a signal, the deadline, output that is closed.
 */
#include "agent/agent_internal.h"

#include <signal.h>
#include <stdio.h>

#include "agent/logs/logs.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"

static void on_stop_signal(void *arg, int signo, enum signal_action action)
{
    struct agent *a = arg;
    struct msg m;

    a->signo = signo;
    if (signo == SIGTERM)
        a->signalled_ms = clock_ms();
    a->leave_code = 128 + signo;
    a->exit_code = agent_code_of_signal(a);
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
    if (signals_report(action, agent_code_of_signal(a), a->signals.sender, &m)) {
        if (m.type == MSG_LEAVE)
            m.leave.checkpoint = a->signals.announces;
        else if (m.type == MSG_END)
            m.end.checkpoint = a->signals.announces;
        agent_send_report(a, &m);
    }
    if (a->held.count > 0) {
        agent_drop_held_failures(a);
        agent_leave_without_workers(a);
    }
    if (action != SIGNAL_NO_CHANGE)
        agent_await_answer(a, agent_code_of_signal(a));
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
