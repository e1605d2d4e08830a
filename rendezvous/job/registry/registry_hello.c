/* SPDX-License-Identifier: MIT */
/* The first message of a peer: which protocol version is spoken, and with whom. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/job/registry/registry_internal.h"

/* One of the same job, which only its own nodes know by its instance. */
static bool registry_admits_replica(const struct registry *g,
                                    const struct registry_peer *p, const struct msg *m)
{
    return g->config.replicate && p->access == ACCESS_AGENT &&
           !id128_is_zero(&m->instance) && id128_equal(&m->instance, &g->instance);
}

void registry_on_hello(struct registry *g, struct registry_peer *p, const struct msg *m)
{
    const struct msg_hello *h = &m->hello;
    struct msg reply = { .type = MSG_WELCOME, .sequence = m->sequence };

    if (h->version_min > PROTO_VERSION_MAX || h->version_max < PROTO_VERSION_MIN) {
        registry_refuse(
            p, m, REFUSED_VERSION, false,
            "this is %s, which speaks protocol versions %d to %d; %s speaks %u "
            "to %u: install the same version on both sides",
            g->config.software, PROTO_VERSION_MIN, PROTO_VERSION_MAX,
            *h->software ? h->software : "the other side", h->version_min,
            h->version_max);
        g->config.hang_up(g->config.arg, p->conn);
        return;
    }
    if (h->role == PEER_REPLICA && !registry_admits_replica(g, p, m)) {
        registry_refuse(p, m, REFUSED_FENCED, false,
                        g->config.standalone
                            ? "it has other --peers, or none"
                            : "no replica of this job's rendezvous is expected here");
        g->config.hang_up(g->config.arg, p->conn);
        return;
    }
    p->phase = h->role == PEER_CTL       ? PROTO_CTL
               : h->role == PEER_REPLICA ? PROTO_REPLICA
                                         : PROTO_AGENT;
    reply.welcome.version = h->version_max < PROTO_VERSION_MAX ? h->version_max
                                                               : PROTO_VERSION_MAX;
    p->keepers = h->keepers;
    p->flush = h->flush;
    memcpy(p->software, h->software, sizeof(p->software));
    reply.welcome.daemon = g->config.standalone;
    reply.welcome.witness = g->config.witness;
    reply.welcome.flush = true;
    reply.welcome.durable = g->config.disk || g->config.durable ||
                            (g->keepers && g->keepers->keepers.safe);
    reply.welcome.rendezvous = g->id;
    if (h->role == PEER_CTL)
        memcpy(reply.welcome.confinement, g->confinement, sizeof(g->confinement));
    snprintf(reply.welcome.software, sizeof(reply.welcome.software), "%s",
             g->config.software);
    registry_send(p, &reply);
}
