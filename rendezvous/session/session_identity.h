/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_SESSION_SESSION_IDENTITY_H
#define RENDEZVOUS_SESSION_SESSION_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/protocol/message.h"

/* What a member knows of its place in the job, from the first JOINED on. */
struct session_identity {
    bool known;
    bool durable; /* the rendezvous outlives its own death */
    struct id128 instance;
    struct msg_joined joined;
};

/* Given or changed; false for a repeat, which says nothing new. */
bool session_identity_take(struct session_identity *p, const struct msg *joined);
/* The message that asks for it: JOIN, or RESUME where it is known. */
void session_identity_ask(const struct session_identity *p, const struct msg_join *join,
                          struct msg *ask);
/* Of another launch of the job. WELCOME and REFUSED may come from outside any job. */
bool session_identity_is_foreign(const struct session_identity *p, const struct msg *m);

/* A rendezvous that has begun again gives everybody one lease to come back: `parts`
 * attempts fit in it, and each may take the result, at most `ms`. */
uint64_t session_identity_within_lease(const struct session_identity *p, uint64_t ms,
                                       unsigned parts);
/* A rendezvous that keeps nothing does not come back: only a connection may. */
uint32_t session_identity_outage_grace_ms(const struct session_identity *p,
                                          uint32_t configured_ms);

#endif
