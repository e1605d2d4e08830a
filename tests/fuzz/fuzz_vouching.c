/* SPDX-License-Identifier: MIT */
/*
 * What rank 0's node does with connections and answers, whatever they are and in
 * whatever order: a connection is answered at most once, and it is served only if an
 * answer to a question about it has its port.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/hosting/vouching.h"
#include "rendezvous/common/base/net.h"

#define CONNS 1024
#define QUESTIONS 1024

static struct {
    uint8_t host;
    uint16_t port;
    int answered;
} conn[CONNS];
static unsigned conns;

static struct msg_ask_owners question[QUESTIONS]; /* by its number */
static const struct msg_owners *found;            /* while it is taken */

static void check_vouching(int holds)
{
    if (!holds)
        abort();
}

static void format_host(uint8_t host, char *buf, size_t size)
{
    snprintf(buf, size, "10.0.0.%u", host);
}

static int has_port(const char *ports, size_t size, uint16_t port)
{
    char list[sizeof(question->ports) + 1], *rest = list, *word;

    snprintf(list, sizeof(list), "%.*s", (int)size, ports);
    while ((word = strsep(&rest, " ")))
        if (strtoul(word, NULL, 10) == port)
            return 1;
    return 0;
}

static void on_ask(void *arg, struct msg_ask_owners *q, const struct net_addr *host)
{
    check_vouching(strlen(q->ports) > 0 && q->store_port == 29500);
    if (q->ask < QUESTIONS)
        question[q->ask] = *q;
}

static void on_answer(void *arg, uint64_t number, const char *why)
{
    char host[32];

    check_vouching(number > 0 && number <= conns && !conn[number - 1].answered++);
    if (why)
        return;
    check_vouching(found != NULL);
    if (found->ask >= QUESTIONS)
        return;
    format_host(conn[number - 1].host, host, sizeof(host));
    check_vouching(strcmp(question[found->ask].host, host) == 0);
    check_vouching(has_port(question[found->ask].ports, sizeof(question->ports),
                            conn[number - 1].port));
    check_vouching(has_port(found->ports, sizeof(found->ports), conn[number - 1].port));
}

static void add_conn(struct vouching *v, uint8_t host, uint16_t port)
{
    struct store_question q;
    char text[32];
    size_t count;
    struct err e;

    if (conns == CONNS)
        return;
    conn[conns].host = host;
    conn[conns].port = port;
    conn[conns++].answered = 0;
    format_host(host, text, sizeof(text));
    q.number = conns;
    check_vouching(net_resolve(text, port, &q.client, 1, &count, &e) == 0 &&
                   net_resolve("10.1.1.1", 29500, &q.store, 1, &count, &e) == 0);
    vouching_add(v, &q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vouching_calls calls = { .ask = on_ask, .answer = on_answer };
    struct vouching *v = vouching_create(&calls);
    uint64_t now = 0;

    conns = 0;
    memset(question, 0, sizeof(question));
    while (size >= 3) {
        uint8_t what = data[0], a = data[1], b = data[2];
        struct msg_owners m = { .ask = a, .last = what & 8 };
        size_t text = b < size - 3 ? b : size - 3;

        data += 3;
        size -= 3;
        switch (what % 5) {
        case 0:
            add_conn(v, a % 8, (uint16_t)(1 + b));
            continue;
        case 1:
            vouching_flush(v, now);
            continue;
        case 2:
            vouching_tick(v, now += a * 20);
            continue;
        case 3:
            vouching_ask_again(v);
            continue;
        }
        memcpy(m.ports, data, text);
        data += text;
        size -= text;
        found = &m;
        vouching_found(v, &m, now);
        found = NULL;
    }
    vouching_destroy(v);
    return 0;
}
