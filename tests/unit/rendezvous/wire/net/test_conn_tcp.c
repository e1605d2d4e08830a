/* SPDX-License-Identifier: MIT */
/* Connections over TCP. */
#include "tests/worlds/conn_world.h"

FIXTURE(setup, teardown);

static int listen_anywhere(struct net_addr *addr)
{
    struct net_addr any;
    size_t count;
    struct err e;
    int fd;

    ck_assert_int_eq(net_resolve("127.0.0.1", 0, &any, 1, &count, &e), 0);
    fd = net_listen(&any, 8, &e);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(net_local_addr(fd, addr), 0);
    return fd;
}

TEST(two_connections_speak_with_each_other)
{
    struct side client = { .peer = -1 }, server = { .peer = -1, .answer = true };
    struct conn_calls client_calls = calls_of(&client),
                      server_calls = calls_of(&server);
    struct net_addr addr, from;
    struct msg m = hello();
    struct err e;
    int listener = listen_anywhere(&addr), fd = -1;

    client.conn = conn_connect(loop, &addr, NULL, on_connected, &client_calls, &e);
    ck_assert_ptr_nonnull(client.conn);
    conn_send(client.conn, &m); /* before it stands */
    conn_flush(client.conn);
    WAIT_FOR((fd = net_accept(listener, &from)) >= 0);
    server.conn = conn_create(loop, fd, true, NULL, &server_calls);
    WAIT_FOR(server.messages == 1);
    ck_assert(client.connected);
    ck_assert(net_same_host(conn_peer(server.conn), &addr));
    conn_flush(server.conn);
    WAIT_FOR(client.messages == 1);
    conn_hang_up(server.conn);
    WAIT_FOR(client.closed && server.closed);
    ck_assert_str_eq(client.why, "");
    ck_assert_str_eq(server.why, "");
    close(listener);
}

TEST(what_the_server_said_before_it_closed_is_heard)
{
    struct side s = { .peer = -1 };
    struct conn_calls calls = calls_of(&s);
    const struct linger reset = { .l_onoff = 1 };
    struct net_addr addr, from;
    uint8_t frame[256];
    struct msg m = hello();
    struct err e;
    int listener = listen_anywhere(&addr);

    s.conn = conn_connect(loop, &addr, NULL, on_connected, &calls, &e);
    ck_assert_ptr_nonnull(s.conn);
    WAIT_FOR(s.connected);
    WAIT_FOR((s.peer = net_accept(listener, &from)) >= 0);
    send_bytes_of(&s, frame, make_frame(frame, sizeof(frame)));
    setsockopt(s.peer, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(s.peer);
    conn_send(s.conn, &m);
    conn_flush(s.conn);
    WAIT_FOR(s.closed);
    ck_assert_uint_eq(s.messages, 1);
    close(listener);
}

TEST(a_refused_connect_is_told_by_closed)
{
    struct side s = { .peer = -1 };
    struct conn_calls calls = calls_of(&s);
    struct net_addr addr;
    struct err e;

    close(listen_anywhere(&addr));
    s.conn = conn_connect(loop, &addr, NULL, on_connected, &calls, &e);
    ck_assert_ptr_nonnull(s.conn);
    WAIT_FOR(s.closed);
    ck_assert(!s.connected);
    ck_assert_str_eq(s.why, strerror(ECONNREFUSED));
}
