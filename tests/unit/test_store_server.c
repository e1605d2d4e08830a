/* SPDX-License-Identifier: MIT */
/* The store's thread on real sockets of 127.0.0.1 and 127.0.0.2. */
#include "rendezvous/store_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/xalloc.h"
#include "tests/helpers/check_main.h"

#define PATIENCE_MS 10000
#define N(byte) byte "\0\0\0\0\0\0\0"
#define HELLO "\x00\xce\xf7\x85\x3c"
#define PING                                                                           \
    "\x0d"                                                                             \
    "1234"
#define SET_K "\x01" N("\x01") "k" N("\x01") "v"
#define GET_K "\x03" N("\x01") "k"
#define WAIT_K "\x06" N("\x01") N("\x01") "k"
#define SAY(fd, literal) say(fd, literal, sizeof(literal) - 1)
#define HEAR(fd, literal) hear(fd, literal, sizeof(literal) - 1)

static struct store_server *server;

static struct {
    pthread_mutex_t lock;
    unsigned lines;
    char last[512];
} seen = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void note_line(void *arg, enum log_level level, const char *line)
{
    (void)arg;
    (void)level;
    pthread_mutex_lock(&seen.lock);
    seen.lines++;
    snprintf(seen.last, sizeof(seen.last), "%s", line);
    pthread_mutex_unlock(&seen.lock);
}

static unsigned lines_seen(void)
{
    unsigned lines;

    pthread_mutex_lock(&seen.lock);
    lines = seen.lines;
    pthread_mutex_unlock(&seen.lock);
    return lines;
}

static void expect_line(const char *part)
{
    uint64_t until = clock_ms() + PATIENCE_MS;
    bool found = false;

    while (!found && clock_ms() < until) {
        pthread_mutex_lock(&seen.lock);
        found = strstr(seen.last, part) != NULL;
        pthread_mutex_unlock(&seen.lock);
        if (!found)
            poll(NULL, 0, 1);
    }
    ck_assert_msg(found, "no line with \"%s\": %s", part, seen.last);
}

static struct net_addr loopback(void)
{
    struct net_addr addr;
    struct err e;
    size_t count;

    ck_assert_int_eq(net_resolve("127.0.0.1", 0, &addr, 1, &count, &e), 0);
    return addr;
}

static void start(struct store_server_config config)
{
    static struct net_addr addr;
    struct err e;

    addr = loopback();
    config.listen = &addr;
    log_set_sink(note_line, NULL);
    server = store_server_create(&config, &e);
    ck_assert_msg(server != NULL, "%s", e.text);
}

static void start_plain(void)
{
    start((struct store_server_config){ .open = false });
}

static void stop(void)
{
    store_server_destroy(server);
    server = NULL;
}

/* A blocking socket with a deadline. */
static int dial(int receive_buffer)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons(store_server_port(server)),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    ck_assert_int_ge(fd, 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (receive_buffer)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    ck_assert_int_eq(connect(fd, (struct sockaddr *)(void *)&to, sizeof(to)), 0);
    return fd;
}

static void say(int fd, const void *data, size_t size)
{
    ck_assert_int_eq(send(fd, data, size, MSG_NOSIGNAL), (ssize_t)size);
}

static void hear(int fd, const void *data, size_t size)
{
    uint8_t got[64];
    ssize_t n = recv(fd, got, size, MSG_WAITALL);

    ck_assert_int_eq(n, (ssize_t)size);
    ck_assert_mem_eq(got, data, size);
}

static int connect_client(void)
{
    int fd = dial(0);

    SAY(fd, HELLO PING);
    HEAR(fd, "1234");
    return fd;
}

static void expect_silence(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    ck_assert_int_eq(poll(&p, 1, 20), 0);
}

static void expect_closed(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, 0);

    ck_assert_msg(n == 0 || (n < 0 && errno == ECONNRESET), "still open: %zd", n);
    close(fd);
}

/* Wait until a number of the statistics is as it should be. */
#define EXPECT_STAT(field, value)                                                      \
    do {                                                                               \
        uint64_t until_ = clock_ms() + PATIENCE_MS;                                    \
        while (store_server_stats(server).field != (value) && clock_ms() < until_)     \
            poll(NULL, 0, 1);                                                          \
        ck_assert_uint_eq(store_server_stats(server).field, (value));                  \
    } while (0)

