/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_CLIENT_FOREIGN_WATCH_H
#define RENDEZVOUS_CLIENT_FOREIGN_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/net.h"

struct foreign_probe;

/*
 * Whether another program has the port where a client looks for its rendezvous. The
 * user is warned at once, and only once; the client keeps trying, because the
 * rendezvous may begin when that program has ended.
 */
struct foreign_watch {
    struct loop *loop;
    void (*found)(void *arg); /* a probe has told what is there */
    void *arg;
    struct loop_timer silence; /* the connection is not answered */
    struct foreign_probe *probe;
    struct net_addr addr;
    const char *name, *warned;
    uint64_t asked_ms; /* 0: not yet */
};

void foreign_watch_init(struct foreign_watch *w, struct loop *loop,
                        void (*found)(void *arg), void *arg);
void foreign_watch_fini(struct foreign_watch *w);

/* A connection begins; foreign_watch_ask follows unless foreign_watch_heard comes. */
void foreign_watch_connected(struct foreign_watch *w, const struct net_addr *addr);
/* A rendezvous is there. */
void foreign_watch_heard(struct foreign_watch *w);
/* The server has sent what no rendezvous sends. */
void foreign_watch_note(struct foreign_watch *w, const struct net_addr *addr,
                        const char *name);
/* The server has closed the connection without an answer: finds out what it is, unless
 * that was tried a short time ago. */
void foreign_watch_ask(struct foreign_watch *w, const struct net_addr *addr);
/* What is there, as far as known lately; else NULL. */
const char *foreign_watch_name(const struct foreign_watch *w,
                               const struct net_addr *addr);

#endif
