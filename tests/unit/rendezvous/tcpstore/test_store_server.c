/* SPDX-License-Identifier: MIT */
/* The store's thread on real sockets of 127.0.0.1 and 127.0.0.2. */
#include "rendezvous/tcpstore/store_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/store_clients.h"

FIXTURE(start_plain_server, stop_server);

TEST(what_one_client_sets_another_gets)
{
    int a = connect_client(), b = connect_client();

    SAY(a, SET_K PING);
    HEAR(a, "1234");
    SAY(b, GET_K);
    HEAR(b, N("\x01") "v");
    EXPECT_STAT(keys, 1);
    EXPECT_STAT(connections, 2);
    EXPECT_STAT(accepted, 2);
    close(a);
    EXPECT_STAT(connections, 1);
    SAY(b, GET_K);
    HEAR(b, N("\x01") "v");
    close(b);
}

TEST(a_wait_is_answered_when_the_key_comes)
{
    int a = connect_client(), b = connect_client(), c = connect_client();

    SAY(a, WAIT_K);
    SAY(b, WAIT_K);
    EXPECT_STAT(waits, 2);
    expect_silence(a);
    SAY(c, SET_K);
    HEAR(a, "\x00");
    HEAR(b, "\x00");
    SAY(a, GET_K);
    HEAR(a, N("\x01") "v");
    close(a);
    close(b);
    close(c);
}

TEST(a_client_that_goes_waits_no_more)
{
    int a = connect_client(), b = connect_client();

    SAY(a, WAIT_K);
    EXPECT_STAT(waits, 1);
    close(a);
    EXPECT_STAT(waits, 0);
    SAY(b, SET_K GET_K);
    HEAR(b, N("\x01") "v");
    close(b);
}

TEST(what_a_client_sets_just_before_it_goes_is_there)
{
    int a = connect_client(), b = connect_client();

    SAY(b, WAIT_K);
    SAY(a, SET_K);
    close(a);
    HEAR(b, "\x00");
    close(b);
}

TEST(requests_can_come_byte_by_byte_and_all_at_once)
{
    static const char all[] = HELLO PING SET_K GET_K "\x07";
    int a = dial_store(0), b = dial_store(0);

    for (size_t i = 0; i < sizeof(all) - 1; i++) {
        say_bytes(a, all + i, 1);
        poll(NULL, 0, 1);
    }
    HEAR(a, "1234" N("\x01") "v" N("\x01"));
    SAY(b, HELLO PING SET_K GET_K "\x07");
    HEAR(b, "1234" N("\x01") "v" N("\x01"));
    close(a);
    close(b);
}

TEST(a_large_value_goes_both_ways)
{
    static const size_t size = 8u << 20;
    uint8_t *value = xmalloc(size), *got = xmalloc(size + 8);
    uint64_t length = size;
    int a = connect_client(), b = connect_client();

    for (size_t i = 0; i < size; i++)
        value[i] = (uint8_t)(i * 31 + (i >> 12));
    SAY(b, WAIT_K);
    SAY(a, "\x01" N("\x01") "k");
    say_bytes(a, &length, 8);
    say_bytes(a, value, size);
    HEAR(b, "\x00");
    for (int i = 0; i < 3; i++) {
        SAY(b, GET_K GET_K);
        for (int j = 0; j < 2; j++) {
            ck_assert_int_eq(recv(b, got, size + 8, MSG_WAITALL), (ssize_t)size + 8);
            ck_assert_mem_eq(got, &length, 8);
            ck_assert_int_eq(memcmp(got + 8, value, size), 0);
        }
    }
    free(value);
    free(got);
    close(a);
    close(b);
}

