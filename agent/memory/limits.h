/* SPDX-License-Identifier: MIT */
#ifndef AGENT_MEMORY_LIMITS_H
#define AGENT_MEMORY_LIMITS_H

#define MEMORY_CHUNK_BYTES (256u << 10) /* read, hashed and sent at a time */
#define MEMORY_VERIFIERS_MAX 8          /* threads */

/* Connections with workers, and with other agents. */
#define MEMORY_CLIENTS_PER_WORKER 4
#define MEMORY_PEERS_MAX 64
#define MEMORY_PEER_DIAL_MS 3000  /* to connect, and for all until a peer is known */
#define MEMORY_PEER_STILL_MS 5000 /* without a byte: the peer is gone */

#define MEMORY_PEER_IDLE_MS 30000 /* without a request */

#define MEMORY_COPY_NICE 10 /* of threads that send or take copies */
#define MEMORY_COPY_IDLE_MS                                                            \
    10000                         /* without a copy, the neighbour's connection ends   \
                                   */
#define MEMORY_COPY_AGAIN_MS 5000 /* after which a lost neighbour is tried again */
#define MEMORY_FETCH_LINKS 4      /* connections to one holder */
#define MEMORY_FETCH_SHARE_MIN                                                         \
    (8u << 20) /* bytes for which one more is worthwhile                               \
                */
#define MEMORY_HOLDERS_MAX 64

/* What stays free on the machine: a part of its memory. */
#define MEMORY_SPARE_PART 32

#endif
