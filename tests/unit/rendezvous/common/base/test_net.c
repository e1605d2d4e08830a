/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/port_owner.h"
#include "tests/worlds/check_main.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define LIST_MAX 8

static struct err e;

static struct net_addr numeric(const char *host, uint16_t port)
{
    struct net_addr list[LIST_MAX];
    size_t count = 0;

    ck_assert_msg(net_resolve(host, port, list, LIST_MAX, &count, &e) == 0, "%s",
                  e.text);
    ck_assert_uint_eq(count, 1);
    return list[0];
}

static const struct {
    const char *text;
    const char *shown; /* NULL: it is refused */
} parsed[] = {
    { "10.0.0.1:65535", "10.0.0.1:65535" },
    { "[::1]:80", "[::1]:80" },
    { "localhost:80", NULL },
    { "10.0.0.1", NULL },
    { "10.0.0.1:0", NULL },
    { "10.0.0.1:65536", NULL },
    { ":80", NULL },
    { "", NULL },
    { "[::1%no-such-interface]:80", NULL },
    { "1111111111111111111111111111111111111111111111111111111111111111111111111111:80",
      NULL },
};

TEST_EACH(only_numbers_are_parsed, parsed)
{
    struct net_addr addr;
    char text[NET_TEXT_SIZE];
    int rc = net_parse(parsed[_i].text, &addr, &e);

    ck_assert_int_eq(rc, parsed[_i].shown ? 0 : -1);
    if (rc == 0)
        ck_assert_str_eq(net_format(&addr, text, sizeof(text)), parsed[_i].shown);
    else
        ck_assert_str_ne(e.text, "");
}

static const struct {
    const char *text;
    int default_port;
    const char *host;
    uint16_t port;
} splits[] = {
    { "node7", 29500, "node7", 29500 },
    { "node7:1", 29500, "node7", 1 },
    { "node7:1", -1, "node7", 1 },
    { "10.0.0.1:65535", -1, "10.0.0.1", 65535 },
    { "[::1]:80", -1, "::1", 80 },
    { "[::1]", 29500, "::1", 29500 },
    { "[fe80::1%eth0]:80", -1, "fe80::1%eth0", 80 },
    { "::1", 29500, "::1", 29500 },
    { "fe80::1%eth0", 29500, "fe80::1%eth0", 29500 },
    { "::", 29500, "::", 29500 },
    { ":29400", 29500, "", 29400 },
    { ":0", 29500, "", 0 },
    { "a:00080", -1, "a", 80 },
    { "29400", 29500, "", 29400 },
    { "0", 29500, "", 0 },
};

TEST_EACH(an_endpoint_is_split_into_host_and_port, splits)
{
    char host[64];
    uint16_t port;

    ck_assert_msg(net_split(splits[_i].text, splits[_i].default_port, host,
                            sizeof(host), &port, &e) == 0,
                  "%s", e.text);
    ck_assert_str_eq(host, splits[_i].host);
    ck_assert_uint_eq(port, splits[_i].port);
}