TEST(sockets_can_be_handed_over_with_their_first_bytes_unread)
{
    struct store_server_config config = { .listen = NULL };
    struct net_addr addr = loopback(), peer;
    struct sockaddr_in to;
    struct err e;
    int listener, fd, peer_fd;

    stop_server();
    server = store_server_create(&config, &e);
    ck_assert_ptr_nonnull(server);
    ck_assert_uint_eq(store_server_port(server), 0);
    listener = net_listen(&addr, 4, &e);
    ck_assert_int_ge(listener, 0);
    ck_assert_int_eq(net_local_addr(listener, &addr), 0);
    memcpy(&to, &addr.sa, sizeof(to));
    fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)(void *)&to, sizeof(to)), 0);
    SAY(fd, HELLO PING);
    fcntl(listener, F_SETFL, 0);
    peer_fd = net_accept(listener, &peer);
    ck_assert_int_ge(peer_fd, 0);
    store_server_adopt(server, peer_fd);
    HEAR(fd, "1234");
    close(fd);
    close(listener);
}

TEST_LOOP(what_is_not_a_client_is_cut_off_with_one_line, 0, 6)
{
    static const struct {
        const char *says, *line;
        size_t size;
    } cases[] = {
#define CASE(literal, line) { literal, line, sizeof(literal) - 1 }
        CASE("GET / HTTP/1.1\r\n\r\n", "not a client of PyTorch's store"),
        CASE("\x16\x03\x01\x02\x00\x01", "not a client of PyTorch's store"),
        CASE("\x03" N("\x05") "init/" N("\x01"),
             "client of PyTorch 2.1 or older; crun needs 2.2 or newer"),
        CASE("\x00\x01\x02\x03\x04", "wrong magic number"),
        CASE(HELLO "\x7f", "unknown operation 127"),
        CASE(HELLO "\x01"
                   "\xff\xff\xff\xff\xff\xff\xff\xff",
             "SET: a key of"),
#undef CASE
    };
    uint64_t begun_ms = clock_ms();
    int fd = dial_store(0);

    say_bytes(fd, cases[_i].says, cases[_i].size);
    expect_closed(fd);
    expect_line(cases[_i].line);
    expect_line("127.0.0.1:");
    for (int i = 0; i < 50; i++) {
        fd = dial_store(0);
        say_bytes(fd, cases[_i].says, cases[_i].size);
        expect_closed(fd);
    }
    EXPECT_STAT(refused, 51);
    EXPECT_STAT(connections, 0);
    /* at most one a second */
    ck_assert_uint_le(lines_seen(), 3 + (clock_ms() - begun_ms) / 1000);
}

TEST(a_client_that_takes_no_answers_is_cut_off_and_the_others_go_on)
{
    enum { COUNT = 1000 };
    static const char value[1000];
    static char requests[COUNT * (sizeof(GET_K) - 1)];
    uint64_t length = sizeof(value);
    int greedy, other;

    stop_server();
    start_server((struct store_server_config){ .out_max = 100000 });
    greedy = dial_store(4096);
    other = connect_client();
    SAY(greedy, HELLO "\x01" N("\x01") "k");
    say_bytes(greedy, &length, 8);
    say_bytes(greedy, value, sizeof(value));
    /* In one piece: requests that come after the socket is full are not read. */
    for (size_t i = 0; i < sizeof(requests); i++)
        requests[i] = GET_K[i % (sizeof(GET_K) - 1)];
    say_bytes(greedy, requests, sizeof(requests));
    expect_line("answers not taken");
    EXPECT_STAT(connections, 1);
    SAY(other, PING);
    HEAR(other, "1234");
    close(greedy);
    close(other);
}

/* Ten clients read nothing. None has more unread answers than it may, all together do.
 */
