/* SPDX-License-Identifier: MIT */
#include "rendezvous/client/foreign_watch.h"

#include <string.h>

#include "rendezvous/client/limits.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"

/* Of a server that does not tell what it is, such as a store of torchrun's. */
static const char unknown_server[] = "another program";

static bool is_same_address(const struct net_addr *a, const struct net_addr *b)
{
    return a->len == b->len && memcmp(&a->sa, &b->sa, a->len) == 0;
}

static void foreign_watch_on_silence(void *arg)
{
    struct foreign_watch *w = arg;
    char place[NET_TEXT_SIZE];

    if (!w->warned)
        log_warn("%s does not answer as a crun rendezvous does: if another program "
                 "listens there, is the port right?",
                 net_format(&w->addr, place, sizeof(place)));
    w->warned = unknown_server;
}

void foreign_watch_init(struct foreign_watch *w, struct loop *loop)
{
    *w = (struct foreign_watch){ .name = NULL };
    loop_timer_init(&w->silence, loop, foreign_watch_on_silence, w);
}

void foreign_watch_fini(struct foreign_watch *w)
{
    loop_timer_fini(&w->silence);
}

void foreign_watch_connected(struct foreign_watch *w, const struct net_addr *addr)
{
    w->addr = *addr;
    w->name = NULL;
    loop_timer_arm(&w->silence, clock_ms() + FOREIGN_SILENCE_MS);
}

void foreign_watch_heard(struct foreign_watch *w)
{
    loop_timer_cancel(&w->silence);
    w->name = w->warned = NULL;
}

void foreign_watch_note(struct foreign_watch *w, const struct net_addr *addr,
                        const char *name)
{
    char place[NET_TEXT_SIZE];

    loop_timer_cancel(&w->silence);
    w->addr = *addr;
    w->name = name;
    if (!name || w->warned == name)
        return;
    w->warned = name;
    log_warn("%s is not a crun rendezvous: %s answers there; is the port right?",
             net_format(addr, place, sizeof(place)), name);
}

const char *foreign_watch_name(const struct foreign_watch *w,
                               const struct net_addr *addr)
{
    return is_same_address(&w->addr, addr) ? w->name : NULL;
}
