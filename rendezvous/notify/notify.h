/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_NOTIFY_NOTIFY_H
#define RENDEZVOUS_NOTIFY_NOTIFY_H

#include <stdbool.h>

#include "rendezvous/base/err.h"
#include "rendezvous/protocol/message.h"

/*
 * Tells others of events: a command is run for each, a webhook gets each, and a URL is
 * asked for regularly as a sign of life. A process of its own does it, so that nothing
 * that it waits for delays a job. It is started before a key is read, and before the
 * program gives up programs and connections.
 */
struct notify;

struct notify_config {
    const char *command;    /* for sh -c; NULL: none */
    const char *webhook;    /* a URL; NULL: none */
    const char *token_file; /* for the webhook; NULL: none */
    const char *kinds;      /* see event_kinds_select; NULL: what calls */
    const char *heartbeat;  /* a URL; NULL: none */
    char *secret;           /* no other process gets it; NULL: none */
};

/* Of a flag's value. */
int notify_check_url(const char *url, struct err *e) MUST_CHECK;
int notify_check_kinds(const char *kinds, struct err *e) MUST_CHECK;
/* Flags that need others. */
int notify_check(const struct notify_config *c, struct err *e) MUST_CHECK;

/* *n is NULL if nothing was asked for. The texts of c must outlive it. */
int notify_start(const struct notify_config *c, struct notify **n,
                 struct err *e) MUST_CHECK;
/* These never wait. NULL is fine. */
void notify_event(struct notify *n, const struct msg_event *event);
void notify_beat(struct notify *n);
/* Waits until everything was told, for NOTIFY_LAST_MS at most. */
void notify_end(struct notify *n);

#endif
