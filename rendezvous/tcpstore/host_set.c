/* SPDX-License-Identifier: MIT */
#include "rendezvous/tcpstore/host_set.h"

#include <stdlib.h>

#include "rendezvous/common/base/xalloc.h"

#define BUCKETS 1024 /* for some thousand hosts at most */

struct host_set_entry {
    struct host_set_entry *next;
    struct net_addr addr;
};

struct host_set {
    struct host_set_entry *bucket[BUCKETS];
};

static size_t host_bucket(const struct net_addr *host)
{
    return net_hash_host(host) % BUCKETS;
}

struct host_set *host_set_create(void)
{
    return xcalloc(1, sizeof(struct host_set));
}

void host_set_destroy(struct host_set *set)
{
    for (size_t i = 0; set && i < BUCKETS; i++)
        for (struct host_set_entry *h = set->bucket[i], *next; h; h = next) {
            next = h->next;
            free(h);
        }
    free(set);
}

bool host_set_has(const struct host_set *set, const struct net_addr *host)
{
    for (const struct host_set_entry *h = set->bucket[host_bucket(host)]; h;
         h = h->next)
        if (net_same_host(&h->addr, host))
            return true;
    return false;
}

void host_set_add(struct host_set *set, const struct net_addr *host)
{
    struct host_set_entry **bucket = &set->bucket[host_bucket(host)], *h;

    if (host_set_has(set, host))
        return;
    h = xmalloc(sizeof(*h));
    h->next = *bucket;
    h->addr = *host;
    *bucket = h;
}
