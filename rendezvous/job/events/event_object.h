/* SPDX-License-Identifier: MIT */
#pragma once

#include <cjson/cJSON.h>

#include "rendezvous/wire/protocol/message.h"

/*
 * An event as JSON, the same wherever one is written: --events-file, crunctl events
 * --json, the run folder, histories, the page, and notifications.
 */
cJSON *event_object(const struct msg_event *event);

/* The same in one line without its newline, as text that is safe to print. To be freed;
 * NULL: no memory. */
char *event_object_line(const struct msg_event *event);

/* The same for a chat, which shows "text" alone: there it names the job, and cannot
 * call people. */
char *event_object_message(const struct msg_event *event);

/* The event that event_object has made. Each value is checked: another user may have
 * written it. What is missing is empty. */
void event_object_read(const cJSON *o, struct msg_event *event);
