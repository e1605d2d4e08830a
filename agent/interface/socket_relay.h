/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "rendezvous/common/base/net.h"

struct key_ring;
struct loop;
struct socket_relays;

/*
 * Connections of tools of this machine to a crun that does not host its rendezvous:
 * their messages go there and the answers come back, with the key of this crun, as
 * those of an operator. What waits on either side is bounded, and so is their number.
 */
struct socket_relays *socket_relays_create(struct loop *loop);
void socket_relays_destroy(struct socket_relays *s); /* NULL is fine */
/* Whether a tool that follows the output of the job is still connected. NULL is fine */
bool socket_relays_are_followed(const struct socket_relays *s);

/* Where the rendezvous is, and how it is known there. */
struct relay_target {
    const struct net_addr *address; /* NULL: out of reach; the tool is told why */
    const char *why;
    struct key_ring *keys; /* NULL: plain. Must outlive the relays */
    uid_t rendezvous_user; /* without a key: may hold the port, as in client.h */
};

/* Takes over the socket, whose first bytes are not read yet. */
void socket_relays_add(struct socket_relays *s, int fd,
                       const struct relay_target *target);