START_TEST(what_one_client_sets_another_gets)
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
END_TEST

START_TEST(a_wait_is_answered_when_the_key_comes)
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
END_TEST

START_TEST(a_client_that_goes_waits_no_more)
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
END_TEST

START_TEST(what_a_client_sets_just_before_it_goes_is_there)
{
    int a = connect_client(), b = connect_client();

    SAY(b, WAIT_K);
    SAY(a, SET_K);
    close(a);
    HEAR(b, "\x00");
    close(b);
}
END_TEST

START_TEST(requests_can_come_byte_by_byte_and_all_at_once)
{
    static const char all[] = HELLO PING SET_K GET_K "\x07";
    int a = dial(0), b = dial(0);

    for (size_t i = 0; i < sizeof(all) - 1; i++) {
        say(a, all + i, 1);
        poll(NULL, 0, 1);
    }
    HEAR(a, "1234" N("\x01") "v" N("\x01"));
    SAY(b, HELLO PING SET_K GET_K "\x07");
    HEAR(b, "1234" N("\x01") "v" N("\x01"));
    close(a);
    close(b);
}
END_TEST

START_TEST(a_large_value_goes_both_ways)
{
    static const size_t size = 8u << 20;
    uint8_t *value = xmalloc(size), *got = xmalloc(size + 8);
    uint64_t length = size;
    int a = connect_client(), b = connect_client();

    for (size_t i = 0; i < size; i++)
        value[i] = (uint8_t)(i * 31 + (i >> 12));
    SAY(b, WAIT_K);
    SAY(a, "\x01" N("\x01") "k");
    say(a, &length, 8);
    say(a, value, size);
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
END_TEST

START_TEST(sockets_can_be_handed_over_with_their_first_bytes_unread)
{
    struct store_server_config config = { .listen = NULL };
    struct net_addr addr = loopback(), peer;
    struct sockaddr_in to;
    struct err e;
    int listener, fd, peer_fd;

    stop();
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
END_TEST

START_TEST(whoever_is_not_a_client_is_cut_off_with_one_line)
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
    int fd = dial(0);

    say(fd, cases[_i].says, cases[_i].size);
    expect_closed(fd);
    expect_line(cases[_i].line);
    expect_line("peer=127.0.0.1:");
    for (int i = 0; i < 50; i++) {
        fd = dial(0);
        say(fd, cases[_i].says, cases[_i].size);
        expect_closed(fd);
    }
    EXPECT_STAT(refused, 51);
    EXPECT_STAT(connections, 0);
    /* at most one a second */
    ck_assert_uint_le(lines_seen(), 3 + (clock_ms() - begun_ms) / 1000);
}
END_TEST

START_TEST(a_client_that_says_nothing_is_cut_off_in_time)
{
    int silent, half, good;
    uint64_t began = clock_ms();

    stop();
    start((struct store_server_config){ .hello_ms = 60 });
    silent = dial(0);
    half = dial(0);
    SAY(half, "\x00\xce");
    good = connect_client();
    expect_closed(silent);
    expect_closed(half);
    ck_assert_uint_ge(clock_ms() - began, 60);
    expect_line("has not said in time what it is");
    expect_silence(good);
    SAY(good, PING);
    HEAR(good, "1234");
    close(good);
}
END_TEST

static struct net_addr give_address(int fd, const char *interface, uint32_t ip)
{
    struct ifreq more = { .ifr_addr.sa_family = AF_INET };
    struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(ip) };
    struct net_addr addr = { .len = sizeof(sin) };

    snprintf(more.ifr_name, sizeof(more.ifr_name), "%s", interface);
    memcpy(&more.ifr_addr, &sin, sizeof(sin));
    ck_assert_int_eq(ioctl(fd, SIOCSIFADDR, &more), 0);
    memcpy(&addr.sa, &sin, sizeof(sin));
    return addr;
}

/*
 * A network of our own, whose loopback interface also has two addresses that are not
 * loopback addresses. False if we may not make one.
 */
