/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_LIMITS_H
#define RENDEZVOUS_LIMITS_H

/* All connections of a server, and how a client connects. */
#define CONTROL_CONNS_MAX 40000
#define CONTROL_CONNS_UNKNOWN_MAX 16384 /* of them, those that have not said hello */
#define VISITOR_OUT_WAIT (64u << 10)    /* while more waits, no request is answered */
#define VISITORS_OUT_MAX (64u << 20)    /* for all that are not members together */
#define VISITOR_REQUESTS_PER_TURN 8
#define VISITORS_TURN_BYTES (256u << 10) /* of answers to all visitors in one turn */
#define VISITOR_REQUEST_COST 1024        /* in the same bytes, besides its answer */
#define DESCRIPTORS_RESERVED 32 /* not for connections: journal, log, store, loop */
#define CONNECT_AGAIN_MS                                                               \
    100 /* beside one that is not answered, then after twice that */
#define CONNECT_TRIES_MAX 4

#endif
