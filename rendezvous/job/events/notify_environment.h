/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/wire/protocol/message.h"

/* Makes this process' environment that of a command: without the settings and secrets
 * of the program, and with the event as CRUN_EVENT_KIND, CRUN_EVENT_TEXT and others. */
void notify_environment_set(const struct msg_event *event);
