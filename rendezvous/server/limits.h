/* SPDX-License-Identifier: MIT */
#pragma once

/* All connections of a server. */
#define CONTROL_CONNS_MAX 40000
#define CONNS_RESERVED_MAX 256       /* of them, not for agents that join: an eighth */
#define CONNS_ADOPTED_MAX 64         /* in addition: of tools on this machine */
#define CONNS_UNIDENTIFIED_MAX 16384 /* of them, those that have not joined a job */
#define CONN_OUT_WAIT (64u << 10)    /* while more waits, no message is read */
#define VISITORS_OUT_MAX (32u << 20) /* waits for all connections but the agents' */
#define VISITORS_READ_PER_TURN 256   /* connections of all but the agents */
#define FLUSHED_PER_TURN 512         /* besides those that were answered in that turn */
#define MESSAGES_PER_TURN 8          /* of one connection, more in later turns */
#define CONN_TURN_US 5000            /* spent on one connection in one turn */
#define AGENTS_TURN_US 20000         /* on all agents that send more than that */
#define VISITORS_TURN_US 20000       /* on all others */
#define CTL_TURN_BYTES (256u << 10)  /* of answers to all of crunctl in one turn */
#define MESSAGE_COST 1024            /* in bytes too: a message without its answer */
#define DESCRIPTORS_RESERVED 32 /* not for connections: journal, log, store, loop */

/* TLS handshakes in one turn: those of addresses that are known, and all */
#define HANDSHAKES_KNOWN_US 7000
#define HANDSHAKES_TURN_US 10000
#define HANDSHAKE_QUEUES 256u   /* of other addresses, by their hash */
#define HANDSHAKE_SOURCES 4096u /* addresses that are known */
#define HANDSHAKE_LATE "it has not joined in time"
#define KEYS_CHECK_MS 2000 /* whether a key has been retired, or has ended */
/* agents that lose their connection at a time, and come back within the grace */
#define KEYS_ENDED_AT_ONCE 32
#define KEYS_ENDED_EVERY_MS 125
#define KEYS_ENDED_WAIT_MS 10000 /* for most of them to be back */

/* The silence after which another replica leads: a fifth of the lease, but */
#define ELECTION_MS_MIN 200
#define ELECTION_MS_MAX 1000
/* crund --peers. They may be two more for a while: REPLICAS_MAX. */
#define PEERS_MAX 5
#define PEERS_ELECTION_MS 1000
#define PEERS_COMPACT_AFTER 1024
#define PEERS_ANNOUNCE_MS 500
#define PEERS_HEARD_MS 2000      /* so long ago at most */
#define PEERS_LEADERLESS_MS 3000 /* before a line says so */
#define COMPACT_AFTER 64         /* batches of records, until they are made shorter */
#define KNOCK_EVERY_MS 1000      /* at the endpoint of a job that has left it */
