/* SPDX-License-Identifier: MIT */
#include "tests/worlds/membership_world.h"

#include <check.h>
#include <string.h>

struct membership_world w;

static void on_act(void *arg, const struct membership *r,
                   const struct membership_action *a)
{
    ck_assert_uint_lt(w.actions, ACTIONS_MAX);
    w.action[w.actions++] = *a;
}

static const struct membership_sink sink = { .act = on_act };

const struct membership_memory memory = { .capacity = CAPACITY,
                                          .node = w.node,
                                          .bucket = w.bucket,
                                          .slot_node = w.slot_node,
                                          .slot_identity = w.slot_identity };

struct job_config small_job_config(uint32_t min, uint32_t max, uint32_t restarts)
{
    return (struct job_config){ .min_nodes = min,
                                .max_nodes = max,
                                .max_restarts = restarts,
                                .lease_ms = 3000,
                                .join_timeout_ms = 60000,
                                .last_call_ms = 5000,
                                .shutdown_grace_ms = 30000,
                                .failure_grace_ms = 2000 };
}

void begin_membership_with(struct job_config c)
{
    static const struct id128 instance = { { 0xaa } };

    memset(&w, 0, sizeof(w));
    w.now = 1000;
    membership_init(&w.r, &c, &instance, &memory, w.now);
}

void begin_membership(uint32_t min, uint32_t max, uint32_t restarts)
{
    begin_membership_with(small_job_config(min, max, restarts));
}

struct id128 incarnation_of(unsigned n)
{
    return (struct id128){ { (uint8_t)n, 1, 2, 3, (uint8_t)(n * 7) } };
}

unsigned times_asked(enum membership_action_type type, uint32_t node)
{
    unsigned n = 0;

    for (unsigned i = 0; i < w.actions; i++)
        n += w.action[i].type == type &&
             (node == MEMBERSHIP_NONE || w.action[i].node == node);
    return n;
}

enum membership_verdict take_event(struct membership_event ev, uint32_t *node)
{
    enum membership_verdict v;

    w.actions = 0;
    v = membership_step(&w.r, &ev, w.now, &sink, node);
    membership_sane(&w.r);
    return v;
}

enum membership_verdict send_event_of(enum membership_event_type type, uint32_t node,
                                      uint64_t epoch)
{
    return take_event(
        (struct membership_event){ .type = type,
                                   .node = node,
                                   .incarnation = w.node[node].incarnation,
                                   .epoch = epoch,
                                   .exit_code = 7 },
        NULL);
}

enum membership_verdict send_event(enum membership_event_type type, uint32_t node)
{
    return send_event_of(type, node, w.r.epoch);
}

enum membership_verdict try_join_agent(unsigned n, uint32_t slot, uint32_t workers,
                                       uint32_t *node)
{
    struct membership_event ev = { .type = MEMBERSHIP_EV_JOIN,
                                   .incarnation = incarnation_of(n) };

    ev.join.wanted_slot = slot;
    ev.join.workers = workers;
    ev.join.identity = 1000 + n;
    return take_event(ev, node);
}

enum membership_verdict try_join_agent_from(unsigned n, uint64_t host, uint32_t *node)
{
    struct membership_event ev = { .type = MEMBERSHIP_EV_JOIN,
                                   .incarnation = incarnation_of(n) };

    ev.join.wanted_slot = MEMBERSHIP_NONE;
    ev.join.workers = 2;
    ev.join.identity = host;
    return take_event(ev, node);
}

uint32_t join_agent(unsigned n)
{
    uint32_t node;

    ck_assert_int_eq(try_join_agent(n, MEMBERSHIP_NONE, 2, &node), MEMBERSHIP_OK);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_JOINED, node), 1);
    return node;
}

void pass_time(uint64_t ms, unsigned alive_mask)
{
    struct membership_action kept[ACTIONS_MAX];
    unsigned kept_count = 0;
    uint64_t end = w.now + ms;

    while (w.now < end) {
        uint64_t next = membership_next_tick(&w.r);

        w.now = next > w.now && next < end ? next : end;
        for (uint32_t i = 0; i < w.r.used; i++)
            if (alive_mask & 1u << i && w.node[i].state != MEMBERSHIP_NODE_FREE &&
                w.node[i].connected)
                send_event(MEMBERSHIP_EV_HEARTBEAT, i);
        take_event((struct membership_event){ .type = MEMBERSHIP_EV_TICK }, NULL);
        for (unsigned i = 0; i < w.actions; i++)
            kept[kept_count++ % ACTIONS_MAX] = w.action[i];
    }
    memcpy(w.action, kept, sizeof(kept));
    w.actions = kept_count < ACTIONS_MAX ? kept_count : ACTIONS_MAX;
}

void run_nodes(uint32_t n)
{
    for (unsigned i = 0; i < n; i++)
        join_agent(i + 1);
    if (w.r.state == JOB_FORMING)
        pass_time(w.r.config.last_call_ms, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_int_eq(send_event(MEMBERSHIP_EV_STORE_READY, w.r.leader), MEMBERSHIP_OK);
}

void stop_all_nodes(void)
{
    for (uint32_t i = 0; i < w.r.used && w.r.state == JOB_STOPPING; i++)
        if (w.node[i].state == MEMBERSHIP_NODE_ACTIVE ||
            w.node[i].state == MEMBERSHIP_NODE_FINISHED)
            ck_assert_int_eq(send_event(MEMBERSHIP_EV_STOPPED, i), MEMBERSHIP_OK);
}

enum membership_verdict fail_worker_at(uint32_t node, uint64_t at_ms, int32_t code)
{
    return take_event(
        (struct membership_event){ .type = MEMBERSHIP_EV_FAILED,
                                   .node = node,
                                   .incarnation = w.node[node].incarnation,
                                   .epoch = w.r.epoch,
                                   .at_ms = at_ms,
                                   .exit_code = code },
        NULL);
}

void run_membership(uint32_t min, uint32_t max, uint32_t restarts, uint32_t n)
{
    begin_membership(min, max, restarts);
    run_nodes(n);
}
