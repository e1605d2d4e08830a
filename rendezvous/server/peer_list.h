/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/base/id128.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/server/limits.h"

/* The crunds of one rendezvous (crund --peers), in an order that all of them have. */
struct peers {
    unsigned count, own; /* own: the place of this one */
    struct {
        char at[NET_TEXT_SIZE]; /* HOST:PORT, as clients reach it */
        struct net_addr addr;
    } list[PEERS_MAX];
    struct id128 id; /* the same for the same list */
    char text[PEERS_MAX * NET_TEXT_SIZE];
};

/* "HOST:PORT,HOST:PORT,...". The own one is that of `listen`; if that is all addresses
 * of the machine, or none yet, the only one of this machine, which it then becomes. */
int peers_parse(const char *text, struct net_addr *listen, struct peers *p,
                struct err *e) MUST_CHECK;
