/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rendezvous/common/base/net.h"

#define CLIENT_TARGETS_MAX 32

/*
 * The addresses that one connection is tried at, side by side. Each target is tried
 * several times: the kernel repeats a request for a connection after a second, and the
 * reconnect grace may be shorter. So a lost packet does not cost a node its place.
 */
struct client_target {
    struct net_addr addr;
    unsigned tries;
    bool failed;    /* it has refused: nothing more is tried there */
    bool refers;    /* it has named another one: that may change, it is asked again */
    bool connected; /* the connection is there, but no answer yet */
};

struct client_targets {
    struct client_target list[CLIENT_TARGETS_MAX];
    size_t count;
    bool at_once; /* none waits for another: one may accept, and never answer */
};

void client_targets_add(struct client_targets *t, const struct net_addr *addr);
/* The one to try next: the least tried. NULL: none is left. */
struct client_target *client_targets_pick(struct client_targets *t);
/* When to try that one, counted from the last try. */
unsigned client_targets_delay_ms(struct client_targets *t);
/* How many have not failed. */
size_t client_targets_alive(const struct client_targets *t);
