/* SPDX-License-Identifier: MIT */
#pragma once

/* Replicas of one rendezvous, and what they send each other. */
#define REPLICAS_MAX 7
#define REPLICA_ADDRESS_SIZE 512
#define REPLICA_MESSAGE_MAX (64u << 20)
#define REPLICA_SERVERS_MAX 16 /* of a configuration that another one sends */
