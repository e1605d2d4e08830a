/* SPDX-License-Identifier: MIT */
/* Clients of the store that speak TLS, beside plain ones. */
#include "rendezvous/tcpstore/store_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/tls.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/store_clients.h"

static struct tls_psk good = { "crun1-store:1:good", "the secret of this epoch" };

static bool find_good(void *arg, const char *identity, uint8_t secret[TLS_SECRET_BYTES])
{
    if (strcmp(identity, good.identity) != 0)
        return false;
    memcpy(secret, good.secret, TLS_SECRET_BYTES);
    return true;
}

static void setup(void)
{
    start_server((struct store_server_config){ .find_secret = find_good });
}

struct tls_client {
    int fd;
    struct tls_session *tls;
};

static void wait_for(const struct tls_client *c)
{
    struct pollfd p = { .fd = c->fd,
                        .events = tls_wants_write(c->tls) ? POLLOUT : POLLIN };

    ck_assert_int_eq(poll(&p, 1, PATIENCE_MS), 1);
}

/* The result of the handshake: 1 or -1. */
static int begin_tls(struct tls_client *c, const struct tls_psk *psk)
{
    struct err e;
    int r;

    c->fd = dial_store(0);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->tls = tls_connect(c->fd, psk, &e);
    ck_assert_msg(c->tls != NULL, "%s", e.text);
    while ((r = tls_handshake(c->tls)) == 0)
        wait_for(c);
    return r;
}

static void end_tls(struct tls_client *c)
{
    tls_destroy(c->tls);
    close(c->fd);
}

static void tls_say(struct tls_client *c, const void *data, size_t size)
{
    const char *at = data;

    while (size > 0) {
        ssize_t n = tls_write(c->tls, at, size);

        if (n < 0) {
            ck_assert_int_eq(errno, EAGAIN);
            wait_for(c);
            continue;
        }
        at += n;
        size -= (size_t)n;
    }
}

/* How many bytes came before the end. */
static size_t tls_hear(struct tls_client *c, void *data, size_t size)
{
    char *at = data;
    size_t got = 0;

    while (got < size) {
        ssize_t n = tls_read(c->tls, at + got, size - got);

        if (n == 0 || (n < 0 && errno != EAGAIN))
            break;
        if (n < 0)
            wait_for(c);
        else
            got += (size_t)n;
    }
    return got;
}

FIXTURE(setup, stop_server);

TEST(tls_and_plain_clients_use_one_store)
{
    struct tls_client a;
    char answer[16];
    int b;

    ck_assert_int_eq(begin_tls(&a, &good), 1);
    tls_say(&a, HELLO PING SET_K, sizeof(HELLO PING SET_K) - 1);
    ck_assert_uint_eq(tls_hear(&a, answer, 4), 4);
    ck_assert_mem_eq(answer, "1234", 4);
    b = connect_client();
    SAY(b, GET_K);
    HEAR(b, N("\x01") "v");
    tls_say(&a, GET_K, sizeof(GET_K) - 1);
    ck_assert_uint_eq(tls_hear(&a, answer, 9), 9);
    ck_assert_mem_eq(answer, N("\x01") "v", 9);
    end_tls(&a);
    EXPECT_STAT(connections, 1);
    close(b);
}

TEST(a_wait_of_a_tls_client_ends_by_another)
{
    struct tls_client a;
    char answer;
    int b = connect_client();

    ck_assert_int_eq(begin_tls(&a, &good), 1);
    tls_say(&a, HELLO WAIT_K, sizeof(HELLO WAIT_K) - 1);
    EXPECT_STAT(waits, 1);
    SAY(b, SET_K);
    ck_assert_uint_eq(tls_hear(&a, &answer, 1), 1);
    ck_assert_int_eq(answer, 0);
    end_tls(&a);
    close(b);
}

TEST(large_values_go_both_ways_through_tls)
{
    static const size_t size = 5u << 20;
    uint8_t *value = xmalloc(size), *got = xmalloc(size + 8);
    uint64_t length = size;
    struct tls_client a;

    ck_assert_int_eq(begin_tls(&a, &good), 1);
    for (size_t i = 0; i < size; i++)
        value[i] = (uint8_t)(i * 31 + (i >> 12));
    tls_say(&a, HELLO "\x01" N("\x01") "k", sizeof(HELLO "\x01" N("\x01") "k") - 1);
    tls_say(&a, &length, 8);
    tls_say(&a, value, size);
    for (int i = 0; i < 3; i++)
        tls_say(&a, GET_K GET_K, sizeof(GET_K GET_K) - 1);
    for (int i = 0; i < 6; i++) {
        ck_assert_uint_eq(tls_hear(&a, got, size + 8), size + 8);
        ck_assert_mem_eq(got, &length, 8);
        ck_assert_int_eq(memcmp(got + 8, value, size), 0);
    }
    end_tls(&a);
    free(value);
    free(got);
}

TEST(many_small_requests_at_once_are_all_answered)
{
    enum { COUNT = 20000, ANSWER = 9 };
    char *requests = xmalloc(COUNT * (sizeof(GET_K) - 1)),
         *answers = xmalloc((size_t)COUNT * ANSWER);
    struct tls_client a;

    ck_assert_int_eq(begin_tls(&a, &good), 1);
    tls_say(&a, HELLO SET_K, sizeof(HELLO SET_K) - 1);
    for (size_t i = 0; i < COUNT; i++)
        memcpy(requests + i * (sizeof(GET_K) - 1), GET_K, sizeof(GET_K) - 1);
    tls_say(&a, requests, COUNT * (sizeof(GET_K) - 1));
    ck_assert_uint_eq(tls_hear(&a, answers, (size_t)COUNT * ANSWER),
                      (size_t)COUNT * ANSWER);
    for (size_t i = 0; i < COUNT; i++)
        ck_assert_mem_eq(answers + i * ANSWER, N("\x01") "v", ANSWER);
    end_tls(&a);
    free(requests);
    free(answers);
}

static void expect_refusal(const struct tls_psk *psk)
{
    struct tls_client a;
    char answer;

    if (begin_tls(&a, psk) == 1) {
        tls_say(&a, HELLO SET_K, sizeof(HELLO SET_K) - 1);
        ck_assert_uint_eq(tls_hear(&a, &answer, 1), 0);
    }
    end_tls(&a);
    EXPECT_STAT(connections, 0);
    EXPECT_STAT(keys, 0);
}

TEST(another_token_or_epoch_is_refused)
{
    struct tls_psk wrong = good, other = good;

    wrong.secret[3] ^= 1;
    expect_refusal(&wrong);
    strcpy(other.identity, "crun1-store:2:good");
    expect_refusal(&other);
    EXPECT_STAT(refused, 2);
}

TEST(a_handshake_that_is_not_ended_is_cut_off_in_time)
{
    int fd;

    stop_server();
    start_server(
        (struct store_server_config){ .find_secret = find_good, .hello_ms = 60 });
    fd = dial_store(0);
    SAY(fd, "\x16\x03\x01");
    expect_closed(fd);
    expect_line("has not identified itself in time");
}

TEST(without_a_secret_there_is_no_tls)
{
    int fd;

    stop_server();
    start_server((struct store_server_config){ .hello_ms = 0 });
    fd = dial_store(0);
    SAY(fd, "\x16\x03\x01\x00\x10");
    expect_closed(fd);
}
