/* SPDX-License-Identifier: MIT */
#include "launcher/remote/host_addresses.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "launcher/remote/limits.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/xalloc.h"

struct address_list {
    char **number;
    unsigned count;
};

static void address_list_add(struct address_list *l, const char *number)
{
    for (unsigned i = 0; i < l->count; i++)
        if (strcmp(l->number[i], number) == 0)
            return;
    if (l->count < REMOTE_ADDRESSES_MAX)
        l->number[l->count++] = xstrdup(number);
}

/* "CLIENT PORT SERVER PORT" */
static void add_ssh_address(struct address_list *l, const char *connection)
{
    char server[NET_TEXT_SIZE];
    struct net_addr addr;
    struct err e;

    if (connection && sscanf(connection, "%*s %*s %79s", server) == 1 &&
        net_parse_host(server, 0, &addr, &e) == 0 && !net_is_loopback(&addr))
        address_list_add(l, server);
}

/* The same network of containers exists on many hosts. */
static bool is_container_bridge(const char *interface)
{
    static const char *const names[] = { "docker",  "br-",    "veth", "virbr", "cni",
                                         "flannel", "podman", "lxc",  "cali" };

    for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strncmp(interface, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static bool interface_address(const struct ifaddrs *i, struct net_addr *addr)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(void *)i->ifa_addr;

    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP))
        return false;
    if (i->ifa_addr->sa_family == AF_INET)
        addr->len = sizeof(struct sockaddr_in);
    else if (i->ifa_addr->sa_family == AF_INET6 &&
             !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
        addr->len = sizeof(struct sockaddr_in6);
    else
        return false;
    memcpy(&addr->sa, i->ifa_addr, addr->len);
    return !net_is_loopback(addr);
}

/* Those of one family, of bridges to containers or of all other interfaces. */
static void add_interfaces(struct address_list *l, const struct ifaddrs *all,
                           int family, bool bridges)
{
    char text[NET_TEXT_SIZE];
    struct net_addr addr;

    for (; all; all = all->ifa_next)
        if (is_container_bridge(all->ifa_name) == bridges &&
            interface_address(all, &addr) && addr.sa.ss_family == family)
            address_list_add(l, net_format_host(&addr, text, sizeof(text)));
}

char **host_addresses_list(const char *connection)
{
    struct address_list l = { .number = xcalloc(REMOTE_ADDRESSES_MAX + 1,
                                                sizeof(*l.number)) };
    struct ifaddrs *all;

    add_ssh_address(&l, connection);
    if (getifaddrs(&all) == 0) {
        for (int bridges = 0; bridges < 2; bridges++) {
            add_interfaces(&l, all, AF_INET, bridges);
            add_interfaces(&l, all, AF_INET6, bridges);
        }
        freeifaddrs(all);
    }
    if (l.count == 0)
        address_list_add(&l, "127.0.0.1");
    return l.number;
}
