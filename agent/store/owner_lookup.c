/* SPDX-License-Identifier: MIT */
#include "agent/store/owner_lookup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/log.h"
#include "rendezvous/base/net.h"
#include "rendezvous/net/socket_owner.h"

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
    char list[sizeof(question->ports)], *rest = list, *word;
    struct net_addr client, store;
    size_t used = 0;
    struct err e;

    *answer = (struct msg_owners){ .ask = question->ask };
    if (net_parse_host(question->host, 0, &client, &e) < 0 ||
        net_parse_host(question->store, (uint16_t)question->store_port, &store, &e) < 0)
        return;
    snprintf(list, sizeof(list), "%s", question->ports);
    while ((word = strsep(&rest, " "))) {
        unsigned long port = strtoul(word, NULL, 10);

        if (port == 0 || port > UINT16_MAX)
            continue;
        net_set_port(&client, (uint16_t)port);
        if (socket_is_ours(&client, &store) && used + 7 <= sizeof(answer->ports))
            used += (size_t)snprintf(answer->ports + used, sizeof(answer->ports) - used,
                                     "%s%lu", used ? " " : "", port);
    }
}
