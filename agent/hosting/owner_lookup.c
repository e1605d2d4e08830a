/* SPDX-License-Identifier: MIT */
#include "agent/hosting/owner_lookup.h"

#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/wire/net/socket_owner.h"
#include "rendezvous/wire/protocol/port_list.h"

static bool socket_is_ours(const struct net_addr *client, const struct net_addr *store)
{
    static bool warned;
    uid_t uid;

    switch (socket_owner_find(client, store, &uid)) {
    case SOCKET_OWNER_FOUND:
        return socket_owner_may(uid);
    case SOCKET_OWNER_UNKNOWN:
        if (!warned)
            log_warn(
                "this system does not tell which user a socket belongs to (no "
                "sock_diag): workers here cannot reach the store of rank 0, unless "
                "the job runs with --store-auth address");
        warned = true;
        return false;
    default:
        return false;
    }
}

void owner_lookup_answer(const struct msg_ask_owners *question,
                         struct msg_owners *answer)
{
    const char *at = question->ports;
    struct net_addr client, store;
    uint16_t port;
    struct err e;

    *answer = (struct msg_owners){ .ask = question->ask };
    if (net_parse_host(question->host, 0, &client, &e) < 0 ||
        net_parse_host(question->store, (uint16_t)question->store_port, &store, &e) < 0)
        return;
    while (port_list_next(&at, &port)) {
        net_set_port(&client, port);
        if (socket_is_ours(&client, &store))
            port_list_add(answer->ports, sizeof(answer->ports), port);
    }
}
