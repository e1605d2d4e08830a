/* SPDX-License-Identifier: MIT */
/* How long an agent goes on without its rendezvous, and how it gives up. */
#include "rendezvous/client/session_internal.h"

#include <stdio.h>

void session_on_give_up(struct session_step *step)
{
    struct session *s = step->session;
    bool fenced = s->config.strict_fence && s->state == SESSION_ATTACHED;
    char text[ERROR_TEXT_MAX_BYTES + 1];

    if (!s->identity.known)
        snprintf(text, sizeof(text), "rendezvous not reachable for %.1f s%s%s",
                 s->config.connect_for_ms / 1e3, *s->why ? ": " : "", s->why);
    else if (fenced)
        snprintf(text, sizeof(text), "rendezvous silent for 0.8 of the lease of %.1f s",
                 s->identity.joined.lease_ms / 1e3);
    else
        snprintf(text, sizeof(text), "rendezvous out of reach for %.1f s: %s",
                 (double)(step->now - s->out_since) / 1e3, s->why);
    session_end(step);
    s->calls.abandoned(s->calls.arg, text);
}

/* A rendezvous that refuses the key is there, and keeps this node's place for its
 * lease. */
static uint32_t outage_grace_ms(const struct session *s)
{
    uint32_t ms = session_identity_outage_grace_ms(&s->identity,
                                                   s->config.outage_grace_ms);
    uint32_t lease_ms = s->identity.joined.lease_ms;

    return s->key_refused && ms < lease_ms ? lease_ms : ms;
}

void session_report_fence(const struct session *s)
{
    uint64_t at = lease_silent_at(&s->lease, s->kept) + outage_grace_ms(s);

    if (s->config.strict_fence)
        at = session_earlier(at, lease_fence_at(&s->lease));
    if (s->calls.fence)
        s->calls.fence(s->calls.arg, at);
}

uint64_t session_give_up_at(const struct session *s)
{
    uint64_t at = SESSION_NEVER;

    if (s->state == SESSION_OVER || s->orders.done)
        return SESSION_NEVER;
    if (!s->identity.known)
        return s->created_at + s->config.connect_for_ms;
    if (s->state != SESSION_ATTACHED)
        at = s->out_since + outage_grace_ms(s);
    if (s->config.strict_fence && s->orders.live)
        at = session_earlier(at, lease_fence_at(&s->lease));
    return at;
}
