/* SPDX-License-Identifier: MIT */
#include "tests/worlds/session_script.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/wire/protocol/proto.h"

struct session *script_member;
uint64_t script_now;
char script_called[4096];
struct msg script_last_sent, script_last_order;
char script_last_why[ERROR_TEXT_MAX_BYTES + 1];
const struct id128 script_instance = { { 1 } }, script_other_instance = { { 2 } };

static const char *const name_of[MSG_TYPE_MAX] = {
    [MSG_HELLO] = "HELLO",     [MSG_JOIN] = "JOIN",
    [MSG_RESUME] = "RESUME",   [MSG_HEARTBEAT] = "HEARTBEAT",
    [MSG_FAILED] = "FAILED",   [MSG_FINISHED] = "FINISHED",
    [MSG_STOPPED] = "STOPPED", [MSG_BYE] = "BYE",
    [MSG_JOINED] = "JOINED",   [MSG_BEAT] = "BEAT",
    [MSG_START] = "START",     [MSG_STOP] = "STOP",
    [MSG_MEMBERS] = "MEMBERS", [MSG_ASK_CHECKPOINT] = "ASK_CHECKPOINT",
    [MSG_NOTICE] = "NOTICE",   [MSG_DONE] = "DONE",
    [MSG_REFUSED] = "REFUSED", [MSG_STORE_READY] = "READY",
};

__attribute__((format(printf, 1, 2))) static void note(const char *fmt, ...)
{
    size_t used = strlen(script_called);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(script_called + used, sizeof(script_called) - used, fmt, ap);
    va_end(ap);
}

static void on_connect(void *arg)
{
    note("connect; ");
}

static void on_disconnect(void *arg)
{
    note("disconnect; ");
}

static void on_send(void *arg, const struct msg *m)
{
    script_last_sent = *m;
    if (m->sequence)
        note("send %s %" PRIu64 "#%" PRIu64 "; ", name_of[m->type], m->epoch,
             m->sequence);
    else
        note("send %s; ", name_of[m->type]);
}

static void on_order(void *arg, const struct msg *m)
{
    script_last_order = *m;
    if (m->epoch)
        note("order %s %" PRIu64 "; ", name_of[m->type], m->epoch);
    else
        note("order %s; ", name_of[m->type]);
}

static void on_outage(void *arg, bool out, const char *why)
{
    snprintf(script_last_why, sizeof(script_last_why), "%s", why);
    note(out ? "out; " : "back; ");
}

static void on_abandoned(void *arg, const char *why)
{
    snprintf(script_last_why, sizeof(script_last_why), "%s", why);
    note("abandoned; ");
}

static const struct session_calls calls = {
    .connect = on_connect,
    .disconnect = on_disconnect,
    .send = on_send,
    .order = on_order,
    .outage = on_outage,
    .abandoned = on_abandoned,
};

void script_create(bool strict, uint64_t seed)
{
    struct session_config config = {
        .join = { .run_id = "job", .incarnation = { { 9 } }, .workers = 2 },
        .connect_for_ms = CONNECT_FOR_MS,
        .outage_grace_ms = GRACE_MS,
        .strict_fence = strict,
        .seed = seed,
        .software = "test",
    };

    session_destroy(script_member);
    script_rendezvous = (struct id128){ { 0x4e } };
    script_now = T0;
    script_called[0] = '\0';
    script_member = session_create(&config, &calls, script_now);
}

void script_setup(void)
{
    script_create(false, 1);
}

void script_teardown(void)
{
    session_destroy(script_member);
    script_member = NULL;
}

struct msg script_message(enum msg_type type, uint64_t epoch)
{
    return (struct msg){ .type = type, .epoch = epoch, .instance = script_instance };
}

void script_receive(struct msg m)
{
    session_received(script_member, &m, script_now);
}

void script_receive_plain(enum msg_type type, uint64_t epoch)
{
    script_receive(script_message(type, epoch));
}

bool script_durable = true;
struct id128 script_rendezvous = { { 0x4e } };

void script_receive_welcome(void)
{
    struct msg m = { .type = MSG_WELCOME,
                     .welcome = { .version = PROTO_VERSION_MAX,
                                  .durable = script_durable,
                                  .rendezvous = script_rendezvous } };

    script_receive(m);
}

void script_receive_joined(void)
{
    struct msg m = script_message(MSG_JOINED, 0);

    m.joined = (struct msg_joined){ .node = NODE, .slot = 3, .lease_ms = LEASE_MS };
    script_receive(m);
}

void script_receive_refused(enum refusal why, bool retry, uint64_t sequence)
{
    struct msg m = { .type = MSG_REFUSED, .sequence = sequence };

    m.refused.why = why;
    m.refused.retry = retry;
    snprintf(m.refused.text, sizeof(m.refused.text), "not now");
    script_receive(m);
}

void script_receive_ack(uint64_t sequence)
{
    struct msg m = script_message(MSG_ACK, 0);

    m.sequence = sequence;
    script_receive(m);
}

void script_receive_stop(uint64_t epoch, uint32_t grace_ms)
{
    struct msg m = script_message(MSG_STOP, epoch);

    m.stop.grace_ms = grace_ms;
    script_receive(m);
}

void script_report(enum msg_type type, uint64_t epoch)
{
    struct msg m = { .type = type, .epoch = epoch };

    session_report(script_member, &m, script_now);
}

/* Goes on to the next thing that is due. */
void script_tick(void)
{
    uint64_t next = session_next_tick(script_member);

    ck_assert_uint_ne(next, UINT64_MAX);
    if (next > script_now)
        script_now = next;
    session_tick(script_member, script_now);
}

/* Lets time pass; whatever comes due on the way happens in its time. */
void script_pass_until(uint64_t when)
{
    while (session_next_tick(script_member) <= when)
        script_tick();
    script_now = when;
}

void script_greet(void)
{
    script_tick();
    session_connected(script_member, script_now);
}

void script_join(void)
{
    script_greet();
    script_receive_welcome();
}

void script_attach(void)
{
    script_join();
    script_receive_joined();
    script_called[0] = '\0';
}

void script_attach_strictly(void)
{
    script_create(true, 1);
    script_attach();
}

void script_lose(const char *why)
{
    session_connection_lost(script_member, why, script_now);
}
