/* SPDX-License-Identifier: MIT */
#ifndef AGENT_UI_EVENT_FILE_H
#define AGENT_UI_EVENT_FILE_H

#include "agent/config/config.h"

/*
 * What happens on this node, as JSON lines: to --events-file, and to standard error
 * with --event-log-handler console.
 */
struct events;

struct events *events_create(const struct config *config); /* never NULL */
void events_destroy(struct events *ev);                    /* NULL is fine */
void events_add(struct events *ev, const char *kind, uint64_t epoch, const char *fmt,
                ...) __attribute__((format(printf, 4, 5)));
void events_add_formed(struct events *ev, uint64_t epoch,
                       const struct msg_start *start);
void events_add_failed(struct events *ev, uint64_t epoch, const struct failure *f);

#endif
