/* SPDX-License-Identifier: MIT */
#include "worker-lib/preflight/connectivity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/xalloc.h"
#include "worker-lib/preflight/link_probe.h"
#include "worker-lib/preflight/node_verdict.h"

#define KEY_SIZE 64
#define HOST_SIZE 64
#define REASON_SIZE 200

/* When each phase ends, as parts of the limit: the same on all nodes, since they use
 * one store. */
#define FOR_COLLECTION(r) ((r)->begin_ms + (r)->limit_ms / 2)
#define FOR_ADDRESSES(r) ((r)->begin_ms + (r)->limit_ms * 5 / 8)
#define FOR_CONNECTIONS(r) ((r)->begin_ms + (r)->limit_ms * 3 / 4)
#define FOR_ROWS(r) ((r)->begin_ms + (r)->limit_ms)
#define FOR_VERDICT(r) ((r)->begin_ms + (r)->limit_ms * 5 / 4)

/* The value that a node publishes; no address: it has not answered. */
struct node_place {
    char address[NET_TEXT_SIZE], host[HOST_SIZE];
};

static const char *store_key(const char *name, unsigned node, char text[KEY_SIZE])
{
    snprintf(text, KEY_SIZE, "crun-preflight/%s/%u", name, node);
    return text;
}

static bool publish_value(const struct connectivity *r, const char *name, unsigned node,
                          const void *value, size_t size)
{
    char text[KEY_SIZE];
    struct err e;

    return store_client_set(r->store, store_key(name, node, text), value, size,
                            FOR_VERDICT(r), &e) == CRUN_OK;
}

static bool await_value(const struct connectivity *r, const char *name, unsigned node,
                        void *value, size_t size, uint64_t until_ms)
{
    char text[KEY_SIZE];
    size_t got = size;
    struct err e;

    return store_client_get(r->store, store_key(name, node, text), value, &got,
                            until_ms, &e) == CRUN_OK &&
           got == size;
}

/* Node 0 reads a node's value; false: it is missing at until_ms. After that time an
 * existing value is still read, so that one late node does not hide the others. */
static bool await_value_of_node(const struct connectivity *r, const char *name,
                                unsigned node, void *value, size_t size,
                                uint64_t until_ms)
{
    char text[KEY_SIZE];

    if (clock_ms() < until_ms)
        return await_value(r, name, node, value, size, until_ms);
    return store_client_has(r->store, store_key(name, node, text), FOR_VERDICT(r)) ==
               1 &&
           await_value(r, name, node, value, size, FOR_VERDICT(r));
}

/* -- the first worker of a node ---------------------------------------------------- */

static struct link_listener *start_listener(const struct connectivity *r,
                                            struct node_place *own)
{
    char host[NET_TEXT_SIZE];
    struct net_addr addr;
    struct link_listener *h;
    size_t count;
    struct err e;

    gethostname(own->host, sizeof(own->host) - 1);
    store_client_address(r->store, host, sizeof(host));
    if (net_resolve(host, 0, &addr, 1, &count, &e) < 0 || count == 0)
        return NULL;
    h = link_listener_start(&addr, &e);
    if (h)
        link_listener_address(h, own->address, sizeof(own->address));
    return h;
}

/* Probes the links to the addresses, one per line, and publishes the results. */
static void probe_nodes(const struct connectivity *r, char *lines)
{
    unsigned nodes = r->env->nodes;
    char(*addresses)[NET_TEXT_SIZE] = xcalloc(nodes, sizeof(*addresses));
    char *row = xcalloc(nodes, 1), *line;

    for (unsigned i = 0; i < nodes && (line = strsep(&lines, "\n")); i++)
        snprintf(addresses[i], sizeof(addresses[i]), "%s", line);
    memset(row, LINK_UNREACHED, nodes);
    row[r->env->node] = LINK_REACHED;
    link_probe_all(addresses, nodes, r->env->node, FOR_CONNECTIONS(r), row);
    publish_value(r, "row", r->env->node, row, nodes);
    free(row);
    free(addresses);
}

/* -- node 0 collects and decides --------------------------------------------------- */

/* Publishes all addresses as one value, so that each node reads one value and not one
 * per node. */
