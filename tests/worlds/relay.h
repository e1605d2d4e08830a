/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/net.h"

struct loop;
struct relay;

/*
 * It stands on the path between a client and a server, and passes on what both send,
 * with one fault on its first connection. Later connections are passed on unharmed.
 */
enum relay_fault {
    RELAY_NOTHING,
    RELAY_FLIP,    /* change the byte at the offset */
    RELAY_DROP,    /* leave it out */
    RELAY_DOUBLE,  /* send it twice */
    RELAY_SWAP,    /* send it after the one that follows */
    RELAY_REPLAY,  /* send all bytes before it a second time */
    RELAY_REFLECT, /* from there on, send the bytes back to their sender */
    RELAY_CUT,     /* close the connection there */
    RELAY_FAULT_COUNT
};
enum relay_direction { RELAY_TO_SERVER, RELAY_TO_CLIENT };

struct relay_plan {
    enum relay_fault fault;
    enum relay_direction direction;
    size_t offset;
};

struct relay *relay_create(struct loop *loop, const struct net_addr *server,
                           const struct relay_plan *plan);
void relay_destroy(struct relay *r); /* NULL is fine */

uint16_t relay_port(const struct relay *r);

/* What the first connection carried so far, as it came from the sender. */
const uint8_t *relay_heard(const struct relay *r, enum relay_direction d, size_t *size);
