/* SPDX-License-Identifier: MIT */
/* Which node hosts the rendezvous, and at which address. */
#include "agent/hosting/rendezvous_host.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/server/server.h"
#include "tests/worlds/check_main.h"

static struct loop *loop;
static struct config config;
static struct rendezvous_host host;

static unsigned warnings;

static void on_line(void *arg, enum log_level level, const char *line)
{
    warnings += level == LOG_WARN;
}

static int start(const struct config *c, struct err *e)
{
    const struct rendezvous_host_calls calls = { .fatal = NULL };

    log_set_sink(on_line, NULL);
    loop = loop_create();
    config = *c;
    warnings = 0;
    strcpy(config.run_id, "test");
    config.job.min_nodes = 1;
    return rendezvous_host_start(&host, loop, &config, NULL, &calls, e);
}

static void end(void)
{
    rendezvous_host_end(&host);
    loop_destroy(loop);
    log_set_sink(NULL, NULL);
}

enum { HOSTED, NOT_HOSTED, ERROR };

/* 203.0.113.1 is of no machine: it is for examples. */
static const struct {
    const char *what;
    struct config config;
    int result;
    const char *text; /* the host's address, or a part of the error */
} cases[] = {
    { "a job of one node has it inside", { .rendezvous = CONFIG_LOCAL }, HOSTED, "" },
    { "static: node rank 0 hosts",
      { .rendezvous = CONFIG_STATIC, .is_host = -1, .endpoints = "127.0.0.1:0" },
      HOSTED,
      "127.0.0.1" },
    { "static: another node rank does not",
      { .rendezvous = CONFIG_STATIC,
        .is_host = -1,
        .node_rank = 1,
        .endpoints = "127.0.0.1:0" },
      NOT_HOSTED,
      NULL },
    { "static: another node rank that is told to does",
      { .rendezvous = CONFIG_STATIC,
        .is_host = 1,
        .node_rank = 1,
        .endpoints = "127.0.0.1:0" },
      HOSTED,
      "127.0.0.1" },
    { "static: node rank 0 hosts at an address that is another's, such as a Service's",
      { .rendezvous = CONFIG_STATIC, .is_host = -1, .endpoints = "203.0.113.1:0" },
      HOSTED,
      "203.0.113.1" },
    { "static: a name is decided on when it has been looked up",
      { .rendezvous = CONFIG_STATIC, .is_host = -1, .endpoints = "late.test:0" },
      NOT_HOSTED,
      NULL },
    { "static: the address must be one",
      { .rendezvous = CONFIG_STATIC, .is_host = -1, .endpoints = "127.0.0.1:x" },
      ERROR,
      "--master-addr" },
    { "dynamic: the node with the address hosts",
      { .rendezvous = CONFIG_DYNAMIC, .is_host = -1, .endpoints = "127.0.0.1:0" },
      HOSTED,
      "127.0.0.1" },
    { "dynamic: a node without it does not",
      { .rendezvous = CONFIG_DYNAMIC, .is_host = -1, .endpoints = "203.0.113.1:29400" },
      NOT_HOSTED,
      NULL },
    { "dynamic: a node that is told not to does not",
      { .rendezvous = CONFIG_DYNAMIC, .is_host = 0, .endpoints = "127.0.0.1:0" },
      NOT_HOSTED,
      NULL },
    { "dynamic: a node that is told to does, at all its addresses",
      { .rendezvous = CONFIG_DYNAMIC, .is_host = 1, .endpoints = "203.0.113.1:0" },
      HOSTED,
      "203.0.113.1" },
    { "dynamic: only the first endpoint is hosted",
      { .rendezvous = CONFIG_DYNAMIC,
        .is_host = -1,
        .endpoints = "203.0.113.1:29400,127.0.0.1:0" },
      NOT_HOSTED,
      NULL },
    { "dynamic: the client reports a bad endpoint",
      { .rendezvous = CONFIG_DYNAMIC, .is_host = -1, .endpoints = "127.0.0.1:x" },
      NOT_HOSTED,
      NULL },
    { "dynamic: the host itself reports a bad endpoint",
      { .rendezvous = CONFIG_DYNAMIC, .is_host = 1, .endpoints = "127.0.0.1:x" },
      ERROR,
      "--rdzv-endpoint" },
};

TEST_EACH(the_right_node_hosts, cases)
{
    bool hosted = cases[_i].result == HOSTED;
    struct err e;
    int rc = start(&cases[_i].config, &e);

    ck_assert_msg(rc == (cases[_i].result == ERROR ? -1 : 0), "%s", cases[_i].what);
    ck_assert_msg((host.server != NULL) == hosted, "%s", cases[_i].what);
    if (hosted)
        ck_assert_str_eq(host.address, cases[_i].text);
    if (hosted)
        ck_assert_int_eq(host.port != 0, *cases[_i].text != '\0');
    /* not about a port that no other machine reaches */
    ck_assert_msg((warnings > 0) ==
                      (hosted && host.port && strstr(host.address, "203.")),
                  "%s: %u warnings", cases[_i].what, warnings);
    if (cases[_i].result == ERROR)
        ck_assert_msg(strstr(e.text, cases[_i].text), "%s", e.text);
    end();
}

/* Addresses as typed and "localhost" stay what they are, also for several nodes. */
static const char *const loopbacks[] = { "127.0.0.1:0", "localhost:0" };

TEST_EACH(a_typed_loopback_stays_one, loopbacks)
{
    struct config c = { .rendezvous = CONFIG_DYNAMIC,
                        .is_host = 1,
                        .endpoints = loopbacks[_i],
                        .job = { .max_nodes = 2 } };
    struct err e;

    ck_assert_int_eq(start(&c, &e), 0);
    ck_assert(net_is_loopback(server_address(host.server)));
    end();
}

