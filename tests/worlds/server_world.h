/* SPDX-License-Identifier: MIT */
#pragma once

#include "launcher/flags/limits.h"
#include "rendezvous/server/server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/server/limits.h"
#include "rendezvous/wire/net/limits.h"
#include "rendezvous/wire/protocol/frame.h"
#include "rendezvous/wire/protocol/proto.h"
#include "tests/worlds/check_main.h"

/* A server with real sockets around the real registry, in one thread. */
#define PATIENCE_MS 60000
#define OTHER_USER 12345

static struct loop *loop;
static struct server *server;
static int store_fd;
static unsigned store_clients, store_clients_seen, most_in_a_turn;
static unsigned log_lines;
static char log_last[1024];

#define WAIT_FOR(condition)                                                            \
    do {                                                                               \
        uint64_t until = clock_ms() + PATIENCE_MS;                                     \
        bool holds;                                                                    \
        while (!(holds = (condition)) && clock_ms() < until)                           \
            loop_turn(loop, 10);                                                       \
        ck_assert_msg(holds, "in vain: %s", #condition);                               \
    } while (0)

static inline void on_store_client(void *arg, int fd)
{
    store_fd = fd;
    store_clients++;
}

static inline void close_store_client(void *arg, int fd)
{
    on_store_client(arg, fd);
    close(fd);
}

static inline void note_turn(void *arg)
{
    if (store_clients - store_clients_seen > most_in_a_turn)
        most_in_a_turn = store_clients - store_clients_seen;
    store_clients_seen = store_clients;
}

static inline void on_fatal(void *arg, const char *why)
{
    ck_abort_msg("%s", why);
}

static inline void on_line(void *arg, enum log_level level, const char *line)
{
    log_lines++;
    snprintf(log_last, sizeof(log_last), "%s", line);
}

static inline void create_server(struct server_config config)
{
    struct err e;
    size_t count;

    config.fatal = on_fatal;
    if (!config.listen.len)
        ck_assert_int_eq(net_resolve("127.0.0.1", 0, &config.listen, 1, &count, &e), 0);
    server = server_create(loop, &config, &e);
    ck_assert_msg(server != NULL, "%s", e.text);
}

static inline void start_server_on(unsigned conns_max, bool with_store)
{
    create_server(
        (struct server_config){ .standalone = true,
                                .conns_max = conns_max,
                                .store_client = with_store ? on_store_client : NULL });
}

static inline void setup(void)
{
    loop = loop_create();
    log_set_sink(on_line, NULL);
    store_fd = -1;
}

static inline void teardown(void)
{
    server_destroy(server);
    loop_destroy(loop);
    log_set_sink(NULL, NULL);
}

static inline int dial_with(int fd)
{
    const struct net_addr *to = server_address(server);

    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&to->sa, to->len), 0);
    return fd;
}

