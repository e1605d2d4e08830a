/* SPDX-License-Identifier: MIT */
#include "agent/hosting/name_check.h"

#include <stdio.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/wire/net/resolver.h"

#define LOOK_UP_EVERY_MS 2000
#define LOOK_UP_LIMIT_MS 5000
#define WARN_AFTER_MS 15000

static void on_answer(void *arg, const struct net_addr *list, size_t count,
                      const char *why)
{
    struct name_check *c = arg;
    char address[NET_TEXT_SIZE];

    c->resolver = NULL;
    for (size_t i = 0; i < count; i++) {
        if (!net_is_local(&list[i]))
            continue;
        log_debug("%s means this machine", c->name);
        name_check_end(c);
        return;
    }
    loop_timer_arm(&c->timer, clock_ms() + LOOK_UP_EVERY_MS);
    if (clock_ms() < c->warn_ms)
        return;
    if (count == 0)
        log_warn("%s: the other nodes need that name to find this one", why);
    else
        log_warn("the other nodes look for this one at %s, which is %s, not an address "
                 "of this machine",
                 c->name, net_format_host(&list[0], address, sizeof(address)));
    name_check_end(c);
}

static void on_look_up_due(void *arg)
{
    struct name_check *c = arg;

    c->resolver = resolver_start(c->loop, c->name, c->port, LOOK_UP_LIMIT_MS, on_answer,
                                 c);
}

void name_check_begin(struct name_check *c, struct loop *loop, const char *name,
                      uint16_t port)
{
    c->loop = loop;
    snprintf(c->name, sizeof(c->name), "%s", name);
    c->port = port;
    c->warn_ms = clock_ms() + WARN_AFTER_MS;
    loop_timer_init(&c->timer, loop, on_look_up_due, c);
    loop_timer_arm(&c->timer, clock_ms() + LOOK_UP_EVERY_MS);
}

void name_check_end(struct name_check *c)
{
    if (!c->loop)
        return;
    resolver_cancel(c->resolver);
    c->resolver = NULL;
    loop_timer_fini(&c->timer);
    c->loop = NULL;
}
