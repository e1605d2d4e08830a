/* SPDX-License-Identifier: MIT */
/* What crun's flags say about the rendezvous. */
#include "launcher/plan/config_build.h"

#include <string.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/option_lines.h"

static const struct {
    const char *flags;
    enum config_rendezvous rendezvous;
    const char *endpoints;
    int32_t node_rank;
    uint16_t store_port;
    const char *local_addr;
} places[] = {
    /* one node, which no other has to find */
    { "", CONFIG_LOCAL, NULL, -1, 0, NULL },
    { "--nnodes 1", CONFIG_LOCAL, NULL, -1, 0, NULL },
    { "--nnodes 1:1 --node-rank 0", CONFIG_LOCAL, NULL, 0, 0, NULL },
    { "--standalone", CONFIG_LOCAL, NULL, -1, 0, NULL },
    { "--standalone --nnodes 1:4", CONFIG_LOCAL, NULL, -1, 0, NULL },
    { "--standalone --master-port 29501", CONFIG_LOCAL, NULL, -1, 0, NULL },
    { "--standalone --rdzv-endpoint a:1 --rdzv-backend c10d", CONFIG_LOCAL, NULL, -1, 0,
      NULL },
    { "--rdzv-backend c10d", CONFIG_LOCAL, NULL, -1, 0, NULL },
    { "--rdzv-backend=c10d --rdzv-endpoint=localhost:0", CONFIG_LOCAL, NULL, -1, 0,
      NULL },
    { "--master-addr 10.0.0.1", CONFIG_LOCAL, NULL, -1, 0, NULL },
    /* a port that was asked for is kept */
    { "--master-port 29501", CONFIG_LOCAL, NULL, -1, 29501, NULL },
    { "--master_addr localhost --master_port 29501", CONFIG_LOCAL, NULL, -1, 29501,
      "localhost" },
    { "--master-port 29501 --store-port 7", CONFIG_LOCAL, NULL, -1, 7, NULL },
    { "--master-addr 10.0.0.1 --master-port 29501", CONFIG_STATIC, "10.0.0.1:29501", 0,
      0, NULL },
    /* static */
    { "--nnodes 2", CONFIG_STATIC, "127.0.0.1:29500", 0, 0, NULL },
    { "--nnodes 2 --node-rank 1 --master-addr a --master-port 1", CONFIG_STATIC, "a:1",
      1, 0, NULL },
    { "--nnodes 2 --master-addr [::1]", CONFIG_STATIC, "[::1]:29500", 0, 0, NULL },
    { "--nnodes 2 --master-addr ::1", CONFIG_STATIC, "[::1]:29500", 0, 0, NULL },
    { "--nnodes 2 --rdzv-backend static --rdzv-endpoint a:5 --node-rank 1",
      CONFIG_STATIC, "a:5", 1, 0, NULL },
    { "--nnodes 2 --rdzv-endpoint a --node-rank 1", CONFIG_STATIC, "a:29500", 1, 0,
      NULL },
    /* dynamic */
    { "--nnodes 2 --rdzv-backend c10d", CONFIG_DYNAMIC, "127.0.0.1:29400", -1, 0,
      NULL },
    { "--nnodes 1:4 --rdzv-backend c10d --rdzv-endpoint a --node-rank 3",
      CONFIG_DYNAMIC, "a:29400", 3, 0, NULL },
    { "--nnodes 4 --rdzv-endpoint a:1", CONFIG_DYNAMIC, "a:1", -1, 0, NULL },
    { "--rdzv-endpoint localhost:29400", CONFIG_DYNAMIC, "localhost:29400", -1, 0,
      NULL },
    { "--nnodes 4 --rdzv-endpoint a:1,b,[::1],c:65535", CONFIG_DYNAMIC,
      "a:1,b:29400,[::1]:29400,c:65535", -1, 0, NULL },
    { "--nnodes 4 --rdzv-endpoint a --local-addr 10.1.1.1", CONFIG_DYNAMIC, "a:29400",
      -1, 0, "10.1.1.1" },
};

FIXTURE(option_lines_setup, NULL);

TEST_EACH(the_rendezvous_is_where_the_flags_say, places)
{
    struct options o;
    struct config c;
    char line[256];

    snprintf(line, sizeof(line), "%s train", places[_i].flags);
    accept_line(line, &o, &c);
    ck_assert_int_eq(c.rendezvous, places[_i].rendezvous);
    ck_assert_pstr_eq(c.endpoints, places[_i].endpoints);
    ck_assert_int_eq(c.node_rank, places[_i].node_rank);
    ck_assert_uint_eq(c.store_port, places[_i].store_port);
    ck_assert_pstr_eq(c.local_addr, places[_i].local_addr);
    config_build_release(&c);
}

