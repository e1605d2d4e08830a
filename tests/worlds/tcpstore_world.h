/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/tcpstore/tcpstore.h"

/* A store without any socket: clients say and hear bytes. */
#define CLIENTS 3

/* the eight bytes of a length below 256 */
#define N(byte) byte "\0\0\0\0\0\0\0"
#define HELLO "\x00\xce\xf7\x85\x3c"

struct tcpstore_world {
    struct tcpstore *tcpstore;
    struct tcpstore_session client[CLIENTS];
    unsigned answered;
    struct err err;
};

extern const struct tcpstore_limits roomy;

struct tcpstore_world *tcpstore_world_create(const struct tcpstore_limits *limits,
                                             bool validated);
/* Nothing may be left charged once all keys are gone. */
void tcpstore_world_destroy(struct tcpstore_world *w);

int feed_client(struct tcpstore_world *w, int client, const void *data, size_t size);
/* Take at most `max` bytes of what the client is to be sent. */
size_t take_answers(struct tcpstore_world *w, int client, uint8_t *to, size_t max);