static const struct {
    const char *text;
    const char *error;
} bad_splits[] = {
    { "", "\"\" is not HOST:PORT" },
    { "node7", "\"node7\" has no port (HOST:PORT)" },
    { "[::1]", "\"[::1]\" has no port (HOST:PORT)" },
    { "::1", "\"::1\" has no port (HOST:PORT)" },
    { "node7:", "\"node7:\": \"\" is not a port from 0 to 65535" },
    { "node7:x", "\"node7:x\": \"x\" is not a port from 0 to 65535" },
    { "node7: 1", "\"node7: 1\": \" 1\" is not a port from 0 to 65535" },
    { "node7:+1", "\"node7:+1\": \"+1\" is not a port from 0 to 65535" },
    { "node7:-1", "\"node7:-1\": \"-1\" is not a port from 0 to 65535" },
    { "node7:65536", "\"node7:65536\": \"65536\" is not a port from 0 to 65535" },
    { "node7:000001", "\"node7:000001\": \"000001\" is not a port from 0 to 65535" },
    { "node7:99999999999999999999", "\"node7:99999999999999999999\": "
                                    "\"99999999999999999999\" is not a port from 0 to "
                                    "65535" },
    { "node7:0x50", "\"node7:0x50\": \"0x50\" is not a port from 0 to 65535" },
    { "a:1:2", "\"a:1:2\" is not HOST:PORT (IPv6 is [ADDRESS]:PORT)" },
    { "tcp://a:1", "\"tcp://a:1\" is a URL and not an address (HOST:PORT)" },
    { "http://a", "\"http://a\" is a URL and not an address (HOST:PORT)" },
    { "29400", "\"29400\" has no port (HOST:PORT)" },
    { "a/b:1", "\"a/b:1\" is not HOST:PORT" },
    { "a b:1", "\"a b:1\" is not HOST:PORT" },
    { "a]:1", "\"a]:1\" is not HOST:PORT" },
    { "[::1", "\"[::1\" is not [IPV6]:PORT" },
    { "[::1]80", "\"[::1]80\" is not [IPV6]:PORT" },
    { "[::1]:", "\"[::1]:\": \"\" is not a port from 0 to 65535" },
    { "[node7]:80", "\"[node7]:80\": \"node7\" is not an IPv6 address" },
    { "[]:80", "\"[]:80\": \"\" is not an IPv6 address" },
    { "[[::1]]:80", "\"[[::1]]:80\" is not [IPV6]:PORT" },
};

TEST_EACH(a_wrong_endpoint_is_refused_with_its_text, bad_splits)
{
    char host[64];
    uint16_t port;

    ck_assert_int_eq(net_split(bad_splits[_i].text, -1, host, sizeof(host), &port, &e),
                     -1);
    ck_assert_str_eq(e.text, bad_splits[_i].error);
}

TEST(a_host_that_does_not_fit_is_refused)
{
    char host[5];
    uint16_t port;

    ck_assert_int_eq(net_split("1234:1", -1, host, sizeof(host), &port, &e), 0);
    ck_assert_int_eq(net_split("12345:1", -1, host, sizeof(host), &port, &e), -1);
    ck_assert_int_eq(net_split("[::123]:1", -1, host, sizeof(host), &port, &e), -1);
}

static const struct {
    const char *host;
    uint16_t port;
    const char *text;
    bool loopback, local;
} addresses[] = {
    { "127.0.0.1", 80, "127.0.0.1:80", true, true },
    { "127.3.2.1", 80, "127.3.2.1:80", true, true },
    { "::1", 29500, "[::1]:29500", true, true },
    { "::ffff:127.0.0.1", 80, "127.0.0.1:80", true, true },
    { "0.0.0.0", 0, "0.0.0.0:0", false, false },
    { "::", 0, "[::]:0", false, false },
    { "::ffff:0.0.0.0", 0, "0.0.0.0:0", false, false },
    /* reserved for examples: no machine has them */
    { "192.0.2.1", 65535, "192.0.2.1:65535", false, false },
    { "2001:db8::7", 1, "[2001:db8::7]:1", false, false },
    { "fe80::1%lo", 1, "[fe80::1%lo]:1", false, false },
};

TEST_EACH(an_address_is_shown_and_told_apart, addresses)
{
    struct net_addr a = numeric(addresses[_i].host, addresses[_i].port);
    char text[NET_TEXT_SIZE];

    ck_assert_str_eq(net_format(&a, text, sizeof(text)), addresses[_i].text);
    ck_assert_uint_eq(net_port(&a), addresses[_i].port);
    ck_assert_int_eq(net_is_loopback(&a), addresses[_i].loopback);
    ck_assert_int_eq(net_is_local(&a), addresses[_i].local);
}

