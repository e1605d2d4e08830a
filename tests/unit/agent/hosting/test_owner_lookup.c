/* SPDX-License-Identifier: MIT */
/* What a node answers about sockets: its own user's exist, others do not. */
#include "agent/hosting/owner_lookup.h"

#include <check.h>
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/net.h"
#include "tests/worlds/check_main.h"

#define OTHER_USER 12345

static struct net_addr store;
static int listener;

static void setup(void)
{
    struct net_addr any;
    size_t count;
    struct err e;

    ck_assert_int_eq(net_resolve("127.0.0.1", 0, &any, 1, &count, &e), 0);
    listener = net_listen(&any, 8, &e);
    ck_assert_int_ge(listener, 0);
    ck_assert_int_eq(net_local_addr(listener, &store), 0);
}

static void teardown(void)
{
    close(listener);
}

static int connect_store(unsigned *port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct net_addr own;

    ck_assert_int_eq(
        connect(fd, (const struct sockaddr *)(const void *)&store.sa, store.len), 0);
    ck_assert_int_eq(net_local_addr(fd, &own), 0);
    *port = net_port(&own);
    return fd;
}

static const char *answer_to(const char *host, const char *ports)
{
    static struct msg_owners answer;
    struct msg_ask_owners q = { .ask = 5, .store_port = net_port(&store) };

    snprintf(q.host, sizeof(q.host), "%s", host);
    snprintf(q.store, sizeof(q.store), "127.0.0.1");
    snprintf(q.ports, sizeof(q.ports), "%s", ports);
    owner_lookup_answer(&q, &answer);
    ck_assert_uint_eq(answer.ask, 5);
    return answer.ports;
}

static unsigned names_asked;

/* A question must not make an agent wait for a name service. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **result)
{
    int (*real)(const char *, const char *, const struct addrinfo *,
                struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");

    if (!(hints->ai_flags & AI_NUMERICHOST)) {
        names_asked++;
        return EAI_NONAME;
    }
    return real(node, service, hints, result);
}

FIXTURE(setup, teardown);

TEST(no_name_is_looked_up)
{
    ck_assert_str_eq(answer_to("fade", "1"), "");
    ck_assert_str_eq(answer_to("bad.cafe", "1"), "");
    ck_assert_uint_eq(names_asked, 0);
}

TEST(own_sockets_are_vouched_for_and_no_others)
{
    unsigned one, two, closed;
    char ports[64], expected[64];
    int a = connect_store(&one), b = connect_store(&two);

    close(connect_store(&closed));
    snprintf(ports, sizeof(ports), "%u 1 %u 65535 %u 0 99999 x", one, closed, two);
    snprintf(expected, sizeof(expected), "%u %u", one, two);
    ck_assert_str_eq(answer_to("127.0.0.1", ports), expected);
    ck_assert_str_eq(answer_to("127.0.0.2", ports), "");
    ck_assert_str_eq(answer_to("localhost", ports), "");
    ck_assert_str_eq(answer_to("fe80::1%eth0", ports), "");
    close(a);
    close(b);
}

TEST(a_socket_of_another_user_is_not_vouched_for)
{
    unsigned port;
    char ports[16];
    int fd;

    SKIP_UNLESS_ROOT();
    setfsuid(OTHER_USER);
    fd = connect_store(&port);
    setfsuid(0);
    snprintf(ports, sizeof(ports), "%u", port);
    ck_assert_str_eq(answer_to("127.0.0.1", ports), "");
    close(fd);
}

TEST(as_many_as_a_question_has_fit_in_the_answer)
{
    int fd[OWNERS_PER_ASK];
    char ports[OWNERS_PER_ASK * 6] = "";
    size_t used = 0;

    for (int i = 0; i < OWNERS_PER_ASK; i++) {
        unsigned port;

        fd[i] = connect_store(&port);
        ck_assert_uint_ge(port, 10000);
        used += (size_t)snprintf(ports + used, sizeof(ports) - used, "%s%u",
                                 used ? " " : "", port);
        close(accept(listener, NULL, NULL));
    }
    ck_assert_str_eq(answer_to("127.0.0.1", ports), ports);
    for (int i = 0; i < OWNERS_PER_ASK; i++)
        close(fd[i]);
}
