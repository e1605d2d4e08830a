/* SPDX-License-Identifier: MIT */
#include "agent/host_linger.h"

#include "rendezvous/base/clock.h"

#define LINGER_MS 5000 /* for the result to reach the other nodes */
#define CHECK_MS 5
#define CHECK_SERVING_MS 50

static void on_linger_timer(void *arg)
{
    struct host_linger *l = arg;

    if (l->until_job_ends && rendezvous_host_job_runs(l->host))
        l->until_ms = clock_ms() + LINGER_MS;
    if (rendezvous_host_is_done(l->host, l->config) || clock_ms() >= l->until_ms)
        loop_stop(l->loop);
    else
        loop_timer_arm(&l->timer,
                       clock_ms() + (l->until_job_ends ? CHECK_SERVING_MS : CHECK_MS));
}

void host_linger_init(struct host_linger *l, struct loop *loop,
                      const struct config *config, const struct rendezvous_host *host)
{
    *l = (struct host_linger){ .config = config, .host = host, .loop = loop };
    loop_timer_init(&l->timer, loop, on_linger_timer, l);
}

void host_linger_begin(struct host_linger *l)
{
    l->until_ms = clock_ms() + LINGER_MS;
    loop_timer_arm(&l->timer, clock_ms());
}

void host_linger_fini(struct host_linger *l)
{
    if (l->timer.event)
        loop_timer_fini(&l->timer);
}