static const struct {
    const char *a, *b;
    bool same;
} pairs[] = {
    { "10.0.0.1", "10.0.0.1", true },
    { "10.0.0.1", "10.0.0.2", false },
    { "10.0.0.1", "::ffff:10.0.0.1", true },
    { "::ffff:10.0.0.1", "::ffff:10.0.0.1", true },
    { "127.0.0.1", "::1", false },
    { "0.0.0.0", "::", false },
    { "2001:db8::1", "2001:db8:0::1", true },
    { "2001:db8::1", "2001:db8::2", false },
    { "fe80::1%lo", "fe80::1%lo", true },
    { "fe80::1%lo", "fe80::1", true },
};

TEST_EACH(hosts_are_the_same_whatever_their_ports_and_form, pairs)
{
    struct net_addr a = numeric(pairs[_i].a, 1), b = numeric(pairs[_i].b, 2);

    ck_assert_int_eq(net_same_host(&a, &b), pairs[_i].same);
    ck_assert_int_eq(net_same_host(&b, &a), pairs[_i].same);
    ck_assert_int_eq(net_hash_host(&a) == net_hash_host(&b), pairs[_i].same);
}

static const struct {
    const char *a, *b;
    bool same;
} sources[] = {
    { "10.0.0.1", "10.0.0.1", true },
    { "10.0.0.1", "10.0.0.2", false },
    { "10.0.0.1", "::ffff:10.0.0.1", true },
    { "2001:db8::1", "2001:db8::ffff:1", true },
    { "2001:db8::1", "2001:db8:0:1::1", false },
    { "fe80::1", "fe80::2", false },
};

TEST_EACH(a_source_is_a_host_or_a_network_of_ipv6, sources)
{
    const uint64_t key[] = { 1, 2 }, other[] = { 1, 3 };
    struct net_addr a = numeric(sources[_i].a, 1), b = numeric(sources[_i].b, 2);

    ck_assert_int_eq(net_hash_source(&a, key) == net_hash_source(&b, key),
                     sources[_i].same);
    ck_assert(net_hash_source(&a, key) != net_hash_source(&a, other));
}

TEST(link_local_hosts_of_two_interfaces_are_two)
{
    struct net_addr a = numeric("fe80::1", 1), b = a;

    ((struct sockaddr_in6 *)(void *)&a.sa)->sin6_scope_id = 1;
    ((struct sockaddr_in6 *)(void *)&b.sa)->sin6_scope_id = 2;
    ck_assert(!net_same_host(&a, &b));
}

TEST(an_unknown_family_is_no_host_at_all)
{
    struct net_addr a = { .len = 2 };
    char text[NET_TEXT_SIZE];

    ck_assert(!net_same_host(&a, &a));
    ck_assert(!net_is_loopback(&a));
    ck_assert(!net_is_local(&a));
    ck_assert_str_eq(net_format_host(&a, text, sizeof(text)), "?");
}

TEST(the_lowest_address_is_the_same_in_any_order)
{
    static const char *const text[] = { "10.77.0.2", "fd00::1", "10.77.0.1",
                                        "9.255.0.3" };
    struct net_addr list[4], *first = &list[0];

    for (int turn = 0; turn < 4; turn++) {
        char lowest[NET_TEXT_SIZE];

        for (int i = 0; i < 4; i++)
            ck_assert_int_eq(net_parse_host(text[(i + turn) % 4], 1, &list[i], &e), 0);
        ck_assert_str_eq(net_format_host(net_lowest(first, 4), lowest, sizeof(lowest)),
                         "9.255.0.3");
    }
    ck_assert_ptr_null(net_lowest(first, 0));
}

TEST(a_port_is_set_in_both_families)
{
    struct net_addr v4 = numeric("127.0.0.1", 1), v6 = numeric("::1", 1);

    net_set_port(&v4, 0x1234);
    net_set_port(&v6, 0x1234);
    ck_assert_uint_eq(net_port(&v4), 0x1234);
    ck_assert_uint_eq(ntohs(((struct sockaddr_in6 *)(void *)&v6.sa)->sin6_port),
                      0x1234);
}

