/* SPDX-License-Identifier: MIT */
#ifndef AGENT_UI_EVENT_FILE_H
#define AGENT_UI_EVENT_FILE_H

#include "agent/config/config.h"

/*
 * The events of this node as JSON lines: to --events-file, and to standard error with
 * --event-log-handler console.
 */
struct event_file;

struct event_file *event_file_create(const struct config *config); /* never NULL */
void event_file_destroy(struct event_file *ev);                    /* NULL is fine */
/* Each event is told too, also without a file. */
void event_file_tell(struct event_file *ev,
                     void (*tell)(void *arg, const char *kind, const char *text),
                     void *arg);
void event_file_add(struct event_file *ev, const char *kind, uint64_t epoch,
                    const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void event_file_add_formed(struct event_file *ev, uint64_t epoch,
                           const struct msg_start *start);
void event_file_add_failed(struct event_file *ev, uint64_t epoch,
                           const struct failure *f);

#endif
