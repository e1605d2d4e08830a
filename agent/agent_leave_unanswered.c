/* SPDX-License-Identifier: MIT */
#include "agent/agent_internal.h"

#include <signal.h>

#include "agent/interface/job_messages.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"

/* The rendezvous decides about this node's end in this time, or the node does. */
#define ANSWER_MS 5000
#define ANSWER_EXPECTED_MS 2000 /* a user is warned then */
#define ANSWER_HURRIED_MS 1000  /* after a second Ctrl-C */

/* The one in this process always does. */
static bool is_out_of_reach(const struct agent *a)
{
    return session_state(client_session(a->client)) != SESSION_ATTACHED;
}

/* As if it were ordered. */
static void stop_unordered(struct agent *a, uint32_t grace_ms)
{
    a->stop = (struct msg_stop){ .grace_ms = grace_ms,
                                 .last = true,
                                 .cause = JOB_CAUSE_USER };
    if (a->state == AGENT_RUNNING || a->state == AGENT_STOPPING)
        agent_handle_event(a, AGENT_EV_STOP);
}

void agent_leave_alone(struct agent *a)
{
    if (!a->unanswered.alone || (a->state != AGENT_IDLE && a->state != AGENT_FINISHED))
        return;
    a->exit_code = a->unanswered.exit_code;
    agent_handle_event(a, AGENT_EV_ABANDONED);
}

static void on_unanswered(void *arg)
{
    struct agent *a = arg;
    struct unanswered *u = &a->unanswered;
    uint64_t now = clock_ms(), due = u->due_ms, waited = now - u->asked_ms;
    uint32_t grace_ms = a->config->job.shutdown_grace_ms; /* from the request on */

    if (a->state >= AGENT_ENDING)
        return;
    if (!is_out_of_reach(a) && a->obeys_until_ms > now) {
        loop_timer_arm(&u->timer, a->obeys_until_ms);
        return;
    }
    if (!u->warned && job_messages_cover_rendezvous(a->messages))
        log_warn("the rendezvous does not answer: this node leaves the job without it, "
                 "in %d s or once its workers have ended (Ctrl-C again: at once)",
                 ANSWER_MS / 1000);
    u->warned = true;
    u->alone = now >= due;
    if (a->state == AGENT_RUNNING && !u->alone && a->signals.announces &&
        is_out_of_reach(a))
        progress_monitor_request_checkpoint(a->workers.progress, ANSWER_MS);
    else if (a->state == AGENT_RUNNING && (u->alone || is_out_of_reach(a)))
        stop_unordered(a, grace_ms > waited ? grace_ms - (uint32_t)waited : 0);
    if (!u->alone)
        loop_timer_arm(&u->timer, due);
    agent_leave_alone(a);
}

void agent_await_answer(struct agent *a, int exit_code)
{
    struct unanswered *u = &a->unanswered;
    uint64_t now = clock_ms();

    u->exit_code = exit_code;
    if (u->due_ms || a->rendezvous.server)
        return;
    u->asked_ms = now;
    u->due_ms = now + ANSWER_MS;
    if (a->state == AGENT_FINISHED) /* the others may be asked for a checkpoint first */
        a->obeys_until_ms = now + a->config->job.shutdown_grace_ms;
    loop_timer_arm(&u->timer, is_out_of_reach(a) ? now : now + ANSWER_EXPECTED_MS);
}

void agent_hurry_answer(struct agent *a)
{
    struct unanswered *u = &a->unanswered;

    local_workers_stop(&a->workers, SIGKILL, false, 0, 0);
    if (!u->due_ms)
        return;
    u->due_ms = clock_ms();
    u->warned = true;
    if (is_out_of_reach(a)) {
        a->obeys_until_ms = 0;
        stop_unordered(a, 0);
    } else if (a->obeys_until_ms < u->due_ms) {
        u->due_ms += ANSWER_HURRIED_MS;
    } else {
        a->obeys_until_ms = u->due_ms += ANSWER_MS;
    }
    loop_timer_arm(&u->timer, u->due_ms);
}

void agent_init_unanswered(struct agent *a)
{
    loop_timer_init(&a->unanswered.timer, a->loop, on_unanswered, a);
}
