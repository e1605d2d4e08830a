/* SPDX-License-Identifier: MIT */
#pragma once

#include <check.h>

#include "rendezvous/client/session.h"

/*
 * One member under test and the script that is played to it. What it calls out is
 * written down as text, "connect; send HELLO; ", and a test says what must have been
 * called since it last asked.
 */
#define LEASE_MS 1000
#define BEAT_MS (LEASE_MS / HEARTBEATS_PER_LEASE)
#define CONNECT_FOR_MS 60000
#define GRACE_MS 20000
#define NODE 7
#define T0 1000000

extern struct session *script_member;
extern uint64_t script_now;
extern bool script_durable;            /* what WELCOME says; true */
extern struct id128 script_rendezvous; /* likewise */
extern char script_called[4096];
extern struct msg script_last_sent, script_last_order;
extern char script_last_why[ERROR_TEXT_MAX_BYTES + 1];
extern const struct id128 script_instance, script_other_instance;

/* Compares what was called since the last time, and forgets it. */
#define script_expect(text)                                                            \
    do {                                                                               \
        ck_assert_str_eq(script_called, text);                                         \
        script_called[0] = '\0';                                                       \
    } while (0)

/* A checked fixture. */
void script_setup(void);
void script_teardown(void);

/* Replaces the member by a new one. */
void script_create(bool strict, uint64_t seed);
struct msg script_message(enum msg_type type, uint64_t epoch);
void script_receive(struct msg m);
/* A message that says nothing more. */
void script_receive_plain(enum msg_type type, uint64_t epoch);
void script_receive_welcome(void);
void script_receive_joined(void);
void script_receive_refused(enum refusal why, bool retry, uint64_t sequence);
void script_receive_ack(uint64_t sequence);
void script_receive_stop(uint64_t epoch, uint32_t grace_ms);
void script_report(enum msg_type type, uint64_t epoch);
/* Goes on to the next thing that is due. */
void script_tick(void);
/* Lets time pass; whatever comes due on the way happens in its time. */
void script_pass_until(uint64_t when);
/* As far as HELLO, as far as JOIN or RESUME, attached (and what was called is
 * forgotten). */
void script_greet(void);
void script_join(void);
void script_attach(void);
void script_attach_strictly(void);
void script_lose(const char *why);
