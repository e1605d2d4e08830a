/* SPDX-License-Identifier: MIT */
/* takes: 11 s */
/* Two connections with a session each. */
#include "rendezvous/wire/net/conn.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/wire/protocol/frame.h"
#include "tests/worlds/check_main.h"

#define PATIENCE_MS 60000

struct end {
    struct conn *conn;
    unsigned messages, closed, secured, connected, asked;
    bool may_shake, refuse;
    char why[512];
};

static struct loop *loop;
static struct tls_door *door;
static struct tls_psk key;
static struct end client, server;

static bool find_key(void *arg, const char *identity, uint8_t secret[TLS_SECRET_BYTES])
{
    memcpy(secret, key.secret, TLS_SECRET_BYTES);
    return strcmp(identity, key.identity) == 0;
}

static int on_message(void *arg, struct conn *c, const struct msg *m, struct err *e)
{
    struct end *end = arg;

    end->messages++;
    return 0;
}

static uint32_t on_body_max(void *arg, struct conn *c)
{
    return 512;
}

static void on_closed(void *arg, struct conn *c, const char *why)
{
    struct end *end = arg;

    end->closed++;
    end->conn = NULL;
    snprintf(end->why, sizeof(end->why), "%s", why);
}

static bool on_may_shake(void *arg, struct conn *c)
{
    struct end *end = arg;

    ck_assert_str_eq(conn_identity(c), "");
    end->asked++;
    return end->may_shake;
}

static int on_secured(void *arg, struct conn *c, struct err *e)
{
    struct end *end = arg;

    end->secured++;
    if (end == &server)
        ck_assert_str_eq(conn_identity(c), key.identity);
    return end->refuse ? err_set(e, "not you") : 0;
}

static void on_connected(void *arg, struct conn *c)
{
    struct end *end = arg;

    end->connected++;
}

static struct conn_calls calls_of(struct end *end)
{
    return (struct conn_calls){ .message = on_message,
                                .may_shake = on_may_shake,
                                .secured = on_secured,
                                .body_max = on_body_max,
                                .closed = on_closed,
                                .arg = end };
}

static void set_up(void)
{
    struct err e;

    memset(&client, 0, sizeof(client));
    memset(&server, 0, sizeof(server));
    client.may_shake = server.may_shake = true;
    strcpy(key.identity, "crun1:a:agent:0");
    memset(key.secret, 7, sizeof(key.secret));
    loop = loop_create();
    door = tls_door_create(find_key, NULL, &e);
    ck_assert_ptr_nonnull(door);
}

static void tear_down(void)
{
    conn_destroy(client.conn);
    conn_destroy(server.conn);
    loop_turn(loop, 0);
    loop_destroy(loop);
    tls_door_destroy(door);
}

static void serve(int fd)
{
    struct conn_calls calls = calls_of(&server);

    server.conn = conn_create(loop, fd, true, tls_accept(door, fd), &calls);
}

static int open_server(void)
{
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    serve(pair[1]);
    return pair[0];
}