static inline int dial_server(void)
{
    return dial_with(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

static inline void send_to_server(int fd, const void *data, size_t size)
{
    ck_assert_int_eq(send(fd, data, size, MSG_NOSIGNAL), (ssize_t)size);
}

static inline void say_message(int fd, const struct msg *m)
{
    uint8_t frame[FRAME_HEADER_SIZE + FRAME_BODY_MAX];

    send_to_server(fd, frame, proto_encode(m, frame, sizeof(frame)));
}

/* Without the preface: over a connection of its own process. */
static inline void say_local_hello(int fd, enum peer_kind role)
{
    struct msg m = { .type = MSG_HELLO, .sequence = 1 };

    m.hello.version_min = m.hello.version_max = PROTO_VERSION_MAX;
    m.hello.role = role;
    m.hello.keepers = role == PEER_AGENT;
    snprintf(m.hello.software, sizeof(m.hello.software), "test");
    say_message(fd, &m);
}

static inline void say_hello(int fd, enum peer_kind role)
{
    send_to_server(fd, FRAME_PREFACE, FRAME_PREFACE_SIZE);
    say_local_hello(fd, role);
}

/* True once that many whole messages are there, m the last of them. They stay there. */
static inline bool peek_messages(int fd, int count, struct msg *m)
{
    uint8_t data[4 * (FRAME_HEADER_SIZE + FRAME_BODY_MAX)];
    ssize_t n = recv(fd, data, sizeof(data), MSG_DONTWAIT | MSG_PEEK);
    size_t at = 0;
    struct frame_header h;
    struct err e;

    for (; count > 0; count--) {
        if (n <= (ssize_t)at ||
            frame_get_header(data + at, (size_t)n - at, FRAME_BODY_MAX, &h, &e) <= 0)
            return false;
        ck_assert_int_eq(proto_decode(&h, data + at + FRAME_HEADER_SIZE, m, &e), 0);
        at += FRAME_HEADER_SIZE + h.body_size;
    }
    return true;
}

static inline bool is_closed(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);

    return n == 0 || (n < 0 && errno == ECONNRESET);
}

/* Closed, after whatever was there to be read. */
static inline bool is_reset(int fd)
{
    char data[4096];
    ssize_t n;

    while ((n = recv(fd, data, sizeof(data), MSG_DONTWAIT)) > 0)
        ;
    return n == 0 || errno == ECONNRESET;
}

/* A connection the server knows: crunctl's, greeted. */
static inline int dial_known(void)
{
    struct msg m;
    int fd = dial_server();

    say_hello(fd, PEER_CTL);
    WAIT_FOR(peek_messages(fd, 1, &m));
    ck_assert_int_eq(m.type, MSG_WELCOME);
    return fd;
}

static inline void say_join(int fd, const char *run_id, uint32_t nodes)
{
    struct msg m = { .type = MSG_JOIN, .sequence = 2 };
    struct msg_join *j = &m.join;

    snprintf(j->run_id, sizeof(j->run_id), "%s", run_id);
    j->incarnation = id128_random();
    strcpy(j->host, "node");
    j->workers = 1;
    j->node_rank = -1;
    j->config = (struct job_config){ .min_nodes = nodes,
                                     .max_nodes = nodes,
                                     .lease_ms = LEASE_MS_DEFAULT,
                                     .join_timeout_ms = JOIN_TIMEOUT_MS_DEFAULT,
                                     .last_call_ms = LAST_CALL_MS_DEFAULT,
                                     .shutdown_grace_ms = SHUTDOWN_GRACE_MS_DEFAULT,
                                     .failure_grace_ms = FAILURE_GRACE_MS_DEFAULT,
                                     .scale = JOB_SCALE_NOW };
    say_message(fd, &m);
}

static inline void ask_to_join(int fd, const char *run_id, uint32_t nodes)
{
    say_hello(fd, PEER_AGENT);
    say_join(fd, run_id, nodes);
}

/* joined is the answer. */
static inline void join_job(int fd, const char *run_id, uint32_t nodes,
                            struct msg *joined)
{
    ask_to_join(fd, run_id, nodes);
    WAIT_FOR(peek_messages(fd, 2, joined));
    ck_assert_int_eq(joined->type, MSG_JOINED);
}

static inline int dial_member(void)
{
    struct msg joined;
    int fd = dial_server();

    join_job(fd, "job", 9, &joined);
    return fd;
}

/* Addresses of this machine. */
static inline int dial_between(const char *host, const char *to)
{
    uint16_t port = net_port(server_address(server));
    struct net_addr from, at;
    struct err e;
    size_t count;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_eq(net_resolve(host, 0, &from, 1, &count, &e), 0);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&from.sa, from.len), 0);
    ck_assert_int_eq(net_resolve(to, port, &at, 1, &count, &e), 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&at.sa, at.len), 0);
    return fd;
}

static inline int dial_from(const char *host)
{
    return dial_between(host, "127.0.0.1");
}
