/* SPDX-License-Identifier: MIT */
#include "rendezvous/client/foreign_watch.h"

#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/client/limits.h"
#include "rendezvous/wire/net/foreign_probe.h"

static bool is_same_address(const struct net_addr *a, const struct net_addr *b)
{
    return a->len == b->len && memcmp(&a->sa, &b->sa, a->len) == 0;
}

static void foreign_watch_on_silence(void *arg)
{
    struct foreign_watch *w = arg;

    foreign_watch_ask(w, &w->addr);
}

void foreign_watch_init(struct foreign_watch *w, struct loop *loop,
                        void (*found)(void *arg), void *arg)
{
    *w = (struct foreign_watch){ .loop = loop, .found = found, .arg = arg };
    loop_timer_init(&w->silence, loop, foreign_watch_on_silence, w);
}

void foreign_watch_fini(struct foreign_watch *w)
{
    foreign_probe_cancel(w->probe);
    w->probe = NULL;
    loop_timer_fini(&w->silence);
}

static void foreign_watch_turn_to(struct foreign_watch *w, const struct net_addr *addr)
{
    if (is_same_address(&w->addr, addr))
        return;
    foreign_probe_cancel(w->probe);
    w->probe = NULL;
    w->addr = *addr;
    w->name = NULL;
    w->asked_ms = 0;
}

void foreign_watch_connected(struct foreign_watch *w, const struct net_addr *addr)
{
    foreign_watch_turn_to(w, addr);
    loop_timer_arm(&w->silence, clock_ms() + FOREIGN_SILENCE_MS);
}

void foreign_watch_heard(struct foreign_watch *w)
{
    loop_timer_cancel(&w->silence);
    foreign_probe_cancel(w->probe);
    w->probe = NULL;
    w->name = w->warned = NULL;
    w->asked_ms = 0;
}

void foreign_watch_note(struct foreign_watch *w, const struct net_addr *addr,
                        const char *name)
{
    char place[NET_TEXT_SIZE];

    foreign_watch_turn_to(w, addr);
    loop_timer_cancel(&w->silence);
    w->name = name;
    w->asked_ms = clock_ms();
    if (w->warned == name)
        return;
    w->warned = name;
    log_warn("%s is not a crun rendezvous: %s answers there; is the port right?",
             net_format(addr, place, sizeof(place)), name);
}

static void foreign_watch_on_probed(void *arg, const char *name)
{
    struct foreign_watch *w = arg;

    w->probe = NULL;
    if (!name)
        return;
    foreign_watch_note(w, &w->addr, name);
    w->found(w->arg);
}

void foreign_watch_ask(struct foreign_watch *w, const struct net_addr *addr)
{
    uint64_t now = clock_ms(), keep;

    foreign_watch_turn_to(w, addr);
    keep = w->name ? FOREIGN_KNOWN_MS : FOREIGN_ASK_AGAIN_MS;
    loop_timer_cancel(&w->silence);
    if (w->probe || (w->asked_ms && now - w->asked_ms < keep))
        return;
    w->name = NULL;
    w->asked_ms = now;
    w->probe = foreign_probe_start(w->loop, &w->addr, foreign_watch_on_probed, w);
}

const char *foreign_watch_name(const struct foreign_watch *w,
                               const struct net_addr *addr)
{
    return is_same_address(&w->addr, addr) ? w->name : NULL;
}
