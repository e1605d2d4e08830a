/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "rendezvous/common/base/net.h"

/*
 * Which user of this machine a TCP socket belongs to, by its two addresses. The kernel
 * is asked with NETLINK_SOCK_DIAG for exactly one socket, which needs no privileges,
 * takes microseconds and never waits. /proc/net/tcp is read only where that is missing.
 * All of it may be called from any thread.
 *
 * Only a connected socket that a process has open counts. The kernel shows user 0 for
 * sockets that are closed but not gone, and for connections not yet accepted: those are
 * GONE. So a client that looks up the server's end does so after the first bytes of the
 * answer.
 */
enum socket_owner_result {
    SOCKET_OWNER_FOUND,
    SOCKET_OWNER_GONE,   /* no process of this network namespace has it open */
    SOCKET_OWNER_UNKNOWN /* neither sock_diag nor /proc/net/tcp can be used */
};

/* The user of a socket whose owner is outside of this user namespace. */
#define SOCKET_OWNER_OUTSIDE ((uid_t)-1)

/* Take the descriptor that the look-ups need, which is kept, before other connections
 * take all that there are, and find out whether they work, before this process gives up
 * to bind. */
void socket_owner_prepare(void);

/* `local` and `remote` are as that socket has them: seen from a server, a client's
 * socket has the client's address as `local`. *uid is set if it is found. */
enum socket_owner_result socket_owner_find(const struct net_addr *local,
                                           const struct net_addr *remote, uid_t *uid);

/* The user at the other end of a connection of this process. GONE too if the connection
 * has been reset: then its addresses may be another one's already. */
enum socket_owner_result socket_owner_of_peer(int fd, uid_t *uid);

/* Whether the other end of a connection may be another socket than it was: once it has
 * been reset. Until then, both ends keep their addresses. */
bool socket_owner_can_have_changed(int fd);

/* Whether the other end is a socket of this network namespace, even if no process has
 * it open any more. */
bool socket_owner_is_here(int fd);

/* Whether a peer of this user may do whatever this process may: its own user, or root.
 */
bool socket_owner_may(uid_t uid);

/* "user bob (uid 1001)", "uid 1001" if /etc/passwd does not list it. Returns buf. */
char *socket_owner_describe(uid_t uid, char *buf, size_t size);
