/* SPDX-License-Identifier: MIT */
#include "rendezvous/client/session_identity.h"

#include <string.h>

#include "rendezvous/wire/protocol/limits.h"

bool session_identity_take(struct session_identity *p, const struct msg *joined)
{
    const struct msg_joined *a = &p->joined, *b = &joined->joined;
    bool news = !p->known || a->node != b->node || a->slot != b->slot ||
                a->spare != b->spare || a->lease_ms != b->lease_ms;

    p->known = true;
    p->instance = joined->instance;
    p->joined = joined->joined;
    return news;
}

void session_identity_ask(const struct session_identity *p, const struct msg_join *join,
                          struct msg *ask)
{
    if (!p->known) {
        ask->type = MSG_JOIN;
        ask->join = *join;
        return;
    }
    ask->type = MSG_RESUME;
    ask->resume.incarnation = join->incarnation;
    ask->resume.node = p->joined.node;
    ask->resume.memory_port = join->memory_port;
    memcpy(ask->resume.memory, p->memory, sizeof(ask->resume.memory));
    memcpy(ask->resume.run_id, join->run_id, sizeof(ask->resume.run_id));
}

bool session_identity_is_home(const struct session_identity *p,
                              const struct msg_welcome *welcome)
{
    return !p->known || id128_is_zero(&p->rendezvous) ||
           id128_equal(&p->rendezvous, &welcome->rendezvous);
}

bool session_identity_is_foreign(const struct session_identity *p, const struct msg *m)
{
    return p->known && m->type != MSG_WELCOME && m->type != MSG_REFUSED &&
           !id128_equal(&m->instance, &p->instance);
}

static uint64_t at_most(uint64_t ms, uint64_t max_ms)
{
    return ms < max_ms ? ms : max_ms;
}

uint64_t session_identity_within_lease(const struct session_identity *p, uint64_t ms,
                                       unsigned parts)
{
    return p->known ? at_most(ms, p->joined.lease_ms / parts) : ms;
}

uint32_t session_identity_outage_grace_ms(const struct session_identity *p,
                                          uint32_t configured_ms)
{
    uint64_t reconnect_ms = at_most(p->joined.lease_ms / HEARTBEATS_PER_LEASE,
                                    RECONNECT_GRACE_MS_MAX);

    return p->durable ? configured_ms : (uint32_t)at_most(configured_ms, reconnect_ms);
}
