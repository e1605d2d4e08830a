/* SPDX-License-Identifier: MIT */
#include "agent/hosting/epoch_store.h"

#include <check.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"

#define PATIENCE_S 60
#define REQUEST                                                                        \
    "\x00\xce\xf7\x85\x3c\x0d"                                                         \
    "1234"

static const struct rendezvous_host no_host;
static struct config config;
static struct epoch_store s;
static struct msg_store_ready ready;

/* A port that was free a moment ago. */
static uint16_t find_port(void)
{
    struct net_addr addr;
    size_t count;
    struct err e;
    int fd;

    ck_assert_int_eq(net_resolve("127.0.0.1", 0, &addr, 1, &count, &e), 0);
    fd = net_listen(&addr, 1, &e);
    ck_assert_int_eq(net_local_addr(fd, &addr), 0);
    close(fd);
    return net_port(&addr);
}

static void begin_epoch(void)
{
    struct err e;

    ck_assert_msg(epoch_store_open(&s, NULL, &ready, &e) == 0, "%s", e.text);
}

static int dial_at(const char *address, uint16_t port)
{
    struct timeval patience = { .tv_sec = PATIENCE_S };
    struct net_addr to;
    struct err e;
    int fd;

    ck_assert_int_eq(net_parse_host(address, port, &to, &e), 0);
    fd = socket(to.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (connect(fd, (struct sockaddr *)(void *)&to.sa, to.len) == 0)
        return fd;
    close(fd);
    return -1;
}

static int dial(uint16_t port)
{
    return dial_at("127.0.0.1", port);
}

static bool is_served(int fd)
{
    char answer[4];
    static const char request[] = REQUEST;

    return send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) > 0 &&
           recv(fd, answer, sizeof(answer), MSG_WAITALL) == sizeof(answer);
}

static void begin_first_epoch(void)
{
    config = (struct config){ .rendezvous = CONFIG_LOCAL, .store_port = find_port() };
    s = (struct epoch_store){ .config = &config, .host = &no_host };
    begin_epoch();
    ck_assert_uint_eq(ready.port, config.store_port);
}

TEST(between_epochs_no_other_program_gets_the_port)
{
    struct net_addr addr;
    size_t count;
    struct err e;
    int fd;

    begin_first_epoch();
    epoch_store_close(&s);
    ck_assert_int_eq(net_resolve("127.0.0.1", config.store_port, &addr, 1, &count, &e),
                     0);
    ck_assert_int_lt(net_listen(&addr, 1, &e), 0);
    epoch_store_release(&s);
    fd = net_listen(&addr, 1, &e);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

TEST(a_client_that_comes_between_epochs_is_in_neither)
{
    int early, served;

    begin_first_epoch();
    served = dial(config.store_port);
    ck_assert(is_served(served));
    epoch_store_close(&s);
    ck_assert(!is_served(served));
    early = dial(config.store_port);
    ck_assert_int_ge(early, 0);
    begin_epoch();
    ck_assert(!is_served(early));
    close(served);
    served = dial(config.store_port);
    ck_assert(is_served(served));
    epoch_store_release(&s);
    ck_assert_int_lt(dial(config.store_port), 0);
    close(early), close(served);
}

TEST(a_port_that_the_system_chose_is_closed_with_its_epoch)
{
    config = (struct config){ .rendezvous = CONFIG_LOCAL };
    s = (struct epoch_store){ .config = &config, .host = &no_host };
    begin_epoch();
    epoch_store_close(&s);
    ck_assert_int_lt(dial((uint16_t)ready.port), 0);
    begin_epoch();
    ck_assert_uint_ne(ready.port, 0);
    epoch_store_release(&s);
}

TEST(ports_for_servers_of_rank_0_are_held_for_the_epoch)
{
    uint16_t port;

    config = (struct config){ .rendezvous = CONFIG_LOCAL, .free_ports = { "api" } };
    s = (struct epoch_store){ .config = &config, .host = &no_host };
    begin_epoch();
    ck_assert_int_eq(sscanf(ready.free_ports, "=%*u api=%hu", &port), 1);
    epoch_store_close(&s);
    ck_assert_uint_gt(s.held.count, 0); /* those of the next epoch are others */
    epoch_store_release(&s);
    ck_assert_uint_eq(s.held.count, 0);
}

/* --local-addr of a job on one node: what workers are told, and where they connect. */
static const struct {
    const char *told, *reached;
} local_addresses[] = {
    { "::1", "::1" },
    { "127.0.0.2", "127.0.0.2" },
    { "localhost", "127.0.0.1" },
    { "203.0.113.1", "127.0.0.1" }, /* of no machine: other ways may lead here */
};

TEST_EACH(workers_reach_the_store_at_the_address_of_their_node, local_addresses)
{
    int fd;

    config = (struct config){ .rendezvous = CONFIG_LOCAL,
                              .local_addr = local_addresses[_i].told };
    s = (struct epoch_store){ .config = &config, .host = &no_host };
    begin_epoch();
    ck_assert_str_eq(ready.address, local_addresses[_i].told);
    fd = dial_at(local_addresses[_i].reached, (uint16_t)ready.port);
    ck_assert_int_ge(fd, 0);
    ck_assert(is_served(fd));
    close(fd);
    epoch_store_release(&s);
}