static const struct {
    const char *conf;
    uint32_t lease_ms, join_ms, last_call_ms, outage_ms;
    int is_host;
} confs[] = {
    { "lease=1", 1000, 600000, 30000, 300000, -1 },
    { "keep_alive_interval=2", 6000, 600000, 30000, 300000, -1 },
    { "keep_alive_max_attempt=6", 30000, 600000, 30000, 300000, -1 },
    { "keep_alive_interval=1,keep_alive_max_attempt=2", 2000, 600000, 30000, 300000,
      -1 },
    { "keep_alive_interval=1,lease=9", 9000, 600000, 30000, 300000, -1 },
    { " join_timeout = 5 , last_call_timeout = 0 ", 15000, 5000, 0, 300000, -1 },
    { "outage_grace=10,is_host=True", 15000, 600000, 30000, 10000, 1 },
    { "is_host=0", 15000, 600000, 30000, 300000, 0 },
    { "timeout=3", 15000, 600000, 30000, 300000, -1 }, /* static only */
    { "close_timeout=3,heartbeat_timeout=3,read_timeout=3,use_libuv=false,"
      "store_type=tcp",
      15000, 600000, 30000, 300000, -1 },
    { "", 15000, 600000, 30000, 300000, -1 },
    /* quotes that a shell has left there */
    { "'join_timeout=5,last_call_timeout=1'", 15000, 5000, 1000, 300000, -1 },
    { " \"join_timeout=5,is_host=1\" ", 15000, 5000, 30000, 300000, 1 },
    { "join_timeout='5',last_call_timeout=\"1\"", 15000, 5000, 1000, 300000, -1 },
    { "''", 15000, 600000, 30000, 300000, -1 },
};

TEST_EACH(the_keys_of_rdzv_conf_are_torchruns_and_ours, confs)
{
    char conf[128],
        *argv[] = { "crun", "--rdzv-endpoint=a", "--nnodes=2", "--rdzv-conf", conf, "x",
                    NULL };
    struct options o;
    struct config c;
    struct err e;
    int word;

    snprintf(conf, sizeof(conf), "%s", confs[_i].conf);
    ck_assert_int_eq(options_parse(6, argv, &o, &word, &e), 0);
    ck_assert_int_eq(
        config_build(&o, (const char *const *)argv + word, &machine, &c, &e), 0);
    ck_assert_uint_eq(c.job.lease_ms, confs[_i].lease_ms);
    ck_assert_uint_eq(c.job.join_timeout_ms, confs[_i].join_ms);
    ck_assert_uint_eq(c.job.last_call_ms, confs[_i].last_call_ms);
    ck_assert_uint_eq(c.outage_grace_ms, confs[_i].outage_ms);
    ck_assert_int_eq(c.is_host, confs[_i].is_host);
    config_build_release(&c);
}

static const struct {
    const char *conf, *note;
} notes[] = {
    { "join_timeout=5", "" },
    { "join_timout=3", "--rdzv-conf: join_timout (did you mean join_timeout?) is not a "
                       "key of crun and has no effect" },
    { "rank=0", "--rdzv-conf: rank is not a key of crun and has no effect" },
    { "protocol=https,lease=2,leese=3",
      "--rdzv-conf: protocol, leese (did you mean lease?) are not keys of crun and "
      "have no effect" },
};

TEST_EACH(an_unknown_key_is_a_note, notes)
{
    struct rdzv_conf conf;
    struct err e;

    rdzv_conf_init(&conf);
    ck_assert_int_eq(rdzv_conf_parse(&conf, notes[_i].conf, &e), 0);
    ck_assert_str_eq(conf.note, notes[_i].note);
}

TEST(many_unknown_keys_fit_into_a_note)
{
    char text[4096] = "";
    struct rdzv_conf conf;
    struct err e;

    for (int i = 0; i < 200; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%skey%d=1",
                 i ? "," : "", i);
    rdzv_conf_init(&conf);
    ck_assert_int_eq(rdzv_conf_parse(&conf, text, &e), 0);
    ck_assert_ptr_nonnull(strstr(conf.note, "key0, key1, "));
    ck_assert_ptr_nonnull(strstr(conf.note, ", ... are not keys of crun"));
}

TEST(a_static_rendezvous_waits_for_its_timeout)
{
    struct options o;
    struct config c;

    accept_line("--nnodes 2 --rdzv-conf timeout=3 x", &o, &c);
    ck_assert_uint_eq(c.job.join_timeout_ms, 3000);
    config_build_release(&c);
}

static const struct {
    const char *flags;
    uint32_t replicas;
} kept[] = {
    { "", 1 },
    { "--standalone --nnodes 1:4", 1 },
    { "--nnodes 2", 2 },
    { "--nnodes 1:2 --rdzv-endpoint a", 2 },
    { "--nnodes 2 --spares 1 --rdzv-endpoint a", 3 },
    { "--nnodes 1:3 --rdzv-endpoint a", 3 },
    { "--nnodes 16 --rdzv-conf replicas=5", 5 },
    { "--nnodes 16 --rdzv-conf replicas=1", 1 },
    { "--nnodes 2 --rdzv-conf replicas=3", 3 },
};

TEST_EACH(the_records_are_on_three_nodes_or_all, kept)
{
    struct options o;
    struct config c;
    char line[128];

    snprintf(line, sizeof(line), "%s x", kept[_i].flags);
    accept_line(line, &o, &c);
    ck_assert_uint_eq(c.replicas, kept[_i].replicas);
    config_build_release(&c);
}
