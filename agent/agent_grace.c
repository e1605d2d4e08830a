/* SPDX-License-Identifier: MIT */
/*
 * The end of this node's workers in an epoch: which signal they get, how long they have
 * until they are killed, and the stacks of a hang that are taken before.
 */
#include "agent/agent_internal.h"

#include "agent/interface/event_file.h"
#include "agent/interface/job_messages.h"

static int signal_for_workers(const struct agent *a)
{
    return signals_for_workers(&a->signals, a->signo);
}

/* After a failure the workers cannot begin a checkpoint of all ranks. */
static void stop_workers(struct agent *a)
{
    const struct msg_stop *s = &a->stop;
    bool lost_rank = s->cause == JOB_CAUSE_FAILURE || s->cause == JOB_CAUSE_LOST;
    uint32_t quick_ms = a->config->survivor_grace_ms;

    local_workers_stop(&a->workers, signal_for_workers(a),
                       lost_rank && quick_ms < a->config->job.failure_grace_ms,
                       lost_rank && !s->last ? quick_ms : s->grace_ms, s->grace_ms);
}

void agent_act_stop(struct agent *a)
{
    uint32_t hurry_ms = a->config->job.failure_grace_ms;

    if (a->stops_fast && a->stop.grace_ms > hurry_ms)
        a->stop.grace_ms = hurry_ms;
    job_messages_stopping(a->messages, &a->stop, group_alive(a->workers.group));
    event_file_add_stopping(a->events, a->epoch, &a->stop);
    if (a->stop.hang) {
        progress_monitor_report_ranks(a->workers.progress);
        progress_monitor_ask_recorders(a->workers.progress);
    }
    a->stop_waits = a->stop.hang && !a->stop_waits && !a->stops_fast &&
                    progress_monitor_takes_stacks(a->workers.progress);
    if (!a->stop_waits)
        stop_workers(a);
}

void agent_on_stacks_taken(void *arg)
{
    struct agent *a = arg;

    if (a->stop_waits && a->state == AGENT_STOPPING)
        stop_workers(a);
    a->stop_waits = false;
}

void agent_act_end(struct agent *a)
{
    local_workers_stop(&a->workers, signal_for_workers(a), false,
                       a->config->job.failure_grace_ms,
                       a->config->job.failure_grace_ms);
}
