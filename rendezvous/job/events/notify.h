/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * Tells others of events: a command is run for each. A process of its own does it, so
 * that nothing that it waits for delays a job. It is started before a key is read, and
 * before the program gives up programs and connections.
 */
struct notify;

struct notify_config {
    const char *command; /* for sh -c; NULL: none */
    const char *kinds;   /* see event_kinds_select; NULL: what calls */
    char *secret;        /* no other process gets it; NULL: none */
};

/* Of a flag's value. */
int notify_check_kinds(const char *kinds, struct err *e) MUST_CHECK;
/* Flags that need others. */
int notify_check(const struct notify_config *c, struct err *e) MUST_CHECK;

/* *n is NULL if nothing was asked for. The texts of c must outlive it. */
int notify_start(const struct notify_config *c, struct notify **n,
                 struct err *e) MUST_CHECK;
/* It never waits. NULL is fine. */
void notify_event(struct notify *n, const struct msg_event *event);
/* Waits until everything was told, for NOTIFY_LAST_MS at most. */
void notify_end(struct notify *n);
