/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/client/backoff.h"
#include "rendezvous/client/lease.h"
#include "rendezvous/client/order_filter.h"
#include "rendezvous/client/outbox.h"
#include "rendezvous/client/session.h"
#include "rendezvous/client/session_identity.h"

/* Shared by session.c, session_outage.c and session_reports.c. */
struct session {
    struct session_config config;
    struct session_calls calls;
    enum session_state state;
    uint64_t entered_at, created_at;
    struct backoff backoff;

    /* APART */
    bool connecting;
    uint64_t retry_at;
    bool out;      /* the outage was logged */
    bool impostor; /* likewise that another rendezvous answers */
    bool key_refused;
    uint64_t out_since;
    char why[ERROR_TEXT_MAX_BYTES + 1];

    struct session_identity identity;
    bool kept; /* see session_set_kept */

    /* ATTACHED */
    struct lease lease;
    uint64_t asked_at, beat_at;
    struct msg_heartbeat progress;

    struct order_filter orders;
    struct outbox reports;
    struct outbox epoch_reports; /* of the epoch, answered or not: see repeat_reports */
    bool regression_reported;
    bool report_again; /* one was refused with retry: all follow the next
                          heartbeat */
};

struct session_step {
    struct session *session;
    const struct msg *msg;
    const char *why;
    uint64_t now;
};

typedef void session_handler(struct session_step *step);

#define SESSION_NEVER UINT64_MAX

static inline uint64_t session_earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* session.c */
/* The caller may deliver a last order after this. */
void session_end(struct session_step *step);
void session_send(void *session, struct msg *msg);
session_handler session_on_entry_refused;

/* session_outage.c */
session_handler session_on_give_up;
/* When this agent would give up, for the guard. */
void session_report_fence(const struct session *s);

/* session_reports.c */
void session_send_reports(struct session *s);
session_handler session_on_report, session_on_ack, session_on_refused;
session_handler session_on_order, session_on_early_order, session_on_notice;
