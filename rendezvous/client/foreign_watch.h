/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/net.h"

/*
 * Whether another program has the port where a client looks for its rendezvous. The
 * user is warned once; the client keeps trying, because the rendezvous may begin when
 * that program has ended.
 */
struct foreign_watch {
    struct loop_timer silence; /* the connection is not answered */
    struct net_addr addr;
    const char *name, *warned;
};

void foreign_watch_init(struct foreign_watch *w, struct loop *loop);
void foreign_watch_fini(struct foreign_watch *w);

/* A connection begins. */
void foreign_watch_connected(struct foreign_watch *w, const struct net_addr *addr);
/* A rendezvous is there. */
void foreign_watch_heard(struct foreign_watch *w);
/* The server has sent what no rendezvous sends, or (name NULL) has closed the
 * connection without an answer. */
void foreign_watch_note(struct foreign_watch *w, const struct net_addr *addr,
                        const char *name);
/* What is there, as far as known; else NULL. */
const char *foreign_watch_name(const struct foreign_watch *w,
                               const struct net_addr *addr);
