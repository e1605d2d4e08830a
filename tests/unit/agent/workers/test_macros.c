/* SPDX-License-Identifier: MIT */
#include "agent/workers/macros.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/worlds/check_main.h"

/* The second of two nodes, with 4 workers on the first and 3 here. */
static struct config config;
static const struct msg_start start = { .group_rank = 1,
                                        .group_size = 2,
                                        .first_rank = 4,
                                        .world_size = 7,
                                        .address = "10.0.0.1",
                                        .port = 29500,
                                        .free_ports = "=4321 api=4322 a=7 pi=8" };

static void setup(void)
{
    config = (struct config){ .workers = 3 };
}

FIXTURE(setup, NULL);

static const struct {
    const char *given, *expected;
} arguments[] = {
    { "", "" },
    { "plain", "plain" },
    { "${local_rank}", "12" },
    { "$local_rank", "12" },
    { "--out=run_${local_rank}.txt", "--out=run_12.txt" },
    { "${local_rank}${local_rank}", "1212" },
    { "$local_rank/$local_rank", "12/12" },
    { "$local_ranks", "$local_ranks" },
    { "${local_rank", "${local_rank" },
    { "${local_rank }", "${local_rank }" },
    { "${LOCAL_RANK}", "${LOCAL_RANK}" },
    /* crun's own, only in braces: other texts have more right to $rank */
    { "${rank}", "16" },
    { "--rank=${rank}/${world_size}", "--rank=16/7" },
    { "${node_rank}:${local_rank}", "1:12" },
    { "--nodes=${nnodes}x${local_world_size}", "--nodes=2x3" },
    { "tcp://${master_addr}:${master_port}", "tcp://10.0.0.1:29500" },
    { "--port=${free_port}", "--port=4321" },
    { "${free_port:api}:${free_port:a}:${free_port:pi}", "4322:7:8" },
    { "$${free_port:api} $free_port:api", "${free_port:api} $free_port:api" },
    { "${rank:api} ${free_portapi}", "${rank:api} ${free_portapi}" },
    { "$master_addr $${master_addr}", "$master_addr ${master_addr}" },
    { "$${rank} $${world_size}", "${rank} ${world_size}" },
    { "$rank $world_size $node_rank", "$rank $world_size $node_rank" },
    { "$$rank", "$$rank" },
    { "${ranks} ${RANK} ${rank ${unknown} ${group_rank}",
      "${ranks} ${RANK} ${rank ${unknown} ${group_rank}" },
    { "$", "$" },
    { "$$", "$$" },
    { "$${local_rank}", "${local_rank}" },
    { "$1", "$1" },
    { "${}", "${}" },
    { "cost: 5$", "cost: 5$" },
};

TEST_EACH(ranks_stand_in_arguments_as_in_a_python_template, arguments)
{
    const char *given[] = { "/bin/$local_rank", arguments[_i].given, "last", NULL };
    const char **argv;

    config.argv = given;
    argv = macros_replace(&config, &start, 12);
    ck_assert_pstr_eq(argv[0], "/bin/$local_rank"); /* a file that was found */
    ck_assert_pstr_eq(argv[1], arguments[_i].expected);
    ck_assert_pstr_eq(argv[2], "last");
    ck_assert_ptr_null(argv[3]);
    free(argv);
}

static const struct {
    const char *given, *names, *error;
} ports[] = {
    { "plain $free_port:a ${rank:a} ${free_port}", "", NULL },
    { "--api=${free_port:api} --dist=${free_port:d_2}/${free_port:api}", "api d_2",
      NULL },
    { "$${free_port:no} $$${free_port:no}", "", NULL },
    { "${free_port:a", "", "${free_port:a: the name after \"${free_port:\" has" },
    { "${free_port:}", "", "${free_port:}: the name" },
    { "${free_port:a b}", "", "${free_port:a b}: the name" },
    { "${free_port:a-b}", "", "${free_port:a-b}: the name" },
    { "${free_port:\xc3\xa9}", "", "the name" },
    { "${free_port:${rank}}", "", "the name" },
    { "${free_port:abcdefghijklmnopqrstuvwxyz_12345}",
      "abcdefghijklmnopqrstuvwxyz_12345", NULL },
    { "${free_port:abcdefghijklmnopqrstuvwxyz_123456}", "", "the name" },
};

TEST_EACH(ports_have_names, ports)
{
    const char *given[] = { ports[_i].given, ports[_i].given, NULL };
    char found[256] = "";
    struct err e;

    ck_assert_int_eq(macros_find_ports(given, &config, &e), ports[_i].error ? -1 : 0);
    if (ports[_i].error)
        ck_assert_ptr_nonnull(strstr(e.text, ports[_i].error));
    for (unsigned i = 0; *config.free_ports[i]; i++)
        snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s%s",
                 i ? " " : "", config.free_ports[i]);
    ck_assert_str_eq(found, ports[_i].names);
}

TEST(ports_have_a_number_of_names_at_most)
{
    char text[FREE_PORTS_MAX + 1][32];
    const char *given[FREE_PORTS_MAX + 2] = { NULL };
    struct err e;

    for (int i = 0; i <= FREE_PORTS_MAX; i++) {
        ck_assert_int_eq(macros_find_ports(given, &config, &e), 0);
        snprintf(text[i], sizeof(text[i]), "${free_port:p%d}", i);
        given[i] = text[i];
    }
    ck_assert_int_eq(macros_find_ports(given, &config, &e), -1);
    ck_assert_str_eq(e.text, "${free_port:p16}: more than 16 names of ports");
}

static const struct {
    const char *given, *ports, *lacking;
} lacks[] = {
    { "plain ${rank} $${free_port:b}", "", NULL },
    { "${free_port}", "=1", NULL },
    { "${free_port}", "", "${free_port}" },
    { "${free_port}", "a=1", "${free_port}" },
    { "--x=${free_port:a},${free_port:b}", "=1 a=2 b=3", NULL },
    { "--x=${free_port:a},${free_port:b}", "=1 b=3", "${free_port:a}" },
    { "--x=${free_port:a},${free_port:b}", "=1 a=3 bb=4", "${free_port:b}" },
    { "${free_port:a}", "a=none", "${free_port:a}" },
};

/* Of a node with other arguments, or an earlier version. */
TEST_EACH(a_port_that_rank_0_has_not_sent_is_named, lacks)
{
    const char *given[] = { "${free_port:program}", lacks[_i].given, NULL };
    struct msg_start from = { .port = 1 };
    char buf[64];

    config.argv = given;
    snprintf(from.free_ports, sizeof(from.free_ports), "%s", lacks[_i].ports);
    ck_assert_pstr_eq(macros_lacking_port(&config, &from, buf, sizeof(buf)),
                      lacks[_i].lacking);
}