TEST(all_unread_answers_have_a_limit_and_the_heaviest_client_goes_first)
{
    enum { CLIENTS = 10, COUNT = 200 };
    static char value[2000], requests[COUNT * (sizeof(GET_K) - 1)];
    uint64_t length = sizeof(value);
    int client[CLIENTS], other;

    stop_server();
    start_server((struct store_server_config){ .all_out_max = 24u << 20 });
    other = connect_client();
    SAY(other, "\x01" N("\x01") "k");
    say_bytes(other, &length, 8);
    say_bytes(other, value, sizeof(value));
    for (size_t i = 0; i < sizeof(requests); i++)
        requests[i] = GET_K[i % (sizeof(GET_K) - 1)];
    for (int i = 0; i < CLIENTS; i++) {
        client[i] = dial_store(4096);
        SAY(client[i], HELLO);
        for (int round = 0; round < 20; round++)
            (void)!send(client[i], requests, sizeof(requests),
                        MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    expect_line("it and others do not read");
    SAY(other, PING);
    HEAR(other, "1234");
    ck_assert_uint_gt(store_server_stats(server).connections, 2);
    for (int i = 0; i < CLIENTS; i++)
        close(client[i]);
    close(other);
}

TEST(a_slow_reader_gets_everything_in_order)
{
    enum { COUNT = 3000 };
    uint64_t length = 2000;
    static uint8_t value[2000], got[2008];
    int slow = dial_store(4096);

    SAY(slow, HELLO "\x01" N("\x01") "k");
    say_bytes(slow, &length, 8);
    memset(value, 'x', sizeof(value));
    say_bytes(slow, value, sizeof(value));
    for (int i = 0; i < COUNT; i++)
        SAY(slow, GET_K);
    SAY(slow, "\x07");
    for (int i = 0; i < COUNT; i++) {
        ck_assert_int_eq(recv(slow, got, sizeof(got), MSG_WAITALL), sizeof(got));
        ck_assert_mem_eq(got, &length, 8);
        ck_assert_mem_eq(got + 8, value, sizeof(value));
    }
    HEAR(slow, N("\x01"));
    close(slow);
}

TEST(a_port_in_use_is_told)
{
    struct net_addr addr = loopback();
    struct store_server_config config = { .listen = &addr };
    struct err e = { 0 };

    net_set_port(&addr, store_server_port(server));
    ck_assert_ptr_null(store_server_create(&config, &e));
    ck_assert_msg(strstr(e.text, "in use") != NULL, "%s", e.text);
}

TEST(a_socket_that_listens_already_serves_one_store_after_the_other)
{
    struct net_addr addr = loopback();
    struct store_server_config config = { .listener = 0 };
    struct err e;
    int client;

    stop_server();
    config.listener = net_listen(&addr, 16, &e);
    ck_assert_int_ge(config.listener, 0);
    ck_assert_int_eq(net_local_addr(config.listener, &addr), 0);
    for (int epoch = 0; epoch < 2; epoch++) {
        server = store_server_create(&config, &e);
        ck_assert_msg(server != NULL, "%s", e.text);
        ck_assert_uint_eq(store_server_port(server), net_port(&addr));
        client = connect_client();
        EXPECT_STAT(keys, 0);
        SAY(client, SET_K PING);
        HEAR(client, "1234");
        stop_server();
        expect_closed(client);
        ck_assert_int_lt(net_listen(&addr, 16, &e), 0);
    }
    close(config.listener);
}

TEST(destroy_closes_everything_in_any_state)
{
    int waiting = connect_client(), half = dial_store(0), partial = connect_client(),
        stuck = dial_store(4096);
    uint64_t length = 1 << 20;
    uint8_t *value = xcalloc(1, 1 << 20);

    SAY(waiting, WAIT_K);
    SAY(half, "\x00\xce");
    SAY(partial, "\x01" N("\x05") "abc");
    SAY(stuck, HELLO "\x01" N("\x01") "v");
    say_bytes(stuck, &length, 8);
    say_bytes(stuck, value, 1 << 20);
    for (int i = 0; i < 20; i++)
        SAY(stuck, "\x03" N("\x01") "v");
    EXPECT_STAT(waits, 1);
    EXPECT_STAT(keys, 1);
    free(value);
    stop_server();
    expect_closed(waiting);
    expect_closed(half);
    expect_closed(partial);
    close(stuck);
}
