/* SPDX-License-Identifier: MIT */
/* Whom the store's thread lets in, and what it does when there is no room. */
#include "rendezvous/store_server/store_server.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/store_clients.h"

START_TEST(a_client_that_says_nothing_is_cut_off_in_time)
{
    int silent, half, good;
    uint64_t began = clock_ms();

    stop_server();
    start_server((struct store_server_config){ .hello_ms = 60 });
    silent = dial_store(0);
    half = dial_store(0);
    SAY(half, "\x00\xce");
    good = connect_client();
    expect_closed(silent);
    expect_closed(half);
    ck_assert_uint_ge(clock_ms() - began, 60);
    expect_line("has not identified itself in time");
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

    stop_server();
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

    stop_server();
    start_server((struct store_server_config){ .conns_max = 2 });
    a = connect_client();
    b = connect_client();
    c = dial_store(0);
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

    stop_server();
    start_server((struct store_server_config){ .conns_max = 2 });
    silent = dial_store(0);
    EXPECT_STAT(connections, 1);
    a = connect_client();
    b = connect_client();
    expect_closed(silent);
    close(a);
    close(b);
}
END_TEST

/* The server must neither spin nor give up: clients come in once there is room. */
START_TEST(without_descriptors_the_listener_waits)
{
    struct rlimit limit, low;
    int fd[4], used = dial_store(0);
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

int main(void)
{
    Suite *s = suite_create("store_server_doors");
    TCase *t = tcase_create("doors");

    tcase_add_checked_fixture(t, start_plain_server, stop_server);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_client_that_says_nothing_is_cut_off_in_time);
    tcase_add_test(t, only_this_machine_and_allowed_hosts_may_come);
    tcase_add_test(t, past_the_most_connections_newcomers_are_refused);
    tcase_add_test(t, the_silent_make_room_for_newcomers);
    tcase_add_test(t, without_descriptors_the_listener_waits);
    suite_add_tcase(s, t);
    return check_main(s);
}
