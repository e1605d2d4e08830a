/* SPDX-License-Identifier: MIT */
#include "agent/host_linger.h"

#include "rendezvous/base/clock.h"

#define LINGER_MS 5000 /* for other nodes to hear the result */
#define LOOK_MS 5
#define LOOK_SERVING_MS 50

static void look(void *arg)
{
    struct host_linger *f = arg;

    if (f->serves_on && rendezvous_host_job_goes_on(f->hosting))
        f->until_ms = clock_ms() + LINGER_MS;
    if (rendezvous_host_is_done(f->hosting, f->config) || clock_ms() >= f->until_ms)
        loop_stop(f->loop);
    else
        loop_timer_arm(&f->timer,
                       clock_ms() + (f->serves_on ? LOOK_SERVING_MS : LOOK_MS));
}

void host_linger_init(struct host_linger *f, struct loop *loop,
                      const struct config *config,
                      const struct rendezvous_host *hosting)
{
    *f = (struct host_linger){ .config = config, .hosting = hosting, .loop = loop };
    loop_timer_init(&f->timer, loop, look, f);
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
