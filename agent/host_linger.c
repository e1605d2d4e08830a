/* SPDX-License-Identifier: MIT */
#include "agent/host_linger.h"

#include "rendezvous/base/clock.h"

#define LINGER_MS 5000 /* for the result to reach the other nodes */
#define CHECK_MS 5
#define CHECK_SERVING_MS 50

static void on_linger_timer(void *arg)
{
    struct host_linger *f = arg;

    if (f->until_job_ends && rendezvous_host_job_runs(f->host))
        f->until_ms = clock_ms() + LINGER_MS;
    if (rendezvous_host_is_done(f->host, f->config) || clock_ms() >= f->until_ms)
        loop_stop(f->loop);
    else
        loop_timer_arm(&f->timer,
                       clock_ms() + (f->until_job_ends ? CHECK_SERVING_MS : CHECK_MS));
}

void host_linger_init(struct host_linger *f, struct loop *loop,
                      const struct config *config, const struct rendezvous_host *host)
{
    *f = (struct host_linger){ .config = config, .host = host, .loop = loop };
    loop_timer_init(&f->timer, loop, on_linger_timer, f);
}

void host_linger_begin(struct host_linger *f)
{
    f->until_ms = clock_ms() + LINGER_MS;
    loop_timer_arm(&f->timer, clock_ms());
}

void host_linger_fini(struct host_linger *f)
{
    if (f->timer.event)
        loop_timer_fini(&f->timer);
}