static void collect_addresses(const struct connectivity *r, struct node_place *places)
{
    unsigned nodes = r->env->nodes;
    size_t size = (size_t)nodes * NET_TEXT_SIZE + 1; /* with sprintf's NUL */
    char *lines = xcalloc(size, 1), *end = lines;

    for (unsigned i = 0; i < nodes; i++) {
        struct node_place *p = &places[i];

        if (!await_value_of_node(r, "at", i, p, sizeof(*p), FOR_COLLECTION(r)))
            *p = (struct node_place){ 0 };
        p->address[NET_TEXT_SIZE - 1] = p->host[HOST_SIZE - 1] = '\0';
        end += sprintf(end, "%s\n", p->address);
    }
    publish_value(r, "addresses", 0, lines, (size_t)(end - lines));
    free(lines);
}

static const char *name_of_node(const void *arg, unsigned node, char *buf, size_t size)
{
    const struct node_place *p = &((const struct node_place *)arg)[node];

    if (*p->host)
        snprintf(buf, size, "%s", p->host);
    else
        snprintf(buf, size, "node %u", node);
    return buf;
}

static void publish_verdict(const struct connectivity *r,
                            const struct node_place *places)
{
    unsigned nodes = r->env->nodes;
    char *letters = xcalloc(nodes, nodes), reason[REASON_SIZE];
    bool *unfit = xcalloc(nodes, sizeof(*unfit));

    for (unsigned i = 0; i < nodes; i++)
        if (!await_value_of_node(r, "row", i, letters + (size_t)i * nodes, nodes,
                                 FOR_ROWS(r)))
            memset(letters + (size_t)i * nodes, LINK_UNKNOWN, nodes);
    node_verdict_find_unfit(letters, nodes, unfit);
    for (unsigned i = 0; i < nodes; i++) {
        char text[REASON_SIZE + HOST_SIZE] = "", host[HOST_SIZE];

        if (!unfit[i])
            continue;
        node_verdict_reason(letters, nodes, i, name_of_node, places, reason,
                            sizeof(reason));
        snprintf(text, sizeof(text), "%s %s",
                 name_of_node(places, i, host, sizeof(host)), reason);
        publish_value(r, "why", i, text, sizeof(text));
    }
    publish_value(r, "verdict", 0, unfit, nodes * sizeof(*unfit));
    free(unfit);
    free(letters);
}

/* -- all workers ------------------------------------------------------------------- */

static enum connectivity_result await_verdict(const struct connectivity *r, char *why,
                                              size_t size)
{
    unsigned nodes = r->env->nodes, first = nodes;
    uint8_t *unfit = xcalloc(nodes, sizeof(*unfit));
    char text[REASON_SIZE + HOST_SIZE];

    if (!await_value(r, "verdict", 0, unfit, nodes * sizeof(*unfit), FOR_VERDICT(r))) {
        snprintf(why, size, "no answer from rank 0 about which nodes reach each other");
        free(unfit);
        return CONNECTIVITY_OTHERS_UNFIT;
    }
    for (unsigned i = nodes; i-- > 0;)
        first = unfit[i] && first != r->env->node ? i : first;
    free(unfit);
    if (first == nodes)
        return CONNECTIVITY_COMPLETE;
    if (await_value(r, "why", first, text, sizeof(text), FOR_VERDICT(r)))
        snprintf(why, size, "%.*s", (int)sizeof(text), text);
    else
        snprintf(why, size, "node %u is reported to be at fault", first);
    return first == r->env->node ? CONNECTIVITY_UNFIT : CONNECTIVITY_OTHERS_UNFIT;
}

/* By the first worker of a node, which listens already. */
static void run_link_checks(const struct connectivity *r, const struct node_place *own)
{
    unsigned nodes = r->env->nodes;
    size_t size = (size_t)nodes * NET_TEXT_SIZE;
    char *lines = xcalloc(size + 1, 1), text[KEY_SIZE];
    struct node_place *places = NULL;
    struct err e;

    publish_value(r, "at", r->env->node, own, sizeof(*own));
    if (r->env->rank == 0) {
        places = xcalloc(nodes, sizeof(*places));
        collect_addresses(r, places);
    }
    if (store_client_get(r->store, store_key("addresses", 0, text), lines, &size,
                         FOR_ADDRESSES(r), &e) != CRUN_OK)
        *lines = '\0'; /* it may have been written in part */
    probe_nodes(r, lines);
    if (places)
        publish_verdict(r, places);
    free(places);
    free(lines);
}

enum connectivity_result connectivity_check(const struct connectivity *r, char *why,
                                            size_t size)
{
    struct node_place own = { .address = "" };
    struct link_listener *h = NULL;
    enum connectivity_result result;

    if (r->env->local_rank == 0) {
        h = start_listener(r, &own);
        run_link_checks(r, &own);
    }
    result = await_verdict(r, why, size);
    link_listener_stop(h); /* all other nodes have probed it by now */
    return result;
}