static bool outer_addresses(struct net_addr *here, struct net_addr *there)
{
    struct ifreq up = { .ifr_name = "lo", .ifr_flags = IFF_UP };
    int fd;

    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
        return false;
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    ck_assert_int_eq(ioctl(fd, SIOCSIFFLAGS, &up), 0);
    *here = give_address(fd, "lo:1", 0x0a090807);
    *there = give_address(fd, "lo:2", 0x0a090809);
    close(fd);
    return true;
}

static int connect_from(const struct net_addr *from, const struct net_addr *to)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    ck_assert_int_eq(
        bind(fd, (const struct sockaddr *)(const void *)&from->sa, from->len), 0);
    ck_assert_int_eq(
        connect(fd, (const struct sockaddr *)(const void *)&to->sa, to->len), 0);
    return fd;
}

START_TEST(only_this_machine_and_allowed_hosts_may_come)
{
    struct net_addr here, there, own;
    struct err e;
    struct store_server_config config = { .listen = &here };
    int fd;

    stop();
    if (!outer_addresses(&here, &there))
        return;
    own = here;
    server = store_server_create(&config, &e);
    ck_assert_msg(server != NULL, "%s", e.text);
    net_set_port(&here, store_server_port(server));
    fd = connect_from(&there, &here);
    expect_closed(fd);
    expect_line("not from a member of the job");
    fd = connect_from(&own, &here); /* rank 0's own node, by its address */
    SAY(fd, HELLO PING);
    HEAR(fd, "1234");
    close(fd);
    store_server_allow(server, &there);
    fd = connect_from(&there, &here);
    SAY(fd, HELLO PING);
    HEAR(fd, "1234");
    close(fd);
}
END_TEST

START_TEST(past_the_most_connections_newcomers_are_refused)
{
    int a, b, c;

    stop();
    start((struct store_server_config){ .conns_max = 2 });
    a = connect_client();
    b = connect_client();
    c = dial(0);
    expect_closed(c);
    expect_line("too many connections");
    SAY(a, PING);
    HEAR(a, "1234");
    close(b);
    EXPECT_STAT(connections, 1);
    b = connect_client();
    close(a);
    close(b);
}
END_TEST

START_TEST(the_silent_make_room_for_newcomers)
{
    int silent, a, b;

    stop();
    start((struct store_server_config){ .conns_max = 2 });
    silent = dial(0);
    EXPECT_STAT(connections, 1);
    a = connect_client();
    b = connect_client();
    expect_closed(silent);
    close(a);
    close(b);
}
END_TEST

START_TEST(a_client_that_takes_no_answers_is_cut_off_and_the_others_go_on)
{
    static const char value[1000];
    const size_t size = sizeof(GET_K) - 1;
    struct pollfd writable = { .events = POLLOUT };
    uint64_t length = sizeof(value);
    int greedy, other;
    ssize_t n = 0;

    stop();
    start((struct store_server_config){ .out_max = 100000 });
    greedy = writable.fd = dial(4096);
    other = connect_client();
    SAY(greedy, HELLO "\x01" N("\x01") "k");
    say(greedy, &length, 8);
    say(greedy, value, sizeof(value));
    /* without ever reading: a few hundred fill the socket, the rest the queue */
    for (size_t sent = 0; n >= 0 && sent < 100000 * size; sent += (size_t)n) {
        n = send(greedy, &GET_K[sent % size], size - sent % size,
                 MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) /* the server has not come to read them yet */
            n = poll(&writable, 1, PATIENCE_MS) > 0 ? 0 : -1;
    }
    expect_line("answers not taken");
    EXPECT_STAT(connections, 1);
    SAY(other, PING);
    HEAR(other, "1234");
    close(greedy);
    close(other);
}
END_TEST