#define TURN_UNTIL(condition)                                                          \
    do {                                                                               \
        uint64_t until_ms = clock_ms() + PATIENCE_MS;                                  \
                                                                                       \
        while (!(condition) && clock_ms() < until_ms)                                  \
            loop_turn(loop, 20);                                                       \
        ck_assert_msg(condition, #condition);                                          \
    } while (0)

static int listen_anywhere(struct net_addr *addr)
{
    struct err e;
    size_t count;
    int listener;

    ck_assert_int_eq(net_resolve("127.0.0.1", 0, addr, 1, &count, &e), 0);
    listener = net_listen(addr, 8, &e);
    ck_assert_int_ge(listener, 0);
    ck_assert_int_eq(net_local_addr(listener, addr), 0);
    return listener;
}

static void accept_server(int listener)
{
    struct net_addr addr;
    int fd = -1;

    while (fd < 0)
        fd = net_accept(listener, &addr);
    serve(fd);
    close(listener);
}

static void open_both(const struct tls_psk *psk)
{
    struct conn_calls calls = calls_of(&client);
    struct net_addr addr;
    struct err e;
    int listener = listen_anywhere(&addr);

    client.conn = conn_connect(loop, &addr, psk, on_connected, &calls, &e);
    ck_assert_ptr_nonnull(client.conn);
    TURN_UNTIL(client.connected);
    ck_assert_uint_eq(client.secured, 0);
    accept_server(listener);
}

/* The other end of the server's, over TCP. */
static int connect_bare(void)
{
    struct net_addr addr;
    struct err e;
    int listener = listen_anywhere(&addr), fd = net_connect(&addr, &e);

    ck_assert_int_ge(fd, 0);
    accept_server(listener);
    return fd;
}

static void send_hello(struct conn *c)
{
    struct msg m = { .type = MSG_HELLO };

    m.hello.version_min = m.hello.version_max = PROTO_VERSION_MAX;
    m.hello.role = PEER_AGENT;
    strcpy(m.hello.software, "test");
    conn_send(c, &m);
}

/* -- messages --------------------------------------------------------------------- */

FIXTURE(set_up, tear_down);

TEST(messages_pass_both_ways_over_tcp)
{
    open_both(&key);
    send_hello(client.conn);
    conn_flush(client.conn);
    TURN_UNTIL(server.messages == 1);
    ck_assert_uint_eq(client.secured, 1);
    ck_assert_uint_eq(server.secured, 1);
    ck_assert_str_eq(conn_identity(server.conn), key.identity);
    send_hello(server.conn);
    conn_flush(server.conn);
    TURN_UNTIL(client.messages == 1);
    conn_hang_up(client.conn);
    TURN_UNTIL(server.closed);
    ck_assert_str_eq(server.why, "");
}

/* One record holds more than is read at once: the rest makes no socket readable. */
TEST(many_messages_in_one_record_all_arrive)
{
    unsigned sent = 0;

    open_both(&key);
    TURN_UNTIL(client.secured && server.secured);
    for (; conn_waiting(server.conn) < 60000; sent++)
        send_hello(server.conn);
    conn_flush(server.conn);
    TURN_UNTIL(client.messages == sent);
}

TEST(what_was_queued_before_the_handshake_waits_for_it)
{
    open_both(&key);
    send_hello(server.conn);
    conn_flush(server.conn);
    ck_assert_uint_gt(conn_waiting(server.conn), 0);
    TURN_UNTIL(client.messages == 1);
}

/* -- handshakes ------------------------------------------------------------------- */

TEST(a_wrong_key_closes_both_ends)
{
    struct tls_psk wrong = key;

    wrong.secret[0] ^= 1;
    open_both(&wrong);
    send_hello(client.conn);
    conn_flush(client.conn);
    TURN_UNTIL(client.closed && server.closed);
    ck_assert_str_eq(client.why, "the keys differ");
    ck_assert_str_eq(server.why, "the keys differ");
    ck_assert_uint_eq(server.secured + client.secured + server.messages, 0);
}

TEST(the_owner_may_refuse_a_key)
{
    server.refuse = true;
    open_both(&key);
    TURN_UNTIL(server.closed);
    ck_assert_str_eq(server.why, "not you");
    TURN_UNTIL(client.closed);
}

TEST(each_step_waits_for_the_owner)
{
    server.may_shake = false;
    open_both(&key);
    TURN_UNTIL(server.asked == 1);
    for (int i = 0; i < 10; i++)
        loop_turn(loop, 1);
    ck_assert_uint_eq(server.asked, 1);
    ck_assert_uint_eq(client.secured, 0);
    conn_resume(server.conn);
    ck_assert_uint_eq(server.asked, 2);
    server.may_shake = true;
    conn_resume(server.conn);
    TURN_UNTIL(client.secured);
    TURN_UNTIL(server.secured);
    ck_assert_uint_eq(server.asked, 4);
}

/* Its answer does not fit into the socket, and the peer sends more: it must neither ask
 * again and again, nor forget to send. */
TEST(a_handshake_that_waits_to_write_neither_spins_nor_hangs)
{
    char junk[4096] = { 0 };
    int fd, pair[2], size = 1;
    struct tls_session *s;
    struct err e;
    unsigned asked;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    fd = pair[0];
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    while (send(pair[1], junk, sizeof(junk), MSG_DONTWAIT) > 0)
        ;
    while (send(pair[1], junk, 1, MSG_DONTWAIT) > 0)
        ;
    serve(pair[1]);
    s = tls_connect(fd, &key, &e);
    (void)!tls_handshake(s); /* only its hello matters */
    TURN_UNTIL(server.asked == 1);
    ck_assert_int_eq(send(fd, "more", 4, 0), 4);
    for (int i = 0; i < 10; i++)
        loop_turn(loop, 1);
    asked = server.asked;
    ck_assert_uint_le(asked, 2);
    while (recv(fd, junk, 1, MSG_DONTWAIT) < 1 || junk[0] != 0x16)
        loop_turn(loop, 0);
    tls_destroy(s);
    close(fd);
}

/* A part of a hello stays in the socket, and must not keep the loop busy. */
TEST(a_part_of_a_hello_is_waited_for)
{
    struct tls_session *s;
    int fd = connect_bare();
    uint8_t hello[4096];
    int pair[2];
    ssize_t size;
    struct err e;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    s = tls_connect(pair[0], &key, &e);
    ck_assert_int_eq(tls_handshake(s), 0);
    size = recv(pair[1], hello, sizeof(hello), 0);
    ck_assert_int_gt(size, 200);
    for (ssize_t at = 0; at < 200; at += 100) {
        ck_assert_int_eq(send(fd, hello + at, 100, 0), 100);
        for (int i = 0; i < 10; i++)
            loop_turn(loop, 1);
        ck_assert_uint_eq(server.asked, 1);
    }
    ck_assert_int_eq(send(fd, hello + 200, (size_t)size - 200, 0), size - 200);
    TURN_UNTIL(server.asked == 2);
    ck_assert_uint_eq(server.closed, 0);
    close(fd);
    TURN_UNTIL(server.closed);
    tls_destroy(s);
    close(pair[0]);
    close(pair[1]);
}

TEST(a_part_of_a_hello_before_the_end_is_noticed)
{
    int fd = connect_bare();

    ck_assert_int_eq(send(fd, "\x16\x03\x01\x01\x00\x01\x00\x00\xfc", 9, 0), 9);
    TURN_UNTIL(server.asked == 1);
    close(fd);
    TURN_UNTIL(server.closed);
    ck_assert_str_eq(server.why, "it closed the connection");
}

TEST(the_owners_deadline_ends_a_handshake)
{
    int fd = open_server();

    conn_set_deadline(server.conn, clock_ms() + 50, "it has not joined in time");
    ck_assert_int_eq(send(fd, "\x16\x03\x01", 3, 0), 3);
    TURN_UNTIL(server.closed);
    ck_assert_str_eq(server.why, "it has not joined in time");
    close(fd);
}

TEST(a_cut_session_is_not_good_order)
{
    open_both(&key);
    TURN_UNTIL(client.secured && server.secured);
    conn_destroy(server.conn);
    server.conn = NULL;
    TURN_UNTIL(client.closed);
    ck_assert_str_eq(client.why, "its connection was cut");
}

/* The length in its header was changed on the way: all that follows would be hidden. */
TEST(a_record_that_never_ends_closes_the_connection)
{
    static const uint8_t header[] = { 0x17, 0x03, 0x03, 0x40, 0x00, 0x00 };

    int fd = open_server();
    struct err e;
    struct tls_session *s = tls_connect(fd, &key, &e);

    TURN_UNTIL(tls_handshake(s) == 1);
    ck_assert_int_eq(tls_write(s, FRAME_PREFACE, FRAME_PREFACE_SIZE),
                     FRAME_PREFACE_SIZE);
    TURN_UNTIL(server.secured);
    ck_assert_int_eq(send(fd, header, sizeof(header), MSG_NOSIGNAL), sizeof(header));
    TURN_UNTIL(server.closed);
    ck_assert_str_eq(server.why, "the rest of a frame did not come in time");
    tls_destroy(s);
    close(fd);
}
