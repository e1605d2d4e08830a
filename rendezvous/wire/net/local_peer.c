/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/net/local_peer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/wire/net/limits.h"
#include "rendezvous/wire/net/socket_owner.h"

/* The list of a machine's addresses takes longer than all else here, and changes
 * seldom: the last answers are kept for a moment. */
static bool address_is_own(const struct net_addr *addr)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        struct net_addr addr;
        uint64_t until_ms;
        bool own;
    } known[OWN_ADDRESSES_KNOWN];
    uint64_t now = clock_ms();
    size_t i = net_hash_host(addr) % OWN_ADDRESSES_KNOWN;
    bool own;

    pthread_mutex_lock(&lock);
    if (known[i].until_ms <= now || !net_same_host(&known[i].addr, addr)) {
        known[i].addr = *addr;
        known[i].own = net_is_local(addr);
        known[i].until_ms = now + OWN_ADDRESSES_KEPT_MS;
    }
    own = known[i].own;
    pthread_mutex_unlock(&lock);
    return own;
}

static void warn_of_unknown_users(void)
{
    static atomic_bool warned;

    if (!atomic_exchange(&warned, true))
        log_warn(
            "this system does not tell which user a connection belongs to (no "
            "NETLINK_SOCK_DIAG, no /proc/net/tcp): all users of this machine are let "
            "in");
}

enum local_peer local_peer_find(int fd, uid_t *uid)
{
    struct net_addr here, there;
    enum socket_owner_result owner;

    if (net_peer_addr(fd, &there) < 0 || net_local_addr(fd, &here) < 0)
        return LOCAL_PEER_GONE;
    owner = socket_owner_of_peer(fd, uid);
    if (owner == SOCKET_OWNER_FOUND)
        return LOCAL_PEER_USER;
    /* a route may make addresses own that no interface lists */
    if (!net_is_loopback(&there) && !net_same_host(&here, &there) &&
        !address_is_own(&there) && !socket_owner_is_here(fd))
        return LOCAL_PEER_ELSEWHERE;
    if (owner == SOCKET_OWNER_GONE)
        return LOCAL_PEER_GONE;
    warn_of_unknown_users();
    return LOCAL_PEER_UNKNOWN;
}

bool local_peer_may_come(enum local_peer kind, uid_t uid, char *why, size_t size)
{
    char theirs[96], ours[96];

    if (kind == LOCAL_PEER_GONE) {
        snprintf(why, size, "it is of this machine, but no process has its other end");
        return false;
    }
    if (kind != LOCAL_PEER_USER || socket_owner_may(uid))
        return true;
    snprintf(why, size, "it is of %s, and this is of %s",
             socket_owner_describe(uid, theirs, sizeof(theirs)),
             socket_owner_describe(geteuid(), ours, sizeof(ours)));
    return false;
}

bool local_peer_may_join(enum local_peer kind, uid_t uid, bool all_users, char *why,
                         size_t size)
{
    return (all_users && kind == LOCAL_PEER_USER && uid != SOCKET_OWNER_OUTSIDE) ||
           local_peer_may_come(kind, uid, why, size);
}

bool local_peer_may_serve(enum local_peer kind, uid_t uid, uid_t also, char *why,
                          size_t size)
{
    char theirs[96], ours[96];

    if (kind == LOCAL_PEER_GONE) {
        snprintf(why, size, "no process of this machine holds the port any more");
        return false;
    }
    if (kind != LOCAL_PEER_USER || socket_owner_may(uid) || uid == also)
        return true;
    snprintf(why, size, "the port is held by %s, not by you, %s: see --rendezvous-user",
             socket_owner_describe(uid, theirs, sizeof(theirs)),
             socket_owner_describe(geteuid(), ours, sizeof(ours)));
    return false;
}
