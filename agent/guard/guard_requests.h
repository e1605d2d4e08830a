/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/guard/guard_wire.h"

struct event;
struct event_base;
struct guard_waiting_request;

/*
 * The agent's end of the socket for writing: sends requests to the guard in order, and
 * queues them when the socket has no room. Embedded; init before use.
 */
struct guard_requests {
    int socket; /* borrowed; -1: the guard has ended, and nothing is queued */
    struct event *writable;
    struct guard_waiting_request *first, **last;
    /* A queued request cannot be sent, for good. */
    void (*lost)(void *arg, const struct guard_request *request, int errnum);
    void *arg;
};

void guard_requests_init(struct guard_requests *requests, struct event_base *base,
                         int socket);
void guard_requests_fini(struct guard_requests *requests);

/*
 * fd: GUARD_REQUEST_FDS descriptors, which the caller keeps, or NULL. -1 and errno if
 * it could be neither sent nor queued. A guard that has ended is not an error: its
 * death is reported in another way.
 */
int guard_requests_put(struct guard_requests *requests,
                       const struct guard_request *request, const int *fd) MUST_CHECK;
/* Drops the request if others wait: a newer one will follow. */
void guard_requests_try(struct guard_requests *requests,
                        const struct guard_request *request);
