/* SPDX-License-Identifier: MIT */
#pragma once

#define MEMORY_CHUNK_BYTES (256u << 10) /* read, hashed and sent at a time */

/* Connections with workers, and with other agents. */
#define MEMORY_CLIENTS_PER_WORKER 4
#define MEMORY_PEERS_MAX 64
#define MEMORY_PEER_DIAL_MS 3000  /* to connect, and to be known */
#define MEMORY_PEER_STILL_MS 5000 /* without a byte: the peer is gone */

#define MEMORY_FETCHERS_MAX 4         /* parts that are fetched at a time */
#define MEMORY_COPY_NICE 10           /* of threads that send or take large copies */
#define MEMORY_COPY_LARGE (16u << 20) /* for a smaller one, the next save waits */
#define MEMORY_COPY_AGAIN_MS 5000     /* after which a lost neighbour is tried again */

#define MEMORY_FLUSHES_MAX 2 /* one that was just ended, and that of the end */
#define MEMORY_HOLD_MS 15000 /* in which the rendezvous names the set to write */

/* What stays free on the machine: a part of its memory. */
#define MEMORY_SPARE_PART 32
