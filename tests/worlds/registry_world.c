/* SPDX-License-Identifier: MIT */
#include "tests/worlds/registry_world.h"

#include <stdio.h>
#include <string.h>

#include "tests/worlds/check_main.h"

struct registry *g;
struct memdisk *disk;
struct registry_link link_of[CONNS];
uint64_t now = 1000, wall_ahead, sequence;

static uint8_t next_id;

static void on_send(void *arg, void *conn, const struct msg *m)
{
    struct registry_link *l = conn;

    ck_assert_uint_lt(l->count, KEPT);
    l->got[l->count++] = *m;
    if (m->type == MSG_JOINED)
        l->instance = m->instance;
}

static void on_hang_up(void *arg, void *conn)
{
    ((struct registry_link *)conn)->hung_up = true;
}

static struct id128 on_random_id(void *arg)
{
    return (struct id128){ { 0x1d, ++next_id } };
}

struct id128 digest_of(void *arg, const struct id128 *incarnation)
{
    struct id128 digest = *incarnation;

    for (unsigned i = 0; i < sizeof(digest.byte); i++)
        digest.byte[i] ^= 0xa5;
    return digest;
}

void begin_registry_as(struct registry_config c)
{
    struct err e;

    c.software = "crun test";
    c.random_id = on_random_id;
    c.digest = digest_of;
    c.send = on_send;
    c.hang_up = on_hang_up;
    for (unsigned i = 0; i < CONNS; i++) { /* without what it got: that is large */
        link_of[i].peer = NULL;
        link_of[i].count = 0;
        link_of[i].instance = (struct id128){ { 0 } };
        link_of[i].hung_up = false;
    }
    g = registry_create(&c, now, now + wall_ahead, &e);
    ck_assert_msg(g != NULL, "%s", g ? "" : e.text);
}

void begin_registry(bool standalone)
{
    begin_registry_as(
        (struct registry_config){ .standalone = standalone,
                                  .witness = true,
                                  .disk = disk ? memdisk_disk(disk) : NULL });
}

void pass_ticks(unsigned ms)
{
    for (unsigned i = 0; i < ms; i += 100) {
        now += 100;
        registry_tick(g, now, now + wall_ahead);
    }
}

void commit_registry(void)
{
    struct err e = { 0 };

    ck_assert_msg(registry_commit(g, &e) == 0, "%s", e.text);
}

int send_to_registry(unsigned c, struct msg *m)
{
    struct err e;
    int rc;

    link_of[c].count = 0;
    m->sequence = ++sequence;
    if (id128_is_zero(&m->instance))
        m->instance = link_of[c].instance;
    rc = registry_message(g, link_of[c].peer, m, now, now + wall_ahead, &e);
    commit_registry();
    return rc;
}

const struct msg *message_got(unsigned c, enum msg_type type)
{
    for (unsigned i = 0; i < link_of[c].count; i++)
        if (link_of[c].got[i].type == type)
            return &link_of[c].got[i];
    return NULL;
}

void connect_to_registry_as(unsigned c, const struct peer_origin *origin)
{
    link_of[c].peer = registry_connect(g, &link_of[c], origin);
}

void connect_to_registry(unsigned c, const char *address)
{
    connect_to_registry_as(c, &(struct peer_origin){ .address = address,
                                                     .uid = 1000,
                                                     .access = ACCESS_AGENT });
}

void greet_registry(unsigned c, enum peer_kind role)
{
    struct msg m = { .type = MSG_HELLO,
                     .hello = { .version_min = PROTO_VERSION_MIN,
                                .version_max = PROTO_VERSION_MAX,
                                .keepers = true,
                                .flush = true } };

    m.hello.role = role;
    if (!link_of[c].peer) {
        char address[16];

        snprintf(address, sizeof(address), "10.0.0.%u", c + 1);
        connect_to_registry(c, address);
    }
    ck_assert_int_eq(send_to_registry(c, &m), 0);
}

struct msg join_message(unsigned c, const char *run_id)
{
    struct msg m = { .type = MSG_JOIN };
    struct msg_join *j = &m.join;

    snprintf(j->run_id, sizeof(j->run_id), "%s", run_id);
    snprintf(j->host, sizeof(j->host), "node-%u", c);
    j->incarnation = (struct id128){ { (uint8_t)(c + 1), 9, 9 } };
    j->pid = 100 + c;
    j->workers = 2;
    j->node_rank = -1;
    j->config = (struct job_config){ .min_nodes = 2,
                                     .max_nodes = 2,
                                     .max_restarts = 1,
                                     .lease_ms = 3000,
                                     .join_timeout_ms = 60000,
                                     .last_call_ms = 1000,
                                     .shutdown_grace_ms = 30000,
                                     .failure_grace_ms = 5000,
                                     .scale = JOB_SCALE_NOW,
                                     .program = "train.py",
                                     .arguments_hash = "abc" };
    return m;
}

void join_node(unsigned c)
{
    struct msg m = join_message(c, "resnet");

    greet_registry(c, PEER_AGENT);
    ck_assert_int_eq(send_to_registry(c, &m), 0);
    ck_assert_ptr_nonnull(message_got(c, MSG_JOINED));
}

void report_event(unsigned c, enum msg_type type)
{
    struct msg m = { .type = type, .epoch = registry_jobs(g)->membership.epoch };

    if (type == MSG_STORE_READY) {
        strcpy(m.store_ready.address, "10.0.0.1");
        m.store_ready.port = 1234;
        strcpy(m.store_ready.free_ports, "=4321 api=4322");
    } else if (type == MSG_FAILED) {
        m.failed = (struct failure){ .kind = FAILURE_EXIT, .rank = 3, .code = 85 };
        strcpy(m.failed.said, "it broke");
    }
    ck_assert_int_eq(send_to_registry(c, &m), 0);
    ck_assert_ptr_nonnull(message_got(c, MSG_ACK));
    ck_assert_uint_eq(message_got(c, MSG_ACK)->sequence, sequence);
}

void run_job(void)
{
    join_node(0);
    join_node(1);
    report_event(0, MSG_STORE_READY);
}

const struct msg *refusal_got(unsigned c, enum refusal why, const char *words)
{
    const struct msg *m = message_got(c, MSG_REFUSED);

    ck_assert_msg(m != NULL, "not refused");
    ck_assert_int_eq(m->refused.why, why);
    ck_assert_msg(strstr(m->refused.text, words) != NULL, "\"%s\" is not in \"%s\"",
                  words, m->refused.text);
    return m;
}

void end_registry(void)
{
    for (unsigned c = 0; c < CONNS; c++)
        if (link_of[c].peer)
            registry_disconnect(g, link_of[c].peer, now);
    registry_destroy(g);
    g = NULL;
}

void begin_registry_on_disk(void)
{
    disk = memdisk_create();
    begin_registry(true);
}

void end_registry_on_disk(void)
{
    end_registry();
    memdisk_destroy(disk);
    disk = NULL;
}

void restart_registry(void)
{
    end_registry();
    memdisk_crash(disk, 1);
    begin_registry(true);
}