TEST(no_host_is_every_address_of_the_machine)
{
    struct net_addr list[LIST_MAX];
    size_t count;

    ck_assert_int_eq(net_resolve("", 80, list, LIST_MAX, &count, &e), 0);
    ck_assert_uint_ge(count, 1);
    for (size_t i = 0; i < count; i++) {
        char host[NET_TEXT_SIZE];

        net_format_host(&list[i], host, sizeof(host));
        ck_assert_str_eq(host, list[i].sa.ss_family == AF_INET ? "0.0.0.0" : "::");
        ck_assert_uint_eq(net_port(&list[i]), 80);
    }
}

TEST(a_name_gives_no_more_addresses_than_there_is_room)
{
    struct net_addr list[LIST_MAX];
    size_t count;

    ck_assert_int_eq(net_resolve("localhost", 80, list, LIST_MAX, &count, &e), 0);
    ck_assert_uint_ge(count, 1);
    ck_assert(net_is_loopback(&list[0]));
    ck_assert_uint_eq(net_port(&list[0]), 80);
    ck_assert_int_eq(net_resolve("localhost", 80, list, 1, &count, &e), 0);
    ck_assert_uint_eq(count, 1);
}

TEST(a_host_that_is_none_is_refused_with_its_name)
{
    struct net_addr list[LIST_MAX];
    size_t count;

    /* names in .invalid never resolve; no resolver at all says so in other words */
    ck_assert_int_eq(net_resolve("no-such.invalid", 1, list, LIST_MAX, &count, &e), -1);
    ck_assert_ptr_eq(strstr(e.text, "cannot find host \"no-such.invalid\": "), e.text);
}

static int must_listen(const char *host, struct net_addr *bound)
{
    struct net_addr any_port = numeric(host, 0);
    int fd = net_listen(&any_port, 8, &e);

    ck_assert_msg(fd >= 0, "%s", e.text);
    ck_assert_int_eq(net_local_addr(fd, bound), 0);
    ck_assert_uint_ne(net_port(bound), 0);
    return fd;
}

static void wait_for(int fd, short what)
{
    struct pollfd p = { .fd = fd, .events = what };

    ck_assert_int_eq(poll(&p, 1, 5000), 1);
}

static void check_socket(int fd, bool stream)
{
    int nodelay = 0;
    socklen_t size = sizeof(nodelay);

    ck_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
    ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    ck_assert_int_eq(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, &size), 0);
    ck_assert_int_eq(!!nodelay, stream);
}

static const char *const loopbacks[] = { "127.0.0.1", "::1" };

/* One where the machine has no IPv6. */
static int loopback_count(void)
{
    struct net_addr v6;
    size_t count;
    int fd = net_resolve("::1", 0, &v6, 1, &count, &e);

    if (fd == 0)
        fd = net_listen(&v6, 8, &e);

    if (fd >= 0)
        close(fd);
    return fd >= 0 ? (int)COUNT(loopbacks) : 1;
}

TEST_LOOP(two_sockets_meet_and_know_each_other, 0, loopback_count())
{
    struct net_addr server, client, seen;
    int listener = must_listen(loopbacks[_i], &server);
    int out, in;

    ck_assert_int_eq(net_accept(listener, &seen), -1);
    ck_assert(errno == EAGAIN || errno == EWOULDBLOCK);
    out = net_connect(&server, &e);
    ck_assert_msg(out >= 0, "%s", e.text);
    wait_for(listener, POLLIN);
    in = net_accept(listener, &seen);
    ck_assert_int_ge(in, 0);
    wait_for(out, POLLOUT);
    check_socket(listener, false);
    check_socket(out, true);
    check_socket(in, true);
    ck_assert_int_eq(net_local_addr(out, &client), 0);
    ck_assert(net_same_host(&client, &seen));
    ck_assert_uint_eq(net_port(&client), net_port(&seen));
    ck_assert_int_eq(net_peer_addr(out, &seen), 0);
    ck_assert_uint_eq(net_port(&server), net_port(&seen));
    close(in);
    close(out);
    close(listener);
}

