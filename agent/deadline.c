/* SPDX-License-Identifier: MIT */
#include "agent/deadline.h"

#include <stdio.h>
#include <time.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"

#define LOOK_AGAIN_MS 5000 /* checkpoints may take longer by now */
#define SLACK_MS 10000     /* for messages, the end of crun and a late checkpoint */

uint64_t deadline_margin_ms(const struct config *config, uint64_t total_ms,
                            uint64_t checkpoint_ms)
{
    uint64_t grace = config->job.shutdown_grace_ms, margin;

    if (config->deadline_margin_ms)
        return config->deadline_margin_ms;
    margin = grace + (grace > 2 * checkpoint_ms ? grace : 2 * checkpoint_ms) + SLACK_MS;
    return margin < total_ms / 4 ? margin : total_ms / 4;
}

/* The wait for a checkpoint leaves time for the grace, or half of the margin. */
static uint32_t time_for_checkpoint(const struct config *config, uint64_t margin)
{
    uint64_t later = config->job.shutdown_grace_ms + SLACK_MS / 2;

    return (uint32_t)(margin > 2 * later ? margin - later : margin / 2 + 1);
}

static void on_deadline_timer(void *arg)
{
    struct deadline *d = arg;
    uint64_t now = clock_ms(), margin, at;

    margin = deadline_margin_ms(d->config, d->ends_ms - d->began_ms,
                                d->checkpoint_ms(d->arg));
    at = d->ends_ms > margin ? d->ends_ms - margin : 0;
    if (now < at) {
        loop_timer_arm(&d->timer, at < now + LOOK_AGAIN_MS ? at : now + LOOK_AGAIN_MS);
        return;
    }
    d->is_over = true;
    d->due(d->arg, time_for_checkpoint(d->config, margin));
}

char *deadline_plan(const struct config *config, char *buf, size_t size)
{
    int64_t left_s = config->deadline_s - (int64_t)time(NULL);
    uint64_t margin = deadline_margin_ms(config,
                                         left_s > 0 ? 1000 * (uint64_t)left_s : 0, 0);
    char end[96];

    snprintf(buf, size,
             "the time of this run ends at %s; a checkpoint is asked for %.0f s before",
             deadline_describe(config, end, sizeof(end)), (double)margin / 1000);
    return buf;
}

void deadline_init(struct deadline *d, struct loop *loop, const struct config *config)
{
    int64_t left_s = config->deadline_s - (int64_t)time(NULL);
    char plan[192];

    d->config = config;
    d->began_ms = clock_ms();
    d->ends_ms = d->began_ms + (left_s > 0 ? 1000 * (uint64_t)left_s : 0);
    loop_timer_init(&d->timer, loop, on_deadline_timer, d);
    if (!config->deadline_s)
        return;
    log_debug("%s", deadline_plan(config, plan, sizeof(plan)));
    loop_timer_arm(&d->timer, d->began_ms);
}

void deadline_fini(struct deadline *d)
{
    if (d->timer.event)
        loop_timer_fini(&d->timer);
}

char *deadline_describe(const struct config *config, char *buf, size_t size)
{
    time_t end = (time_t)config->deadline_s;
    struct tm local;
    char at[32] = "?";

    if (localtime_r(&end, &local))
        strftime(at, sizeof(at), "%F %T", &local);
    snprintf(buf, size, "%s (%s)", at,
             config->deadline_from ? config->deadline_from : "?");
    return buf;
}
