/* SPDX-License-Identifier: MIT */
/*
 * How long the metrics of many jobs take to be written, and how long they are:
 *
 *   metrics-load [JOBS [NODES]]       100 jobs of 100 nodes each
 *
 * The registry is that of crund, without connections; each node tells of everything.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/show/views/metrics.h"

#define ROUNDS 11

struct load_node {
    struct registry_peer *peer;
    struct id128 instance;
    uint64_t epoch;
    bool leads;
};

static struct registry *load_registry;
static uint64_t load_now, last_id;

static void on_sent(void *arg, void *conn, const struct msg *m)
{
    struct load_node *n = conn;

    (void)arg;
    if (m->type == MSG_JOINED)
        n->instance = m->instance;
    if (m->type != MSG_START)
        return;
    n->epoch = m->epoch;
    n->leads = m->start.host_store;
}

static void on_hung_up(void *arg, void *conn)
{
    (void)arg;
    (void)conn;
}

static struct id128 next_load_id(void *arg)
{
    struct id128 id = { { 1 } };

    (void)arg;
    last_id++;
    memcpy(id.byte + 8, &last_id, sizeof(last_id));
    return id;
}

static struct id128 no_digest(void *arg, const struct id128 *incarnation)
{
    (void)arg;
    return *incarnation;
}

static void tell_registry(struct load_node *n, struct msg *m)
{
    static uint64_t sequence;
    struct err e;

    m->sequence = ++sequence;
    m->instance = n->instance;
    m->epoch = n->epoch;
    if (registry_message(load_registry, n->peer, m, load_now, load_now, &e) < 0) {
        fprintf(stderr, "metrics-load: %s\n", e.text);
        exit(1);
    }
}

static void join_load_job(struct load_node *n, unsigned job, unsigned node,
                          unsigned nodes)
{
    char address[32];
    struct peer_origin origin = { .address = address,
                                  .uid = PEER_UID_UNKNOWN,
                                  .access = ACCESS_AGENT };
    struct msg hello = { .type = MSG_HELLO,
                         .hello = { .version_min = 1,
                                    .version_max = PROTO_VERSION_MAX,
                                    .role = PEER_AGENT } };
    struct msg join = { .type = MSG_JOIN };

    snprintf(address, sizeof(address), "10.%u.%u.%u", job % 250, node / 250,
             node % 250);
    n->peer = registry_connect(load_registry, n, &origin);
    tell_registry(n, &hello);
    snprintf(join.join.run_id, sizeof(join.join.run_id), "pretrain-70b-%u", job);
    snprintf(join.join.host, sizeof(join.join.host), "gpu-%02u-%04u.cluster", job,
             node);
    join.join.incarnation = next_load_id(NULL);
    join.join.pid = 4711;
    join.join.workers = 8;
    join.join.node_rank = -1;
    join.join.config = (struct job_config){ .min_nodes = nodes,
                                            .max_nodes = nodes,
                                            .max_restarts = 10,
                                            .lease_ms = 30000,
                                            .join_timeout_ms = 60000,
                                            .last_call_ms = 1000,
                                            .shutdown_grace_ms = 30000,
                                            .failure_grace_ms = 5000,
                                            .program = "train.py" };
    tell_registry(n, &join);
}

static void beat_load(struct load_node *n)
{
    struct msg beat = { .type = MSG_HEARTBEAT,
                        .heartbeat = { .step = 123456,
                                       .steps_per_s = "2.51",
                                       .loss = "1.873",
                                       .first_step = 1,
                                       .gpus = { 8, 97, 71234, 81559, 68, 5210, "" },
                                       .steps = 1000000,
                                       .busy = 731,
                                       .usual_busy = 712,
                                       .xid = 31,
                                       .xids = 2,
                                       .checkpoint_ms = 123456 } };

    tell_registry(n, &beat);
}

static void begin_load(unsigned jobs, unsigned nodes)
{
    struct registry_config config = { .standalone = true,
                                      .software = "metrics-load",
                                      .random_id = next_load_id,
                                      .digest = no_digest,
                                      .send = on_sent,
                                      .hang_up = on_hung_up };
    struct load_node *node = xcalloc((size_t)jobs * nodes, sizeof(*node));
    struct err e;

    load_now = clock_ms();
    load_registry = registry_create(&config, load_now, load_now, &e);
    if (!load_registry)
        exit(1);
    for (unsigned i = 0; i < jobs * nodes; i++)
        join_load_job(&node[i], i / nodes, i % nodes, nodes);
    for (unsigned i = 0; i < jobs * nodes; i++)
        if (node[i].leads)
            tell_registry(
                &node[i],
                &(struct msg){ .type = MSG_STORE_READY,
                               .store_ready = { .address = "10.0.0.1", .port = 1 } });
    for (unsigned i = 0; i < jobs * nodes; i++)
        beat_load(&node[i]);
}

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    unsigned jobs = argc > 1 ? (unsigned)atoi(argv[1]) : 100;
    unsigned nodes = argc > 2 ? (unsigned)atoi(argv[2]) : 100;
    struct metrics_view view = { .is_daemon = true };
    uint64_t us[ROUNDS];
    size_t size = 0;

    begin_load(jobs, nodes);
    view.registry = load_registry;
    view.now_ms = view.wall_ms = load_now;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t begun = clock_us();
        char *text;
        FILE *out = open_memstream(&text, &size);

        metrics_write(&view, out);
        fclose(out);
        us[i] = clock_us() - begun;
        if (i == 0 && getenv("METRICS_SHOWN"))
            fputs(text, stdout);
        free(text);
    }
    qsort(us, ROUNDS, sizeof(*us), by_time);
    fprintf(stderr,
            "metrics of %u jobs of %u nodes: %.1f ms (%.1f to %.1f), %.1f MiB\n", jobs,
            nodes, (double)us[ROUNDS / 2] / 1000, (double)us[0] / 1000,
            (double)us[ROUNDS - 1] / 1000, (double)size / (1 << 20));
    return 0;
}
