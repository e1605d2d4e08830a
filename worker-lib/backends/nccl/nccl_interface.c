/* SPDX-License-Identifier: MIT */
/* The network interface that NCCL has chosen for itself, and that of the rendezvous. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/net.h"
#include "worker-lib/backends/nccl/backend_nccl.h"

/* In an id, behind a number: the address where rank 0 waits for the others
 * (ncclBootstrapHandle in bootstrap.h, v2.19.3-1 to v2.30.7-1). */
#define ID_ADDRESS_AT 8

static bool read_address(const struct nccl_id *id, struct net_addr *addr)
{
    memset(addr, 0, sizeof(*addr));
    memcpy(&addr->sa, id->bytes + ID_ADDRESS_AT, sizeof(struct sockaddr_in6));
    addr->len = addr->sa.ss_family == AF_INET    ? sizeof(struct sockaddr_in)
                : addr->sa.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                 : 0;
    return addr->len > 0;
}

static bool has_several_nodes(const struct team *team)
{
    for (unsigned i = 1; i < team->size; i++)
        if (team->node[i] != team->node[0])
            return true;
    return false;
}

/* A rendezvous on the loopback interface is behind a tunnel, or on one machine. */
void nccl_find_interfaces(const struct team *team, const struct nccl_id *id,
                          char text[NCCL_INTERFACES_SIZE])
{
    char its[NET_TEXT_SIZE], its_name[NET_INTERFACE_SIZE];
    char ours_name[NET_INTERFACE_SIZE];
    struct net_addr address, ours;
    struct err e;

    text[0] = '\0';
    if (!has_several_nodes(team) || !read_address(id, &address) ||
        net_parse_host(team->address, 0, &ours, &e) < 0)
        return;
    snprintf(text, NCCL_INTERFACES_SIZE,
             "NCCL uses %s (%s), the rendezvous %s (%s) of rank %u",
             net_interface(&address, its_name),
             net_format_host(&address, its, sizeof(its)),
             net_interface(&ours, ours_name), team->address, team->world_rank[0]);
    if (*its_name && *ours_name && strcmp(its_name, ours_name) != 0 &&
        !net_is_loopback(&ours) && !getenv("NCCL_SOCKET_IFNAME"))
        fprintf(stderr, "warning: %s: NCCL_SOCKET_IFNAME chooses the first\n", text);
}
