/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Sizes of messages, and the times that both sides of a connection know. PROTOCOL.md
 * lists most of them.
 */
#define PROGRAM_MAX_BYTES 255
#define ROLE_MAX_BYTES 255
#define RUN_ID_DEFAULT "none" /* of a job that was given no name, as with torchrun */
#define USER_MAX_BYTES 63
#define UID_MAX_BYTES 15
#define BATCH_JOB_MAX_BYTES 127
#define FAILURE_TEXT_MAX_BYTES 4096
#define FAILURE_ERROR_MAX_BYTES 255
#define NOTICE_MAX_BYTES 511
#define CONFINEMENT_MAX_BYTES 255
#define NO_RESTART_ON_MAX_BYTES 255
#define RESTARTS_MAX 1000000
#define STACKS_RANKS_MAX_BYTES 511
#define STACKS_BRIEF_MAX_BYTES 255
#define STACKS_THREADS_MAX_BYTES 4095
#define LOGS_TEXT_MAX_BYTES 8192 /* base64 of LOGS_PIECE_MAX */
#define LOGS_PIECE_MAX 6144
#define LOGS_RANKS_PER_ASK 64
#define LOGS_OFFSETS_MAX_BYTES 2687 /* of so many ranks */
#define LOGS_WAIT_MS_MAX 1000
#define KEEPERS_MAX_BYTES 2047
#define WITNESS_MAX_BYTES 255
#define WITNESS_LAUNCHER                                                               \
    "launcher" /* in its place: the crun -H that started the node */
#define HISTORY_PIECE_MAX_BYTES 6143 /* in a frame, with each quote escaped */
#define GPUS_EACH_MAX_BYTES 127
#define FREE_PORTS_MAX 16 /* with a name */
#define FREE_PORT_NAME_MAX 32
#define FREE_PORTS_MAX_BYTES 663 /* "NAME=PORT" of each, and of one without a name */
#define LEASE_MS_MIN 200
#define LEASE_MS_MAX 3600000

/* How the identity of a TLS client of a store begins; epoch and key id follow. */
#define STORE_IDENTITY "crun1-store:"

#define FRAME_BODY_MAX 16384
#define FRAME_BODY_HELLO_MAX 512
#define JSON_DEPTH_MAX 8
#define JSON_MEMBERS_MAX 64 /* of one object, unknown ones included */
#define MEMBERS_PER_PAGE 128
#define OWNERS_PER_ASK 64
#define MEMORY_HELD_MAX_BYTES 511
#define MEMORY_SET_BYTES 55
#define MEMORY_AGENT_BYTES 263 /* an address and a port */
#define MEMORY_HOLDERS_BYTES 5887

#define HEARTBEATS_PER_LEASE 5
#define RECONNECT_GRACE_MS_MAX 1000
#define RECONNECT_DELAY_MS_MIN 4
#define RECONNECT_DELAY_MS_MAX 5000
#define CONNECT_TIMEOUT_MS 5000
#define ENTRY_DEADLINE_MS 10000 /* from HELLO to WELCOME, from JOIN to JOINED */
