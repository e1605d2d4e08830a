/* SPDX-License-Identifier: MIT */
/*
 * The time that the nodes of a job need to exchange their addresses over a real store:
 * one thread per node, in place of its first worker, with preflight's own code. They do
 * not connect to each other: with this many on one machine that would measure the
 * machine.
 *
 *     build/bin/preflight-load NODES ...
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/tcpstore/store_server.h"
#include "worker-lib/preflight/connectivity.h"
#include "worker-lib/preflight/link_probe.h"
#include "worker-lib/preflight/node_verdict.h"

#define LIMIT_MS 120000
#define STACK_BYTES (256u * 1024)
#define NODES_MAX 16384

static struct {
    pthread_barrier_t all;
    uint16_t port;
    unsigned nodes;
} load;

struct node {
    pthread_t thread;
    unsigned number;
    enum connectivity_result result;
    char why[200];
};

/* In place of link_probe_all. */
void __wrap_link_probe_all(const char (*addresses)[NET_TEXT_SIZE], unsigned count,
                           unsigned self, uint64_t until_ms, char *letters);
void __wrap_link_probe_all(const char (*addresses)[NET_TEXT_SIZE], unsigned count,
                           unsigned self, uint64_t until_ms, char *letters)
{
    (void)self, (void)until_ms;
    for (unsigned i = 0; i < count; i++)
        letters[i] = *addresses[i] ? LINK_REACHED : LINK_UNREACHED;
}

static void *live(void *arg)
{
    struct node *n = arg;
    const struct environment env = {
        .rank = n->number, .size = load.nodes, .node = n->number, .nodes = load.nodes
    };
    struct connectivity r = { .env = &env, .limit_ms = LIMIT_MS };
    struct err e;

    if (store_client_open(&r.store, "127.0.0.1", load.port, clock_ms() + LIMIT_MS,
                          &e) != CRUN_OK) {
        fprintf(stderr, "preflight-load: %s\n", e.text);
        exit(EXIT_FAILURE);
    }
    pthread_barrier_wait(&load.all);
    r.begin_ms = clock_ms();
    n->result = connectivity_check(&r, n->why, sizeof(n->why));
    pthread_barrier_wait(&load.all);
    store_client_close(r.store);
    return NULL;
}

static void measure(unsigned nodes)
{
    struct node *node = xcalloc(nodes, sizeof(*node));
    struct store_server *server;
    struct net_addr here;
    pthread_attr_t attr;
    uint64_t begin_us;
    size_t count;
    struct err e;

    if (net_resolve("127.0.0.1", 0, &here, 1, &count, &e) < 0 ||
        !(server = store_server_create(&(struct store_server_config){ .listen = &here },
                                       &e))) {
        fprintf(stderr, "preflight-load: %s\n", e.text);
        exit(EXIT_FAILURE);
    }
    load.port = store_server_port(server);
    load.nodes = nodes;
    pthread_barrier_init(&load.all, NULL, nodes + 1);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    for (unsigned i = 0; i < nodes; i++) {
        node[i].number = i;
        if (pthread_create(&node[i].thread, &attr, live, &node[i]) != 0) {
            fprintf(stderr, "preflight-load: no room for %u threads\n", nodes);
            exit(EXIT_FAILURE);
        }
    }
    pthread_barrier_wait(&load.all);
    begin_us = clock_us();
    pthread_barrier_wait(&load.all);
    printf("%5u nodes: %8.1f ms\n", nodes, (double)(clock_us() - begin_us) / 1e3);
    for (unsigned i = 0; i < nodes; i++) {
        pthread_join(node[i].thread, NULL);
        if (node[i].result != CONNECTIVITY_COMPLETE)
            fprintf(stderr, "preflight-load: node %u: %s\n", i, node[i].why);
    }
    store_server_destroy(server);
    free(node);
}

int main(int argc, char **argv)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    for (int i = 1; i < argc; i++) {
        unsigned nodes = (unsigned)strtoul(argv[i], NULL, 10);

        if (nodes < 2 || nodes > NODES_MAX) {
            fprintf(stderr, "usage: preflight-load NODES ...    from 2 to %d\n",
                    NODES_MAX);
            return 2;
        }
        measure(nodes);
    }
    return EXIT_SUCCESS;
}
