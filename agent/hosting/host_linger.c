/* SPDX-License-Identifier: MIT */
#include "agent/hosting/host_linger.h"

#include "agent/interface/socket_relay.h"
#include "rendezvous/common/base/clock.h"

#define LINGER_MS 5000 /* for the result to reach the other nodes */
#define RELAYS_MS 5000 /* for the last output to reach the tools */
#define KEEP_MS 3000   /* for another node to keep the rendezvous' records */
#define CHECK_MS 5
#define CHECK_SERVING_MS 50

static bool linger_is_over(const struct host_linger *l)
{
    uint64_t now = clock_ms();

    if (now < l->relays_until_ms && socket_relays_are_followed(l->relays))
        return false;
    if (l->has_left && now < l->keep_until_ms && rendezvous_host_is_needed(l->host))
        return false;
    return rendezvous_host_is_done(l->host, l->config) || now >= l->until_ms ||
           rendezvous_host_may_leave(l->host);
}

static void on_linger_timer(void *arg)
{
    struct host_linger *l = arg;
    bool stays = l->until_job_ends || (l->has_left && l->host->server);

    if (stays && rendezvous_host_job_runs(l->host, l->has_left))
        l->until_ms = clock_ms() + LINGER_MS;
    if (linger_is_over(l))
        loop_stop(l->loop);
    else
        loop_timer_arm(&l->timer, clock_ms() + (stays ? CHECK_SERVING_MS : CHECK_MS));
}

void host_linger_init(struct host_linger *l, struct loop *loop,
                      const struct config *config, const struct rendezvous_host *host)
{
    *l = (struct host_linger){ .config = config, .host = host, .loop = loop };
    loop_timer_init(&l->timer, loop, on_linger_timer, l);
}

void host_linger_begin(struct host_linger *l, const struct socket_relays *relays)
{
    l->relays = relays;
    l->relays_until_ms = clock_ms() + RELAYS_MS;
    l->until_ms = clock_ms() + LINGER_MS;
    l->keep_until_ms = clock_ms() + KEEP_MS;
    loop_timer_arm(&l->timer, clock_ms());
}

void host_linger_fini(struct host_linger *l)
{
    if (l->timer.event)
        loop_timer_fini(&l->timer);
}
