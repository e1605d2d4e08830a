/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/wire/protocol/message.h"

/* A node's knowledge of its place in the job, from the first JOINED on. */
struct session_identity {
    bool known;
    bool durable; /* the rendezvous has a journal */
    bool daemon;  /* it is a crund */
    bool flush;   /* it knows FLUSHED */
    struct id128 instance;
    struct id128 rendezvous; /* of the last WELCOME that was accepted; zero: unknown */
    struct msg_joined joined;
    char memory[MEMORY_HELD_MAX_BYTES + 1]; /* of the last STOPPED */
};

/* A JOINED. False: it repeats what is known. */
bool session_identity_take(struct session_identity *p, const struct msg *joined);
/* Fill the request: JOIN, or RESUME if the place is known. */
void session_identity_ask(const struct session_identity *p, const struct msg_join *join,
                          struct msg *ask);
/* The rendezvous is the one that the node has joined, as far as that is known. */
bool session_identity_is_home(const struct session_identity *p,
                              const struct msg_welcome *welcome);
/* From another launch of the job. WELCOME and REFUSED need not belong to a job. */
bool session_identity_is_foreign(const struct session_identity *p, const struct msg *m);

/* The time for each of `parts` attempts, at most `ms`. They must fit in one lease, in
 * which a restarted rendezvous waits for its nodes. */
uint64_t session_identity_within_lease(const struct session_identity *p, uint64_t ms,
                                       unsigned parts);
/* A rendezvous without a journal does not come back; only the connection may. */
uint32_t session_identity_outage_grace_ms(const struct session_identity *p,
                                          uint32_t configured_ms);