TEST_LOOP(a_listener_on_every_address_takes_v4_and_v6, 0, loopback_count())
{
    struct net_addr every[LIST_MAX], server, peer, target = numeric(loopbacks[_i], 0);
    size_t count;
    int listener, out, in;

    ck_assert_int_eq(net_resolve("", 0, every, LIST_MAX, &count, &e), 0);
    listener = net_listen(&every[0], 8, &e);
    ck_assert_msg(listener >= 0, "%s", e.text);
    ck_assert_int_eq(net_local_addr(listener, &server), 0);
    net_set_port(&target, net_port(&server));
    out = net_connect(&target, &e);
    ck_assert_msg(out >= 0, "%s", e.text);
    wait_for(listener, POLLIN);
    in = net_accept(listener, &peer);
    ck_assert_int_ge(in, 0);
    ck_assert(net_same_host(&peer, &target));
    close(in);
    close(out);
    close(listener);
}

TEST_LOOP(a_port_in_use_is_refused_with_its_holder, 0, loopback_count())
{
    struct net_addr server;
    int listener = must_listen(loopbacks[_i], &server);
    char expected[128], name[32] = "";
    FILE *comm = fopen("/proc/self/comm", "r");

    ck_assert_ptr_nonnull(fgets(name, sizeof(name), comm));
    name[strcspn(name, "\n")] = '\0';
    fclose(comm);
    snprintf(expected, sizeof(expected), "port %u is in use by %d (%s)",
             net_port(&server), (int)getpid(), name);
    ck_assert_int_eq(net_listen(&server, 8, &e), -1);
    ck_assert_str_eq(e.text, expected);
    close(listener);
}

TEST(a_free_port_has_no_owner)
{
    struct net_addr server;
    int listener = must_listen("127.0.0.1", &server);
    char text[64];

    ck_assert(port_owner_find(net_port(&server), text, sizeof(text)));
    close(listener);
    ck_assert(!port_owner_find(net_port(&server), text, sizeof(text)));
}

TEST(a_port_is_free_again_at_once_though_connections_linger)
{
    struct net_addr server, peer;
    int listener = must_listen("127.0.0.1", &server);
    int out = net_connect(&server, &e), in;

    wait_for(listener, POLLIN);
    in = net_accept(listener, &peer);
    /* the side that closes first keeps the address for a while */
    close(in);
    wait_for(out, POLLIN);
    close(out);
    close(listener);
    listener = net_listen(&server, 8, &e);
    ck_assert_msg(listener >= 0, "%s", e.text);
    close(listener);
}

TEST(an_address_of_another_machine_is_refused_with_ours)
{
    struct net_addr other = numeric("192.0.2.1", 0);

    ck_assert_int_eq(net_listen(&other, 8, &e), -1);
    ck_assert_ptr_eq(
        strstr(e.text, "192.0.2.1 is not an address of this machine; it has "), e.text);
}

TEST(a_refused_connection_is_told_by_the_socket_or_at_once)
{
    struct net_addr server;
    int fd, error = 0;
    socklen_t size = sizeof(error);

    close(must_listen("127.0.0.1", &server));
    fd = net_connect(&server, &e);
    if (fd >= 0) {
        wait_for(fd, POLLOUT);
        ck_assert_int_eq(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size), 0);
        ck_assert_int_eq(error, ECONNREFUSED);
        close(fd);
    } else {
        ck_assert_ptr_nonnull(strstr(e.text, "cannot connect: "));
    }
}

TEST(a_family_that_is_none_can_neither_listen_nor_connect)
{
    struct net_addr none = { .len = 2 };

    ck_assert_int_eq(net_listen(&none, 8, &e), -1);
    ck_assert_ptr_eq(strstr(e.text, "cannot listen on "), e.text);
    ck_assert_int_eq(net_connect(&none, &e), -1);
    ck_assert_ptr_eq(strstr(e.text, "cannot connect: "), e.text);
}
