/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/client/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/server/server.h"
#include "rendezvous/wire/protocol/frame.h"
#include "rendezvous/wire/protocol/proto.h"
#include "tests/fakes/net/slow_names.h"
#include "tests/worlds/check_main.h"

/*
 * Clients against a real server on a port of its own choosing, all on one loop. What an
 * agent is told is written down as text, "JOINED; START 1;".
 */
struct client_owner {
    struct client *client;
    char told[1024];
    char why[ERROR_TEXT_MAX_BYTES + 1];
    struct msg order; /* the last */
    enum msg_type destroy_at;
};

static struct loop *loop;
static struct server *server;
static uint16_t port;
static struct client_owner agent, other;
static char state_dir[64];

static const char *name_of(enum msg_type type)
{
    switch (type) {
    case MSG_JOINED:
        return "JOINED";
    case MSG_START:
        return "START";
    case MSG_STOP:
        return "STOP";
    case MSG_DONE:
        return "DONE";
    case MSG_REFUSED:
        return "REFUSED";
    default:
        return "";
    }
}

static inline void send_to_client(struct client_owner *a, const char *what)
{
    size_t used = strlen(a->told);

    if (*what)
        snprintf(a->told + used, sizeof(a->told) - used, "%s; ", what);
}

static inline void on_order(void *arg, const struct msg *m)
{
    struct client_owner *a = arg;

    a->order = *m;
    send_to_client(a, name_of(m->type));
    if (m->type != a->destroy_at)
        return;
    client_destroy(a->client);
    a->client = NULL;
}

static inline void on_outage(void *arg, bool out, const char *why)
{
    struct client_owner *a = arg;

    snprintf(a->why, sizeof(a->why), "%s", why);
    send_to_client(a, out ? "out" : "back");
}

static inline void on_abandoned(void *arg, const char *why)
{
    struct client_owner *a = arg;

    snprintf(a->why, sizeof(a->why), "%s", why);
    send_to_client(a, "abandoned");
}

static inline void set_loopback(struct net_addr *addr, uint16_t number)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(number) };

    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    memset(addr, 0, sizeof(*addr));
    memcpy(&addr->sa, &in, sizeof(in));
    addr->len = sizeof(in);
}

static inline void on_fatal(void *arg, const char *why)
{
    ck_abort_msg("%s", why);
}

static inline void start_server(bool listening, const char *dir)
{
    struct server_config config = { .state_dir = dir, .fatal = on_fatal };
    struct err e;

    if (listening)
        set_loopback(&config.listen, port);
    server = server_create(loop, &config, &e);
    ck_assert_msg(server != NULL, "%s", server ? "" : e.text);
    if (listening)
        port = net_port(server_address(server));
}

static inline void stop_server(void)
{
    server_destroy(server);
    server = NULL;
}

#define CONNECT_FOR_MS 10000

static inline struct client_config config_for(const char *endpoints)
{
    struct client_config config = {
        .session = { .join = { .run_id = "job",
                               .incarnation = id128_random(),
                               .host = "here",
                               .workers = 2,
                               .node_rank = -1,
                               .config = { .min_nodes = 1,
                                           .max_nodes = 1,
                                           .lease_ms = 3000,
                                           .join_timeout_ms = 10000,
                                           .last_call_ms = 1000,
                                           .shutdown_grace_ms = 1000,
                                           .failure_grace_ms = 1000,
                                           .scale = JOB_SCALE_NOW } },
                     .connect_for_ms = CONNECT_FOR_MS,
                     .outage_grace_ms = 10000,
                     .seed = 1,
                     .software = "test" },
        .endpoints = endpoints,
    };

    return config;
}

static inline void start_client(struct client_owner *a,
                                const struct client_config *config)
{
    struct client_calls calls = {
        .order = on_order, .outage = on_outage, .abandoned = on_abandoned, .arg = a
    };
    struct err e;

    a->client = client_create(loop, config, &calls, &e);
    ck_assert_msg(a->client != NULL, "%s", a->client ? "" : e.text);
}

static inline void start_agent(const struct client_config *config)
{
    start_client(&agent, config);
}

static inline void join_over_the_network(void)
{
    char endpoint[64];
    struct client_config config;

    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%u", port);
    config = config_for(endpoint);
    start_agent(&config);
}

static inline void join_within_the_process(void)
{
    struct client_config config = config_for(NULL);

    config.local = server;
    start_agent(&config);
}

/* Check's time limit ends what never comes. */
static inline void wait_until_told(const char *what)
{
    while (!strstr(agent.told, what))
        loop_turn(loop, 100);
}

static inline void expect(const char *told)
{
    ck_assert_str_eq(agent.told, told);
    agent.told[0] = '\0';
}

static inline void report(enum msg_type type)
{
    struct msg m = { .type = type,
                     .epoch = session_epoch(client_session(agent.client)) };

    if (type == MSG_STORE_READY)
        m.store_ready.port = 29500;
    client_report(agent.client, &m);
}

static inline void ignore(void *arg, enum log_level level, const char *line)
{
}

static inline void setup(void)
{
    log_set_sink(ignore, NULL);
    loop = loop_create();
    server = NULL;
    port = 0;
    memset(&agent, 0, sizeof(agent));
    memset(&other, 0, sizeof(other));
    state_dir[0] = '\0';
}

static inline void teardown(void)
{
    char command[128];

    client_destroy(agent.client);
    client_destroy(other.client);
    server_destroy(server);
    loop_destroy(loop);
    snprintf(command, sizeof(command), "rm -rf '%s'", state_dir);
    if (*state_dir)
        ck_assert_int_eq(system(command), 0);
}

/* A port on which no program listens, for as long as fd is open. */
static inline uint16_t dead_port(int *fd)
{
    struct net_addr addr;

    set_loopback(&addr, 0);
    *fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(*fd, (struct sockaddr *)&addr.sa, addr.len), 0);
    ck_assert_int_eq(net_local_addr(*fd, &addr), 0);
    return net_port(&addr);
}

/* A listener that has no room for a connection, and drops what asks for one. */
static inline int full_listener(int *filler, uint16_t *number)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct net_addr addr;

    set_loopback(&addr, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr.sa, addr.len), 0);
    ck_assert_int_eq(listen(fd, 0), 0);
    ck_assert_int_eq(net_local_addr(fd, &addr), 0);
    *number = net_port(&addr);
    *filler = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(*filler, (struct sockaddr *)&addr.sa, addr.len), 0);
    return fd;
}

/* A listener that says nothing; the kernel takes the connection. */
static inline int silent_listener(uint16_t *number)
{
    struct net_addr addr;
    struct err e;
    int fd;

    set_loopback(&addr, 0);
    fd = net_listen(&addr, 8, &e);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(net_local_addr(fd, &addr), 0);
    *number = net_port(&addr);
    return fd;
}
