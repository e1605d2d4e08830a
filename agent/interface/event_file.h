/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/config.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * The events of this node as JSON lines, numbered by itself: to --events-file, and to
 * standard error with --event-log-handler console. event_kinds.h has the kinds.
 */
struct event_file;

/* host: of this node, whose text may change. Never NULL. */
struct event_file *event_file_create(const struct config *config, const char *host);
void event_file_destroy(struct event_file *ev); /* NULL is fine */
/* The job is known. */
void event_file_set_instance(struct event_file *ev, const struct id128 *instance);
/* Each event is told too, also without a file. */
void event_file_listen(struct event_file *ev,
                       void (*tell)(void *arg, const struct msg_event *event),
                       void *arg);
void event_file_add(struct event_file *ev, const char *kind, uint64_t epoch,
                    const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void event_file_add_formed(struct event_file *ev, uint64_t epoch,
                           const struct msg_start *start);
void event_file_add_failed(struct event_file *ev, uint64_t epoch,
                           const struct failure *f);
/* A hang or a lost node, if that is the cause, and that the epoch stops. */
void event_file_add_stopping(struct event_file *ev, uint64_t epoch,
                             const struct msg_stop *stop);
