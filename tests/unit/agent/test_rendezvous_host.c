/* SPDX-License-Identifier: MIT */
/* Which node hosts the rendezvous, and at which address. */
#include "agent/rendezvous_host.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/base/log.h"
#include "rendezvous/base/loop.h"
#include "rendezvous/base/net.h"
#include "rendezvous/server.h"
#include "tests/worlds/check_main.h"

static struct loop *loop;
static struct config config;
static struct rendezvous_host host;

static void on_line(void *arg, enum log_level level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

static int start(const struct config *c, struct err *e)
{
    const struct rendezvous_host_calls calls = { .fatal = NULL };

    log_set_sink(on_line, NULL);
    loop = loop_create();
    config = *c;
    strcpy(config.run_id, "test");
    config.job.min_nodes = 1;
    return rendezvous_host_start(&host, loop, &config, NULL, &calls, e);
}

static void end(void)
{
    server_destroy(host.server);
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
      { .rendezvous = CONFIG_STATIC, .node_rank = 0, .endpoints = "127.0.0.1:0" },
      HOSTED,
      "127.0.0.1" },
    { "static: another node rank does not",
      { .rendezvous = CONFIG_STATIC, .node_rank = 1, .endpoints = "127.0.0.1:0" },
      NOT_HOSTED,
      NULL },
    { "static: node rank 0 must have the address",
      { .rendezvous = CONFIG_STATIC, .node_rank = 0, .endpoints = "203.0.113.1:29500" },
      ERROR,
      "203.0.113.1:29500 is not an address of this machine" },
    { "static: the address must be one",
      { .rendezvous = CONFIG_STATIC, .node_rank = 0, .endpoints = "127.0.0.1:x" },
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
    { "dynamic: a node that is told to must be able to",
      { .rendezvous = CONFIG_DYNAMIC, .is_host = 1, .endpoints = "203.0.113.1:29400" },
      ERROR,
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

START_TEST(the_right_node_hosts)
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
    if (cases[_i].result == ERROR)
        ck_assert_msg(strstr(e.text, cases[_i].text), "%s", e.text);
    end();
}
END_TEST

/* Addresses as typed and "localhost" stay what they are, also for several nodes. */
static const char *const loopbacks[] = { "127.0.0.1:0", "localhost:0" };

START_TEST(a_typed_loopback_stays_one)
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
END_TEST

/* The port is in use: by a crund, or by another agent of this machine. */
static const struct {
    int is_host, result;
} second[] = { { -1, NOT_HOSTED }, { 1, ERROR } };

START_TEST(a_port_that_is_taken_belongs_to_the_rendezvous)
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
END_TEST

START_TEST(a_host_stays_while_others_need_it)
{
    struct config c = { .rendezvous = CONFIG_LOCAL };
    struct err e;

    ck_assert_int_eq(start(&c, &e), 0);
    ck_assert(rendezvous_host_is_done(&host, &config)); /* it has no others */
    ck_assert(!rendezvous_host_must_stay(&host, &config));
    end();
    c = (struct config){ .rendezvous = CONFIG_STATIC,
                         .node_rank = 1,
                         .endpoints = "127.0.0.1:0" };
    ck_assert_int_eq(start(&c, &e), 0);
    ck_assert(rendezvous_host_is_done(&host, &config)); /* it is none */
    end();
}
END_TEST

#define COUNT(list) (int)(sizeof(list) / sizeof((list)[0]))

int main(void)
{
    Suite *s = suite_create("rendezvous_host");
    TCase *tc = tcase_create("rendezvous_host");

    tcase_add_loop_test(tc, the_right_node_hosts, 0, COUNT(cases));
    tcase_add_loop_test(tc, a_typed_loopback_stays_one, 0, COUNT(loopbacks));
    tcase_add_loop_test(tc, a_port_that_is_taken_belongs_to_the_rendezvous, 0,
                        COUNT(second));
    tcase_add_test(tc, a_host_stays_while_others_need_it);
    suite_add_tcase(s, tc);
    return check_main(s);
}
