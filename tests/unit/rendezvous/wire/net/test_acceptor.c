/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/net/acceptor.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/wire/net/limits.h"
#include "tests/worlds/check_main.h"

#define HELLO_MS 1000
#define PATIENCE_MS 60000

static struct acceptor a;
static struct net_addr address;
static unsigned log_lines;
static char log_last[256];

static void on_line(void *arg, enum log_level level, const char *line)
{
    log_lines++;
    snprintf(log_last, sizeof(log_last), "%s", line);
}

static void setup(void)
{
    size_t count;
    struct err e;

    log_set_sink(on_line, NULL);
    acceptor_init(&a, "test", HELLO_MS);
    ck_assert_int_eq(net_resolve("127.0.0.1", 0, &address, 1, &count, &e), 0);
    ck_assert_int_eq(acceptor_listen(&a, &address, &e), 0);
    ck_assert_int_eq(net_local_addr(a.fd, &address), 0);
}

static void teardown(void)
{
    acceptor_fini(&a);
    log_set_sink(NULL, NULL);
}

static int dial(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&address.sa, address.len), 0);
    return fd;
}

static void await_call(void)
{
    struct pollfd p = { .fd = a.fd, .events = POLLIN };

    ck_assert_int_eq(poll(&p, 1, PATIENCE_MS), 1);
}

FIXTURE(setup, teardown);

TEST(a_connection_is_accepted_with_its_address)
{
    struct net_addr peer, own;
    int near, far;

    ck_assert_int_eq(acceptor_accept(&a, &peer), -1);
    ck_assert(!acceptor_is_paused(&a));
    near = dial();
    await_call();
    far = acceptor_accept(&a, &peer);
    ck_assert_int_ge(far, 0);
    ck_assert_int_eq(net_local_addr(near, &own), 0);
    ck_assert_uint_eq(net_port(&peer), net_port(&own));
    close(near);
    close(far);
}

TEST(without_descriptors_it_pauses_and_the_connection_waits)
{
    int near = dial(), far, none = dup(near);
    struct rlimit limit, low;
    struct net_addr peer;
    uint64_t began = clock_ms();

    await_call();
    close(none);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = (rlim_t)none;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    ck_assert_int_eq(acceptor_accept(&a, &peer), -1);
    ck_assert(acceptor_is_paused(&a));
    ck_assert_uint_ge(acceptor_next_ms(&a), began + ACCEPT_PAUSE_MS);
    ck_assert_msg(strstr(log_last, "test: cannot accept") &&
                      strstr(log_last, strerror(EMFILE)),
                  "%s", log_last);
    ck_assert_int_eq(acceptor_accept(&a, &peer), -1);
    ck_assert_uint_eq(log_lines, 1);
    ck_assert(!acceptor_resume(&a, acceptor_next_ms(&a) - 1));
    ck_assert(acceptor_resume(&a, acceptor_next_ms(&a)));
    ck_assert(!acceptor_is_paused(&a));
    ck_assert_uint_eq(acceptor_next_ms(&a), UINT64_MAX);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    far = acceptor_accept(&a, &peer);
    ck_assert_int_ge(far, 0);
    close(far);
    close(near);
}

TEST(the_oldest_is_the_first_to_go_and_to_be_late)
{
    struct acceptor_entry entry[3];
    int owner[3];
    uint64_t late;

    ck_assert_ptr_null(acceptor_oldest(&a));
    ck_assert_ptr_null(acceptor_late(&a, UINT64_MAX));
    ck_assert_uint_eq(acceptor_next_ms(&a), UINT64_MAX);
    for (int i = 0; i < 3; i++)
        acceptor_add(&a, &entry[i], &owner[i]);
    ck_assert_uint_eq(a.count, 3);
    acceptor_remove(&a, &entry[1]);
    ck_assert_ptr_eq(acceptor_oldest(&a), &owner[0]);
    late = acceptor_next_ms(&a);
    ck_assert_uint_eq(late, entry[0].since_ms + HELLO_MS);
    ck_assert_ptr_null(acceptor_late(&a, late - 1));
    ck_assert_ptr_eq(acceptor_late(&a, late), &owner[0]);
    acceptor_pause(&a);
    ck_assert_uint_lt(acceptor_next_ms(&a), late);
    acceptor_remove(&a, &entry[0]);
    ck_assert_ptr_eq(acceptor_oldest(&a), &owner[2]);
    acceptor_remove(&a, &entry[2]);
    ck_assert_uint_eq(a.count, 0);
}
