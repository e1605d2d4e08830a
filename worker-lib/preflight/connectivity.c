/* SPDX-License-Identifier: MIT */
#include "worker-lib/preflight/connectivity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/net.h"
#include "rendezvous/base/xalloc.h"
#include "worker-lib/preflight/link_probe.h"
#include "worker-lib/preflight/node_verdict.h"

#define KEY_SIZE 64
#define HOST_SIZE 64
#define REASON_SIZE 200

/* Parts of the patience: the store is the same for all, so whoever is late is late for
 * everybody. */
#define FOR_COLLECTION(r) ((r)->begin_ms + (r)->patience_ms / 2)
#define FOR_ADDRESSES(r) ((r)->begin_ms + (r)->patience_ms * 5 / 8)
#define FOR_CONNECTIONS(r) ((r)->begin_ms + (r)->patience_ms * 3 / 4)
#define FOR_ROWS(r) ((r)->begin_ms + (r)->patience_ms)
#define FOR_VERDICT(r) ((r)->begin_ms + (r)->patience_ms * 5 / 4)

/* What a node says of itself; no address: it has said nothing. */
struct session_identity {
    char address[NET_TEXT_SIZE], host[HOST_SIZE];
};

static const char *key(const char *name, unsigned node, char text[KEY_SIZE])
{
    snprintf(text, KEY_SIZE, "crun-preflight/%s/%u", name, node);
    return text;
}

static bool put(const struct reach *r, const char *name, unsigned node,
                const void *value, size_t size)
{
    char text[KEY_SIZE];
    struct err e;

    return store_client_set(r->store, key(name, node, text), value, size,
                            FOR_VERDICT(r), &e) == CRUN_OK;
}

static bool get(const struct reach *r, const char *name, unsigned node, void *value,
                size_t size, uint64_t until_ms)
{
    char text[KEY_SIZE];
    size_t got = size;
    struct err e;

    return store_client_get(r->store, key(name, node, text), value, &got, until_ms,
                            &e) == CRUN_OK &&
           got == size;
}

/* What nodes say, each under the same name, for node 0: false where it has said nothing
 * by then. One that is awaited in vain keeps nobody from being heard who has spoken. */
static bool hear_from(const struct reach *r, const char *name, unsigned node,
                      void *value, size_t size, uint64_t until_ms)
{
    char text[KEY_SIZE];

    if (clock_ms() < until_ms)
        return get(r, name, node, value, size, until_ms);
    return store_client_has(r->store, key(name, node, text), FOR_VERDICT(r)) == 1 &&
           get(r, name, node, value, size, FOR_VERDICT(r));
}

/* -- the first worker of a node ------------------------------------------------------
 */

static struct contact_host *listen_here(const struct reach *r,
                                        struct session_identity *own)
{
    char host[NET_TEXT_SIZE];
    struct net_addr addr;
    struct contact_host *h;
    size_t count;
    struct err e;

    gethostname(own->host, sizeof(own->host) - 1);
    store_client_address(r->store, host, sizeof(host));
    if (net_resolve(host, 0, &addr, 1, &count, &e) < 0 || count == 0)
        return NULL;
    h = contact_host_start(&addr, &e);
    if (h)
        contact_host_address(h, own->address, sizeof(own->address));
    return h;
}

/* Calls those at the addresses, a line each, and says who was reached. */
static void look(const struct reach *r, char *lines)
{
    unsigned nodes = r->env->nodes;
    char(*addresses)[NET_TEXT_SIZE] = xcalloc(nodes, sizeof(*addresses));
    char *row = xcalloc(nodes, 1), *line;

    for (unsigned i = 0; i < nodes && (line = strsep(&lines, "\n")); i++)
        snprintf(addresses[i], sizeof(addresses[i]), "%s", line);
    memset(row, VERDICT_UNREACHED, nodes);
    row[r->env->node] = VERDICT_REACHED;
    contact_all(addresses, nodes, r->env->node, FOR_CONNECTIONS(r), row);
    put(r, "row", r->env->node, row, nodes);
    free(row);
    free(addresses);
}

/* -- node 0 collects and judges ------------------------------------------------------
 */

/* All addresses in one value: each node fetches that, and not as many as there are
 * nodes. */
