/* SPDX-License-Identifier: MIT */
/* A rendezvous out of reach: what is printed, until when the guard lets workers live,
 * and the exit code. The client decides how long this node goes on. */
#include "agent/agent_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/interface/job_messages.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/job/registry/job.h"

#define LAST_CHECKPOINT_MS 5000

static uint64_t agent_left_ms(const struct agent *a)
{
    uint64_t end_ms = session_give_up_at(client_session(a->client)), now = clock_ms();

    return end_ms > now ? end_ms - now : 0;
}

void agent_on_last_checkpoint(void *arg)
{
    struct agent *a = arg;

    if (a->state == AGENT_RUNNING)
        progress_monitor_request_checkpoint(a->workers.progress,
                                            (uint32_t)agent_left_ms(a));
}

void agent_on_outage(void *arg, bool out, const char *why)
{
    struct agent *a = arg;
    uint64_t left_ms = agent_left_ms(a), half_ms = left_ms / 2;

    if (a->has_joined && job_messages_cover_rendezvous(a->messages))
        job_messages_outage(a->messages, out, why,
                            a->has_keepers ? a->config->job.lease_ms / 2 : 0);
    else if (!a->has_joined)
        job_messages_unreached(a->messages, out, why);
    if (!out) {
        loop_timer_cancel(&a->last_checkpoint);
        epoch_store_ask_again(&a->store);
        return;
    }
    loop_timer_arm(&a->last_checkpoint,
                   clock_ms() + left_ms -
                       (half_ms < LAST_CHECKPOINT_MS ? half_ms : LAST_CHECKPOINT_MS));
    if (a->unanswered.due_ms)
        loop_timer_arm(&a->unanswered.timer, clock_ms());
}

/* A job of one node has no other nodes to lose contact with. */
void agent_on_fence(void *arg, uint64_t until_ms)
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
    else if (a->is_left_behind)
        log_error("the other node has claimed the job, and goes on without this one");
    else if (a->is_of_pair)
        log_error("the job ends here: nothing proves that %s is gone and not only cut "
                  "off; a start by crun -H, another witness (--rdzv-conf "
                  "witness=file:DIR or HOST:PORT), a third node that keeps the "
                  "rendezvous' records (--spares=1), or a crund on a separate machine "
                  "would have saved it",
                  a->keeper);
    else if (a->has_keepers)
        log_error("the job ends here: too few are left of the nodes that keep the "
                  "rendezvous' records");
    else if (a->has_joined && a->config->replicas > 1)
        log_error("the job ends here: no other node has kept the rendezvous' records "
                  "(one with the same address does not)");
    else if (a->has_joined)
        log_error(
            "the job ends here; a third node that keeps the rendezvous' records "
            "(--spares=1), or a crund on a separate machine, would have saved it");
}

void agent_on_abandoned(void *arg, const char *why)
{
    struct agent *a = arg;

    job_messages_abandoned(a->messages);
    if (job_messages_cover_rendezvous(a->messages))
        print_abandoned(a, why);
    snprintf(a->result.text, sizeof(a->result.text), "%s", why);
    a->exit_code = !a->has_joined         ? EX_UNAVAILABLE
                   : a->unanswered.due_ms ? a->unanswered.exit_code
                   : a->config->job.strict_fence || a->is_left_behind ? EXIT_EVICTED
                                                                      : EXIT_FAILURE;
    agent_handle_event(a, AGENT_EV_ABANDONED);
}
