/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "rendezvous/common/base/net.h"

/*
 * Which connections come from this machine, and from which of its users. Loopback is no
 * border: every user of a machine reaches every port on it. May be called from any
 * thread.
 */
enum local_peer {
    LOCAL_PEER_ELSEWHERE, /* of another machine, or another network namespace */
    LOCAL_PEER_USER,      /* of a user of this machine */
    LOCAL_PEER_GONE,      /* of this machine, but it has no socket (any more) */
    LOCAL_PEER_UNKNOWN    /* of this machine; the system does not tell the user */
};

/* *uid is set for LOCAL_PEER_USER. The first LOCAL_PEER_UNKNOWN is warned of. */
enum local_peer local_peer_find(int fd, uid_t *uid);

/* Whether it may use what is of this process's user alone: peers of that user, of root
 * and of other machines may, and all peers where the system does not tell users.
 * Otherwise `why` is the reason. */
bool local_peer_may_come(enum local_peer kind, uid_t uid, char *why, size_t size);
/* The same for a rendezvous without a key: with `all_users`, as crund, it serves all
 * users of its machine that have a number here. */
bool local_peer_may_join(enum local_peer kind, uid_t uid, bool all_users, char *why,
                         size_t size);

/* The same of the server that a client has reached, once its first answer is there: it
 * may also be of `also`, a user that the client's user trusts. */
bool local_peer_may_serve(enum local_peer kind, uid_t uid, uid_t also, char *why,
                          size_t size);
