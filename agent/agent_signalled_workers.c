/* SPDX-License-Identifier: MIT */
/*
 * Whether a worker that ends by a signal has failed. Slurm signals all processes of a
 * step at once: a worker that ends by such a signal has not failed, its node is taken
 * away. Nothing is waited for, and it costs no restart.
 */
#include "agent/agent_internal.h"

#include <stdio.h>

#include "agent/interface/event_file.h"
#include "rendezvous/common/base/clock.h"

#define SIGNALLED_TOO_MS 1000

void agent_leave_without_workers(struct agent *a)
{
    enum signal_action action = a->signals.cannot_leave ? SIGNAL_END
                                                        : SIGNAL_LEAVE_FAST;
    struct msg m;

    if (signals_report(action, agent_code_of_signal(a), a->signals.sender, &m))
        agent_send_report(a, &m);
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

    if (a->state != AGENT_RUNNING || !signals_ended(f))
        take_failure(a, f);
    else if (a->signalled_ms && clock_ms() - a->signalled_ms <= SIGNALLED_TOO_MS)
        agent_leave_without_workers(a);
    else if (!a->config->under_slurm)
        take_failure(a, f);
    else { /* the worker's signal may have come before that of crun */
        failure_list_add(&a->held, f);
        loop_timer_arm(&a->held_timer, clock_ms() + SIGNALLED_TOO_MS);
    }
}

void agent_init_signalled(struct agent *a)
{
    loop_timer_init(&a->held_timer, a->loop, on_held_long_enough, a);
}
