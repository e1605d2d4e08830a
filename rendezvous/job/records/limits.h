/* SPDX-License-Identifier: MIT */
#pragma once

/* Sizes of the journal, and when a snapshot replaces it. */
#define JOURNAL_RECORD_MAX 65536
#define JOURNAL_BATCH_MAX (64u << 20)
#define JOURNAL_SNAPSHOT_BYTES (16u << 20)
#define JOURNAL_RESERVE_BYTES (1u << 20)
#define JOURNAL_REPLICA_TYPES 240 /* of records, and up: those of a replica */

/* Replicas of one rendezvous, and what they send each other. */
#define REPLICAS_MAX 7
#define REPLICA_ADDRESS_SIZE 512
#define REPLICA_MESSAGE_MAX (64u << 20)
#define REPLICA_SERVERS_MAX 16 /* of a configuration that another one sends */
