/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GUARD_GUARD_REQUESTS_H
#define AGENT_GUARD_GUARD_REQUESTS_H

#include "agent/guard/guard_wire.h"

struct event;
struct event_base;
struct guard_waiting_ask;

/*
 * The agent's end of the socket for writing: what it asks of its guard, in order, also
 * when the socket has no room. Embedded; init before use.
 */
struct guard_requests {
    int socket; /* not ours; -1: nobody listens, and nothing is kept */
    struct event *writable;
    struct guard_waiting_ask *first, **last;
    /* An ask that was kept cannot be sent for good. */
    void (*lost)(void *arg, const struct guard_ask *ask, int errnum);
    void *arg;
};

void guard_requests_init(struct guard_requests *asks, struct event_base *base,
                         int socket);
void guard_requests_fini(struct guard_requests *asks);

/*
 * fd: GUARD_ASK_FDS descriptors, still the caller's, or NULL. -1 and errno if it could
 * be neither sent nor kept; that nobody listens is no error, the guard's death is told
 * by other ways.
 */
int guard_requests_put(struct guard_requests *asks, const struct guard_ask *ask,
                       const int *fd) MUST_CHECK;
/* One that may be dropped where others wait: a newer one will follow. */
void guard_requests_try(struct guard_requests *asks, const struct guard_ask *ask);

#endif
