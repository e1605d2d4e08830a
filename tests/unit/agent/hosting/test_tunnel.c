/* SPDX-License-Identifier: MIT */
/* Plain clients on one side of the tunnel, a store on the other. */
#include "agent/hosting/tunnel.h"

#include <check.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/xalloc.h"
#include "tests/fakes/net/slow_names.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/store_clients.h"

#define OTHER_USER 12345

static struct tls_psk good = { "crun1-store:1:good", "the secret of this epoch" };
static struct tunnel *tunnel;

static bool find_good(void *arg, const char *identity, uint8_t secret[TLS_SECRET_BYTES])
{
    if (strcmp(identity, good.identity) != 0)
        return false;
    memcpy(secret, good.secret, TLS_SECRET_BYTES);
    return true;
}

static void begin_tunnel_to(const char *host, const struct tls_psk *psk)
{
    struct tunnel_config config = { .port = store_server_port(server), .psk = *psk };
    struct err e;

    snprintf(config.host, sizeof(config.host), "%s", host);
    tunnel_destroy(tunnel);
    tunnel = tunnel_create(&config, &e);
    ck_assert_msg(tunnel != NULL, "%s", e.text);
}

static void begin_tunnel(const struct tls_psk *psk)
{
    begin_tunnel_to("127.0.0.1", psk);
}

static void setup(void)
{
    start_server((struct store_server_config){ .find_secret = find_good });
    begin_tunnel(&good);
}

static void teardown(void)
{
    tunnel_destroy(tunnel);
    tunnel = NULL;
    stop_server();
}

static int enter_tunnel(void)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons(tunnel_port(tunnel)),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    ck_assert_int_eq(connect(fd, (struct sockaddr *)(void *)&to, sizeof(to)), 0);
    return fd;
}

FIXTURE(setup, teardown);

/* At the first address nothing listens: a client that tries again reaches the other. */
TEST(another_address_is_tried_after_a_failure)
{
    char byte;
    int a;

    sem_init(&slow_may_end, 0, 0); /* of the look-ups in place of the system's */
    begin_tunnel_to("two.test", &good);
    a = enter_tunnel();
    ck_assert_int_le(recv(a, &byte, 1, 0), 0);
    close(a);
    a = enter_tunnel();
    SAY(a, HELLO PING);
    HEAR(a, "1234");
    close(a);
}

TEST(clients_on_both_sides_use_one_store)
{
    int a = enter_tunnel(), b = connect_client();

    SAY(a, HELLO PING WAIT_K);
    HEAR(a, "1234");
    EXPECT_STAT(waits, 1);
    SAY(b, SET_K);
    HEAR(a, "\x00");
    SAY(a, GET_K);
    HEAR(a, N("\x01") "v");
    close(a);
    EXPECT_STAT(connections, 1);
    close(b);
}

TEST(what_a_client_sets_just_before_it_goes_is_carried)
{
    int a = enter_tunnel(), b;

    SAY(a, HELLO PING);
    HEAR(a, "1234");
    SAY(a, SET_K);
    close(a);
    b = connect_client();
    SAY(b, WAIT_K);
    HEAR(b, "\x00");
    close(b);
}

TEST(large_values_are_carried_both_ways)
{
    static const size_t size = 8u << 20;
    uint8_t *value = xmalloc(size), *got = xmalloc(size + 8);
    uint64_t length = size;
    int a = enter_tunnel();

    for (size_t i = 0; i < size; i++)
        value[i] = (uint8_t)(i * 31 + (i >> 12));
    SAY(a, HELLO "\x01" N("\x01") "k");
    say_bytes(a, &length, 8);
    say_bytes(a, value, size);
    for (int i = 0; i < 3; i++) {
        SAY(a, GET_K GET_K);
        for (int j = 0; j < 2; j++) {
            ck_assert_int_eq(recv(a, got, size + 8, MSG_WAITALL), (ssize_t)size + 8);
            ck_assert_mem_eq(got, &length, 8);
            ck_assert_int_eq(memcmp(got + 8, value, size), 0);
        }
    }
    close(a);
    free(value);
    free(got);
}

TEST(a_client_that_does_not_read_stops_no_other)
{
    static const size_t size = 1u << 20;
    uint8_t *value = xcalloc(1, size);
    uint64_t length = size;
    int a = enter_tunnel(), b;

    SAY(a, HELLO "\x01" N("\x01") "k");
    say_bytes(a, &length, 8);
    say_bytes(a, value, size);
    for (int i = 0; i < 30; i++)
        SAY(a, GET_K);
    b = enter_tunnel();
    SAY(b, HELLO PING);
    HEAR(b, "1234");
    close(a);
    SAY(b, PING);
    HEAR(b, "1234");
    EXPECT_STAT(connections, 1);
    close(b);
    free(value);
}

TEST(another_users_process_does_not_get_in)
{
    int fd;

    SKIP_UNLESS_ROOT();
    setfsuid(OTHER_USER);
    fd = enter_tunnel();
    setfsuid(0);
    expect_closed(fd);
    expect_line("it is of uid 12345");
    EXPECT_STAT(accepted, 0);
}

TEST(with_another_token_clients_are_closed)
{
    struct tls_psk wrong = good;
    int fd;

    wrong.secret[0] ^= 1;
    begin_tunnel(&wrong);
    fd = enter_tunnel();
    SAY(fd, HELLO PING);
    expect_closed(fd);
    EXPECT_STAT(refused, 1); /* both ends say so, in any order */
}

TEST(without_a_store_clients_are_closed)
{
    int fd = enter_tunnel(), next;

    SAY(fd, HELLO PING);
    HEAR(fd, "1234");
    stop_server();
    expect_closed(fd);
    next = enter_tunnel();
    expect_closed(next);
}

TEST(its_end_closes_what_it_carries)
{
    int fd = enter_tunnel();

    SAY(fd, HELLO WAIT_K);
    EXPECT_STAT(waits, 1);
    tunnel_destroy(tunnel);
    tunnel = NULL;
    expect_closed(fd);
    EXPECT_STAT(connections, 0);
}
