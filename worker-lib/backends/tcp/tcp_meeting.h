/* SPDX-License-Identifier: MIT */
#pragma once

#include <poll.h>

#include "rendezvous/common/base/net.h"
#include "worker-lib/backends/tcp/backend_tcp.h"

/* How the links are made: tcp_connect.c. */

/* Rank 0 writes a random number for this meeting to the store, followed by an address
 * for each rank. */
#define ADDRESS_SIZE NET_TEXT_SIZE
#define INCOMING_MAX 128 /* connections that have not proved themselves yet */

enum greeting_step {
    GREETING_NONE,
    GREETING_CALL,
    GREETING_CHALLENGE,
    GREETING_PROOF,
    GREETING_ACCEPT
};

struct greeting {
    uint32_t magic, step, from, to;
    struct id128 body; /* a random number, or a tag */
};

/* What a tag proves. */
struct greeting_proof {
    char label[16];
    uint32_t step, caller, answerer, unused;
    struct id128 meeting, caller_number, answerer_number;
};

/* A connection that is not a link yet. */
struct incoming {
    int fd;
    uint64_t host, since_ms; /* of one that was accepted */
    enum greeting_step next; /* that is expected; NONE: it is being made */
    size_t came;
    struct greeting greeting;
    struct greeting_proof proof;
    uint64_t again_ms, pause_ms; /* of one that will be made again */
};

struct meeting {
    struct tcp *tcp;
    const struct team *team;
    uint64_t deadline_ms;
    struct err *e;
    int listener;
    struct id128 number;           /* of this meeting */
    char (*address)[ADDRESS_SIZE]; /* of each rank */
    struct incoming *called;       /* by rank, of the ranks before this one */
    struct incoming incoming[INCOMING_MAX];
    unsigned incoming_count, links;
    struct pollfd *polls;
};

CRUN_CHECK crun_status tcp_listen(struct meeting *m);
/* Writes this rank's address to the store, and learns those of all ranks. */
CRUN_CHECK crun_status tcp_exchange_addresses(struct meeting *m);
/* All ranks have connected to rank 0, so they have read its list, which has their
 * addresses. */
void tcp_delete_addresses(const struct meeting *m);