static void collect(const struct reach *r, struct session_identity *places)
{
    unsigned nodes = r->env->nodes;
    size_t size = (size_t)nodes * NET_TEXT_SIZE + 1; /* with the NUL of sprintf */
    char *lines = xcalloc(size, 1), *end = lines;

    for (unsigned i = 0; i < nodes; i++) {
        struct session_identity *p = &places[i];

        if (!hear_from(r, "at", i, p, sizeof(*p), FOR_COLLECTION(r)))
            *p = (struct session_identity){ 0 };
        p->address[NET_TEXT_SIZE - 1] = p->host[HOST_SIZE - 1] = '\0';
        end += sprintf(end, "%s\n", p->address);
    }
    put(r, "addresses", 0, lines, (size_t)(end - lines));
    free(lines);
}

static const char *name_of(const void *arg, unsigned node, char *buf, size_t size)
{
    const struct session_identity *p = &((const struct session_identity *)arg)[node];

    if (*p->host)
        snprintf(buf, size, "%s", p->host);
    else
        snprintf(buf, size, "node %u", node);
    return buf;
}

static void judge(const struct reach *r, const struct session_identity *places)
{
    unsigned nodes = r->env->nodes;
    char *letters = xcalloc(nodes, nodes), reason[REASON_SIZE];
    bool *unfit = xcalloc(nodes, sizeof(*unfit));

    for (unsigned i = 0; i < nodes; i++)
        if (!hear_from(r, "row", i, letters + (size_t)i * nodes, nodes, FOR_ROWS(r)))
            memset(letters + (size_t)i * nodes, VERDICT_SILENT, nodes);
    verdict_find(letters, nodes, unfit);
    for (unsigned i = 0; i < nodes; i++) {
        char text[REASON_SIZE + HOST_SIZE] = "", host[HOST_SIZE];

        if (!unfit[i])
            continue;
        verdict_reason(letters, nodes, i, name_of, places, reason, sizeof(reason));
        snprintf(text, sizeof(text), "%s %s", name_of(places, i, host, sizeof(host)),
                 reason);
        put(r, "why", i, text, sizeof(text));
    }
    put(r, "verdict", 0, unfit, nodes * sizeof(*unfit));
    free(unfit);
    free(letters);
}

/* -- everybody -----------------------------------------------------------------------
 */

static enum reach_result hear(const struct reach *r, char *why, size_t size)
{
    unsigned nodes = r->env->nodes, first = nodes;
    bool *unfit = xcalloc(nodes, sizeof(*unfit));
    char text[REASON_SIZE + HOST_SIZE];

    if (!get(r, "verdict", 0, unfit, nodes * sizeof(*unfit), FOR_VERDICT(r))) {
        snprintf(why, size, "rank 0 has not said which nodes reach each other");
        free(unfit);
        return REACH_OTHERS;
    }
    for (unsigned i = nodes; i-- > 0;)
        first = unfit[i] && first != r->env->node ? i : first;
    free(unfit);
    if (first == nodes)
        return REACH_ALL;
    if (get(r, "why", first, text, sizeof(text), FOR_VERDICT(r)))
        snprintf(why, size, "%.*s", (int)sizeof(text), text);
    else
        snprintf(why, size, "node %u is said to be at fault", first);
    return first == r->env->node ? REACH_UNFIT : REACH_OTHERS;
}

/* The first worker of a node, after it listens. */
static void take_part(const struct reach *r, const struct session_identity *own)
{
    unsigned nodes = r->env->nodes;
    size_t size = (size_t)nodes * NET_TEXT_SIZE;
    char *lines = xcalloc(size + 1, 1), text[KEY_SIZE];
    struct session_identity *places = NULL;
    struct err e;

    put(r, "at", r->env->node, own, sizeof(*own));
    if (r->env->rank == 0) {
        places = xcalloc(nodes, sizeof(*places));
        collect(r, places);
    }
    if (store_client_get(r->store, key("addresses", 0, text), lines, &size,
                         FOR_ADDRESSES(r), &e) != CRUN_OK)
        *lines = '\0'; /* or what came of it before it broke off */
    look(r, lines);
    if (places)
        judge(r, places);
    free(places);
    free(lines);
}

enum reach_result reach_find(const struct reach *r, char *why, size_t size)
{
    struct session_identity own = { .address = "" };
    struct contact_host *h = NULL;
    enum reach_result result;

    if (r->env->local_rank == 0) {
        h = listen_here(r, &own);
        take_part(r, &own);
    }
    result = hear(r, why, size);
    contact_host_stop(h); /* by now all others have called */
    return result;
}