/* What a look-up answers, and who hosts then. The host name is the first label. */
static struct net_addr loopback, foreign;

static const struct {
    const char *what;
    bool dynamic, own_name;
    const struct net_addr *answer[3]; /* of one look-up after another; NULL: none */
    int hosted;                       /* after how many of them; 0: never */
} looked_up[] = {
    { "static: our name", .own_name = true, .answer = { NULL }, .hosted = 1 },
    { "static: our name, still with the address of the pod before", .own_name = true,
      .answer = { &foreign }, .hosted = 1 },
    { "static: a name that appears late", .answer = { NULL, NULL, &loopback },
      .hosted = 3 },
    { "static: a Service's name", .answer = { NULL, &foreign }, .hosted = 2 },
    { "dynamic: a name that appears late", .dynamic = true,
      .answer = { NULL, &foreign, &loopback }, .hosted = 3 },
    { "dynamic: another node's name", .dynamic = true,
      .answer = { NULL, &foreign, &foreign }, .hosted = 0 },
};

TEST_EACH(each_answer_is_considered, looked_up)
{
    char endpoint[320], own[256];
    struct config c = { .is_host = -1,
                        .endpoints = endpoint,
                        .job = { .max_nodes = 2 } };
    struct err e;

    ck_assert_int_eq(net_parse_host("127.0.0.1", 0, &loopback, &e), 0);
    ck_assert_int_eq(net_parse_host("203.0.113.1", 0, &foreign, &e), 0);
    ck_assert_int_eq(gethostname(own, sizeof(own)), 0);
    own[strcspn(own, ".")] = '\0';
    snprintf(endpoint, sizeof(endpoint), "%s.late.test:0",
             looked_up[_i].own_name ? own : "surely-no-host");
    c.rendezvous = looked_up[_i].dynamic ? CONFIG_DYNAMIC : CONFIG_STATIC;
    ck_assert_int_eq(start(&c, &e), 0);
    ck_assert_ptr_null(host.server);
    for (int i = 0; i < 3; i++) {
        const struct net_addr *answer = looked_up[_i].answer[i];

        ck_assert_int_eq(rendezvous_host_consider(&host, answer, answer != NULL,
                                                  "cannot find host", &e),
                         0);
        ck_assert_msg((host.server != NULL) ==
                          (looked_up[_i].hosted > 0 && i + 1 >= looked_up[_i].hosted),
                      "%s: answer %d", looked_up[_i].what, i);
    }
    if (host.server && looked_up[_i].own_name) /* IPv6 peers reach it too */
        ck_assert_int_eq(server_address(host.server)->sa.ss_family, AF_INET6);
    end();
}

/* A name has the addresses of two nodes, one of them ours. */
static const struct {
    const char *other;
    int is_host, result;
} several[] = { { "203.0.113.1", -1, HOSTED },
                { "1.2.3.4", -1, NOT_HOSTED },
                { "1.2.3.4", 1, HOSTED } };

TEST_EACH(of_the_addresses_of_a_name_the_lowest_hosts, several)
{
    struct config c = { .rendezvous = CONFIG_DYNAMIC,
                        .is_host = several[_i].is_host,
                        .endpoints = "surely-no-host.test:0",
                        .job = { .max_nodes = 2 } };
    struct net_addr list[2];
    struct err e;

    ck_assert_int_eq(net_parse_host("127.0.0.1", 0, &list[_i % 2], &e), 0);
    ck_assert_int_eq(net_parse_host(several[_i].other, 0, &list[1 - _i % 2], &e), 0);
    ck_assert_int_eq(start(&c, &e), 0);
    ck_assert_int_eq(rendezvous_host_consider(&host, list, 2, "", &e), 0);
    ck_assert_int_eq(host.server ? HOSTED : NOT_HOSTED, several[_i].result);
    end();
}

/* The port is in use: by a crund, or by another agent of this machine. */
static const struct {
    int is_host, result;
} second[] = { { -1, NOT_HOSTED }, { 1, ERROR } };

TEST_EACH(a_port_that_is_taken_belongs_to_the_rendezvous, second)
{
    struct config c = { .rendezvous = CONFIG_DYNAMIC,
                        .is_host = 1,
                        .endpoints = "127.0.0.1:0" };
    struct rendezvous_host first;
    struct loop *first_loop;
    char endpoint[32];
    struct err e;

    ck_assert_int_eq(start(&c, &e), 0);
    first = host;
    first_loop = loop;
    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%u", first.port);
    c.endpoints = endpoint;
    c.is_host = second[_i].is_host;
    ck_assert_int_eq(start(&c, &e), second[_i].result == ERROR ? -1 : 0);
    ck_assert_ptr_null(host.server);
    end();
    host = first;
    loop = first_loop;
    end();
}

TEST(a_host_stays_while_others_need_it)
{
    struct config c = { .rendezvous = CONFIG_LOCAL };
    struct err e;

    ck_assert_int_eq(start(&c, &e), 0);
    ck_assert(rendezvous_host_is_done(&host, &config)); /* it has no others */
    ck_assert(!rendezvous_host_must_stay(&host, &config));
    end();
    c = (struct config){ .rendezvous = CONFIG_STATIC,
                         .is_host = -1,
                         .node_rank = 1,
                         .endpoints = "127.0.0.1:0" };
    ck_assert_int_eq(start(&c, &e), 0);
    ck_assert(rendezvous_host_is_done(&host, &config)); /* it is none */
    end();
}
