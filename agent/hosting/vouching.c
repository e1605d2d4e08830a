/* SPDX-License-Identifier: MIT */
#include "agent/hosting/vouching.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "agent/hosting/limits.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/port_list.h"

#define HOST_BUCKETS 1024

struct client_conn {
    uint64_t number; /* of the store's question; 0: answered */
    uint16_t port;
};

/* A machine with connections to one address of the store. It is in a list: of those
 * that wait for their turn, or of those that are asked for, oldest question first. */
struct client_host {
    TAILQ_ENTRY(client_host) entry;
    LIST_ENTRY(client_host) in_bucket;
    struct net_addr host, store;
    struct client_conn asked[OWNERS_PER_ASK];
    unsigned asked_count;
    uint64_t ask; /* the number of its question; 0: none */
    uint64_t deadline_ms;
    struct client_conn *waiting;
    unsigned waiting_count, waiting_cap;
};

TAILQ_HEAD(client_hosts, client_host);

struct vouching {
    struct vouching_calls calls;
    LIST_HEAD(, client_host) bucket[HOST_BUCKETS];
    struct client_hosts ready, asked;
    unsigned asked_count;
    uint64_t last_ask;
};

struct vouching *vouching_create(const struct vouching_calls *calls)
{
    struct vouching *v = xcalloc(1, sizeof(*v));

    v->calls = *calls;
    TAILQ_INIT(&v->ready);
    TAILQ_INIT(&v->asked);
    return v;
}

static void client_host_free(struct client_host *h)
{
    LIST_REMOVE(h, in_bucket);
    free(h->waiting);
    free(h);
}

void vouching_destroy(struct vouching *v)
{
    struct client_host *h;

    if (!v)
        return;
    while ((h = TAILQ_FIRST(&v->ready))) {
        TAILQ_REMOVE(&v->ready, h, entry);
        client_host_free(h);
    }
    while ((h = TAILQ_FIRST(&v->asked))) {
        TAILQ_REMOVE(&v->asked, h, entry);
        client_host_free(h);
    }
    free(v);
}

static struct client_host *vouching_host(struct vouching *v,
                                         const struct store_question *q)
{
    uint64_t bucket = net_hash_host(&q->client) % HOST_BUCKETS;
    struct client_host *h;

    LIST_FOREACH(h, &v->bucket[bucket], in_bucket)
        if (net_same_host(&h->host, &q->client) &&
            net_same_host(&h->store, &q->store) &&
            net_port(&h->store) == net_port(&q->store))
            return h;
    h = xcalloc(1, sizeof(*h));
    h->host = q->client;
    h->store = q->store;
    LIST_INSERT_HEAD(&v->bucket[bucket], h, in_bucket);
    TAILQ_INSERT_TAIL(&v->ready, h, entry);
    return h;
}

void vouching_add(struct vouching *v, const struct store_question *q)
{
    struct client_host *h = vouching_host(v, q);

    if (h->waiting_count >= OWNER_CONNS_PER_HOST_MAX) {
        v->calls.answer(v->calls.arg, q->number,
                        "too many connections of its machine wait to be vouched for");
        return;
    }
    if (h->waiting_count == h->waiting_cap) {
        h->waiting_cap = h->waiting_cap ? 2 * h->waiting_cap : 4;
        h->waiting = xrealloc(h->waiting, h->waiting_cap * sizeof(*h->waiting));
    }
    h->waiting[h->waiting_count++] = (struct client_conn){ q->number,
                                                           net_port(&q->client) };
}

static void client_host_ask(struct vouching *v, const struct client_host *h)
{
    struct msg_ask_owners m = { .ask = h->ask, .store_port = net_port(&h->store) };

    net_format_host(&h->host, m.host, sizeof(m.host));
    net_format_host(&h->store, m.store, sizeof(m.store));
    for (unsigned i = 0; i < h->asked_count; i++)
        if (h->asked[i].number)
            port_list_add(m.ports, sizeof(m.ports), h->asked[i].port);
    v->calls.ask(v->calls.arg, &m, &h->host);
}

void vouching_flush(struct vouching *v, uint64_t now_ms)
{
    struct client_host *h;

    while (v->asked_count < OWNER_QUESTIONS_MAX && (h = TAILQ_FIRST(&v->ready))) {
        TAILQ_REMOVE(&v->ready, h, entry);
        if (h->waiting_count == 0) {
            client_host_free(h);
            continue;
        }
        h->asked_count = h->waiting_count < OWNERS_PER_ASK ? h->waiting_count
                                                           : OWNERS_PER_ASK;
        memcpy(h->asked, h->waiting, h->asked_count * sizeof(*h->asked));
        h->waiting_count -= h->asked_count;
        memmove(h->waiting, h->waiting + h->asked_count,
                h->waiting_count * sizeof(*h->waiting));
        h->ask = ++v->last_ask;
        h->deadline_ms = now_ms + OWNER_QUESTION_DEADLINE_MS;
        TAILQ_INSERT_TAIL(&v->asked, h, entry);
        v->asked_count++;
        client_host_ask(v, h);
    }
}

static void client_host_answer(struct vouching *v, struct client_host *h, uint16_t port,
                               const char *why)
{
    for (unsigned i = 0; i < h->asked_count; i++)
        if (h->asked[i].number && (!port || h->asked[i].port == port)) {
            v->calls.answer(v->calls.arg, h->asked[i].number, why);
            h->asked[i].number = 0;
        }
}

static bool client_host_waits(const struct client_host *h)
{
    for (unsigned i = 0; i < h->asked_count; i++)
        if (h->asked[i].number)
            return true;
    return false;
}

/* All that were asked for and have no owner yet are refused. */
static void client_host_conclude(struct vouching *v, struct client_host *h,
                                 const char *why)
{
    client_host_answer(v, h, 0, why);
    TAILQ_REMOVE(&v->asked, h, entry);
    v->asked_count--;
    h->ask = 0;
    TAILQ_INSERT_TAIL(&v->ready, h, entry);
}

static struct client_host *find_asked_host(const struct vouching *v, uint64_t ask)
{
    struct client_host *h;

    TAILQ_FOREACH(h, &v->asked, entry)
        if (h->ask == ask)
            break;
    return h;
}

void vouching_found(struct vouching *v, const struct msg_owners *found, uint64_t now_ms)
{
    struct client_host *h = find_asked_host(v, found->ask);
    const char *at = found->ports;
    uint16_t port;

    if (!h)
        return;
    while (port_list_next(&at, &port))
        client_host_answer(v, h, port, NULL);
    if (found->last || !client_host_waits(h))
        client_host_conclude(v, h,
                             "its machine's agent knows no socket of this job's user "
                             "behind it (--store-auth)");
    vouching_flush(v, now_ms);
}

void vouching_ask_again(struct vouching *v)
{
    const struct client_host *h;

    TAILQ_FOREACH(h, &v->asked, entry)
        client_host_ask(v, h);
}

void vouching_tick(struct vouching *v, uint64_t now_ms)
{
    struct client_host *h;

    while ((h = TAILQ_FIRST(&v->asked)) && now_ms >= h->deadline_ms)
        client_host_conclude(v, h, "the rendezvous has not told its user in time");
    vouching_flush(v, now_ms);
}

uint64_t vouching_next_tick(const struct vouching *v)
{
    const struct client_host *h = TAILQ_FIRST(&v->asked);

    return h ? h->deadline_ms : UINT64_MAX;
}
