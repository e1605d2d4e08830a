/* SPDX-License-Identifier: MIT */
#include "worker-lib/preflight/reach.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/net.h"
#include "rendezvous/base/xalloc.h"
#include "worker-lib/preflight/verdict.h"

#define KEY_SIZE 64
#define HOST_SIZE 64
#define REASON_SIZE 200

/* Parts of the patience: the store is the same for all, so whoever is late is late for
 * everybody. */
#define FOR_ADDRESSES(r) ((r)->begin_ms + (r)->patience_ms / 2)
#define FOR_CONNECTIONS(r) ((r)->begin_ms + (r)->patience_ms * 3 / 4)
#define FOR_ROWS(r) ((r)->begin_ms + (r)->patience_ms)
#define FOR_VERDICT(r) ((r)->begin_ms + (r)->patience_ms * 5 / 4)

/* What a node says of itself; no address: it has said nothing. */
struct place {
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

/* -- the first worker of a node ------------------------------------------------------
 */

/* What connects is taken by the system; nobody has anything to say. */
static int listen_here(const struct reach *r, struct place *own)
{
    char host[NET_TEXT_SIZE];
    struct net_addr addr;
    size_t count;
    struct err e;
    int fd;

    store_client_address(r->store, host, sizeof(host));
    if (net_resolve(host, 0, &addr, 1, &count, &e) < 0 || count == 0)
        return -1;
    fd = net_listen(&addr, SOMAXCONN, &e);
    if (fd >= 0 && net_local_addr(fd, &addr) == 0)
        net_format(&addr, own->address, sizeof(own->address));
    gethostname(own->host, sizeof(own->host) - 1);
    return fd;
}

static int connect_to(const struct place *p)
{
    char host[NET_TEXT_SIZE];
    struct net_addr addr;
    uint16_t port;
    size_t count;
    struct err e;

    if (!*p->address || net_split(p->address, -1, host, sizeof(host), &port, &e) < 0 ||
        net_resolve(host, port, &addr, 1, &count, &e) < 0 || count == 0)
        return -1;
    return net_connect(&addr, &e);
}

/* True once nothing is under way any more. */
static bool settle(struct pollfd *polls, unsigned nodes, char *row)
{
    bool over = true;

    for (unsigned i = 0; i < nodes; i++) {
        int code = 0;
        socklen_t size = sizeof(code);

        if (polls[i].fd >= 0 && polls[i].revents) {
            if (getsockopt(polls[i].fd, SOL_SOCKET, SO_ERROR, &code, &size) == 0 &&
                code == 0)
                row[i] = VERDICT_REACHED;
            close(polls[i].fd);
            polls[i].fd = -1;
        }
        over &= polls[i].fd < 0;
    }
    return over;
}

static void connect_to_all(const struct reach *r, const struct place *places, char *row)
{
    unsigned nodes = r->env->nodes;
    struct pollfd *polls = xcalloc(nodes, sizeof(*polls));
    uint64_t now;

    for (unsigned i = 0; i < nodes; i++) {
        row[i] = i == r->env->node ? VERDICT_REACHED : VERDICT_UNREACHED;
        polls[i].fd = i == r->env->node ? -1 : connect_to(&places[i]);
        polls[i].events = POLLOUT;
    }
    while (!settle(polls, nodes, row) && (now = clock_ms()) < FOR_CONNECTIONS(r))
        (void)poll(polls, nodes, (int)(FOR_CONNECTIONS(r) - now));
    for (unsigned i = 0; i < nodes; i++)
        if (polls[i].fd >= 0)
            close(polls[i].fd);
    free(polls);
}

static void look(const struct reach *r, struct place *places)
{
    unsigned nodes = r->env->nodes;
    char *row = xcalloc(nodes, 1);

    for (unsigned i = 0; i < nodes; i++)
        if (i != r->env->node &&
            !get(r, "at", i, &places[i], sizeof(*places), FOR_ADDRESSES(r)))
            places[i] = (struct place){ 0 };
    for (unsigned i = 0; i < nodes; i++)
        places[i].address[NET_TEXT_SIZE - 1] = places[i].host[HOST_SIZE - 1] = '\0';
    connect_to_all(r, places, row);
    put(r, "row", r->env->node, row, nodes);
    free(row);
}

/* -- node 0 judges -------------------------------------------------------------------
 */

static const char *name_of(const void *arg, unsigned node, char *buf, size_t size)
{
    const struct place *p = &((const struct place *)arg)[node];

    if (*p->host)
        snprintf(buf, size, "%s", p->host);
    else
        snprintf(buf, size, "node %u", node);
    return buf;
}

static void judge(const struct reach *r, const struct place *places)
{
    unsigned nodes = r->env->nodes;
    char *letters = xcalloc(nodes, nodes), reason[REASON_SIZE];
    bool *unfit = xcalloc(nodes, sizeof(*unfit));

    for (unsigned i = 0; i < nodes; i++)
        if (!get(r, "row", i, letters + (size_t)i * nodes, nodes, FOR_ROWS(r)))
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

enum reach_result reach_find(const struct reach *r, char *why, size_t size)
{
    unsigned nodes = r->env->nodes;
    struct place *places = xcalloc(nodes, sizeof(*places));
    int listener = -1;
    enum reach_result result;

    if (r->env->local_rank == 0) {
        struct place *own = &places[r->env->node];

        listener = listen_here(r, own);
        put(r, "at", r->env->node, own, sizeof(*own));
        look(r, places);
        if (r->env->rank == 0)
            judge(r, places);
    }
    result = hear(r, why, size);
    if (listener >= 0)
        close(listener);
    free(places);
    return result;
}
