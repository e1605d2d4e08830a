/* SPDX-License-Identifier: MIT */
#include "rendezvous/client/client_targets.h"

#include "rendezvous/client/limits.h"

void client_targets_add(struct client_targets *t, const struct net_addr *addr)
{
    for (size_t i = 0; i < t->count; i++)
        if (net_same_host(&t->list[i].addr, addr) &&
            net_port(&t->list[i].addr) == net_port(addr))
            return;
    if (t->count < CLIENT_TARGETS_MAX)
        t->list[t->count++] = (struct client_target){ .addr = *addr };
}

struct client_target *client_targets_pick(struct client_targets *t)
{
    struct client_target *best = NULL;

    for (size_t i = 0; i < t->count; i++) {
        struct client_target *one = &t->list[i];

        if (!one->connected &&
            (one->refers || (!one->failed && one->tries < CONNECT_TRIES_MAX)) &&
            (!best || one->tries < best->tries))
            best = one;
    }
    return best;
}

unsigned client_targets_delay_ms(struct client_targets *t)
{
    const struct client_target *next = client_targets_pick(t);
    unsigned delay = CONNECT_AGAIN_MS;

    for (size_t i = 0; t->at_once && next && i < t->count; i++)
        if (next->tries < t->list[i].tries)
            return 0;
    if (next && next->tries > 0)
        delay <<= next->tries - 1;
    for (size_t i = 0; i < t->count; i++)
        if (t->list[i].connected && !t->list[i].failed && delay < CONNECT_ANSWER_MS)
            delay = CONNECT_ANSWER_MS; /* a busy rendezvous gets no further ones */
    return delay;
}

size_t client_targets_alive(const struct client_targets *t)
{
    size_t alive = 0;

    for (size_t i = 0; i < t->count; i++)
        alive += !t->list[i].failed;
    return alive;
}