START_TEST(a_slow_reader_gets_everything_in_order)
{
    enum { COUNT = 3000 };
    uint64_t length = 2000;
    static uint8_t value[2000], got[2008];
    int slow = dial(4096);

    SAY(slow, HELLO "\x01" N("\x01") "k");
    say(slow, &length, 8);
    memset(value, 'x', sizeof(value));
    say(slow, value, sizeof(value));
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
END_TEST

/* The server must neither spin nor give up: clients come in once there is room. */
START_TEST(without_descriptors_the_listener_waits)
{
    struct rlimit limit, low;
    int fd[4], used = dial(0);
    struct timespec cpu[2];

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < 4; i++)
        fd[i] = socket(AF_INET, SOCK_STREAM, 0);
    low = limit;
    low.rlim_cur = (rlim_t)fd[3] + 1;
    EXPECT_STAT(accepted, 1);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    for (int i = 0; i < 4; i++) {
        struct sockaddr_in to = { .sin_family = AF_INET,
                                  .sin_port = htons(store_server_port(server)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

        ck_assert_int_eq(connect(fd[i], (struct sockaddr *)(void *)&to, sizeof(to)), 0);
        SAY(fd[i], HELLO PING);
    }
    expect_line("cannot accept connections for now");
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu[0]);
    expect_silence(fd[3]);
    SAY(used, HELLO PING);
    HEAR(used, "1234");
    poll(NULL, 0, 150);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu[1]);
    ck_assert_int_lt((cpu[1].tv_sec - cpu[0].tv_sec) * 1000 +
                         (cpu[1].tv_nsec - cpu[0].tv_nsec) / 1000000,
                     100);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < 4; i++) {
        struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };

        setsockopt(fd[i], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        HEAR(fd[i], "1234");
        close(fd[i]);
    }
    ck_assert_uint_le(lines_seen(), 3);
    close(used);
}
END_TEST

START_TEST(a_port_in_use_is_told)
{
    struct net_addr addr = loopback();
    struct store_server_config config = { .listen = &addr };
    struct err e = { "" };

    net_set_port(&addr, store_server_port(server));
    ck_assert_ptr_null(store_server_create(&config, &e));
    ck_assert_msg(strstr(e.text, "in use") != NULL, "%s", e.text);
}
END_TEST

START_TEST(destroy_closes_everything_in_any_state)
{
    int waiting = connect_client(), half = dial(0), partial = connect_client(),
        stuck = dial(4096);
    uint64_t length = 1 << 20;
    uint8_t *value = xcalloc(1, 1 << 20);

    SAY(waiting, WAIT_K);
    SAY(half, "\x00\xce");
    SAY(partial, "\x01" N("\x05") "abc");
    SAY(stuck, HELLO "\x01" N("\x01") "v");
    say(stuck, &length, 8);
    say(stuck, value, 1 << 20);
    for (int i = 0; i < 20; i++)
        SAY(stuck, "\x03" N("\x01") "v");
    EXPECT_STAT(waits, 1);
    EXPECT_STAT(keys, 1);
    free(value);
    stop();
    expect_closed(waiting);
    expect_closed(half);
    expect_closed(partial);
    close(stuck);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("store_server");
    TCase *t = tcase_create("sockets");

    tcase_add_checked_fixture(t, start_plain, stop);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, what_one_client_sets_another_gets);
    tcase_add_test(t, a_wait_is_answered_when_the_key_comes);
    tcase_add_test(t, a_client_that_goes_waits_no_more);
    tcase_add_test(t, what_a_client_sets_just_before_it_goes_is_there);
    tcase_add_test(t, requests_can_come_byte_by_byte_and_all_at_once);
    tcase_add_test(t, a_large_value_goes_both_ways);
    tcase_add_test(t, sockets_can_be_handed_over_with_their_first_bytes_unread);
    tcase_add_loop_test(t, whoever_is_not_a_client_is_cut_off_with_one_line, 0, 6);
    tcase_add_test(t, a_client_that_says_nothing_is_cut_off_in_time);
    tcase_add_test(t, only_this_machine_and_allowed_hosts_may_come);
    tcase_add_test(t, past_the_most_connections_newcomers_are_refused);
    tcase_add_test(t, the_silent_make_room_for_newcomers);
    tcase_add_test(t, a_client_that_takes_no_answers_is_cut_off_and_the_others_go_on);
    tcase_add_test(t, a_slow_reader_gets_everything_in_order);
    tcase_add_test(t, without_descriptors_the_listener_waits);
    tcase_add_test(t, a_port_in_use_is_told);
    tcase_add_test(t, destroy_closes_everything_in_any_state);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return check_main(suite());
}
