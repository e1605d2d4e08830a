/* SPDX-License-Identifier: MIT */
#include "rendezvous/server/peer_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/security/tls.h"

#define PEER_PORT 29400

/* The first word of *text; "" after the last. */
static int next_peer(const char **text, char *at, struct net_addr *addr, struct err *e)
{
    char one[NET_TEXT_SIZE], host[NET_TEXT_SIZE];
    size_t size = strcspn(*text, ","), count;
    uint16_t port;

    if (size >= sizeof(one))
        return err_set(e, "%.60s...: longer than %zu characters", *text,
                       sizeof(one) - 1);
    snprintf(one, sizeof(one), "%.*s", (int)size, *text);
    *text += size + ((*text)[size] == ',');
    if (net_split(one, PEER_PORT, host, sizeof(host), &port, e) < 0)
        return -1;
    if (!*host || net_is_port(one))
        return err_set(e, "\"%s\" names no host", one);
    if (snprintf(at, NET_TEXT_SIZE, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host,
                 port) >= NET_TEXT_SIZE)
        return err_set(e, "%s: too long", one);
    return net_resolve(host, port, addr, 1, &count, e);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b); /* its first field */
}

static bool is_any(const struct net_addr *addr)
{
    char host[NET_TEXT_SIZE];

    if (addr->len == 0)
        return true;
    net_format_host(addr, host, sizeof(host));
    return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

static int find_own(struct peers *p, const struct net_addr *listen, struct err *e)
{
    unsigned found = 0;

    for (unsigned i = 0; i < p->count; i++) {
        const struct net_addr *addr = &p->list[i].addr;

        if (listen->len > 0 && net_port(addr) != net_port(listen))
            continue;
        if (is_any(listen) ? !net_is_local(addr) : !net_same_host(addr, listen))
            continue;
        p->own = i;
        found++;
    }
    if (found == 1)
        return 0;
    return err_set(e,
                   found == 0 ? "none of %s is the address of this crund (--listen)"
                              : "several of %s are this machine: --listen HOST:PORT "
                                "names the one of this crund",
                   p->text);
}

int peers_parse(const char *text, struct net_addr *listen, struct peers *p,
                struct err *e)
{
    uint8_t digest[32];

    *p = (struct peers){ .count = 0 };
    while (*text) {
        if (p->count == PEERS_MAX)
            return err_set(e, "more than %d crunds", PEERS_MAX);
        if (next_peer(&text, p->list[p->count].at, &p->list[p->count].addr, e) < 0)
            return -1;
        p->count++;
    }
    qsort(p->list, p->count, sizeof(p->list[0]), by_text);
    for (unsigned i = 0; i < p->count; i++) {
        if (i > 0 && strcmp(p->list[i].at, p->list[i - 1].at) == 0)
            return err_set(e, "%s is given twice", p->list[i].at);
        snprintf(p->text + strlen(p->text), sizeof(p->text) - strlen(p->text), "%s%s",
                 i ? "," : "", p->list[i].at);
    }
    if (p->count < 2)
        return err_set(e, "\"%s\" is one crund: name all, at best three", p->text);
    tls_sha256(p->text, strlen(p->text), digest);
    memcpy(p->id.byte, digest, sizeof(p->id.byte));
    if (find_own(p, listen, e) < 0)
        return -1;
    if (listen->len == 0)
        *listen = p->list[p->own].addr;
    return 0;
}
