/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/access.h"
#include "rendezvous/common/base/err.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * The kinds of events: the words that the rendezvous and the agents use, and that
 * crunctl(1) lists. An event of a newer peer may have another kind.
 */
enum event_call {
    EVENT_CALL_NEVER,   /* unless the kind was asked for */
    EVENT_CALL_RESTART, /* if it is of a later epoch than the first */
    EVENT_CALL_ALWAYS
};

struct event_kind {
    const char *name;
    /* What a peer needs to be shown the text. It may hold the pid of a process, the
     * address of a peer, or what a worker has printed. */
    enum access least;
    enum event_call call;
    const char *meaning;
};

/* Ends with a NULL name. */
extern const struct event_kind event_kinds[];

const struct event_kind *event_kind_find(const char *name); /* NULL: unknown */
/* The least access of a peer that is shown the text of an event of that kind. */
enum access event_kind_access(const char *name);
/* For a peer with less access: its text is only its host and kind. */
void event_hide_text(struct msg_event *event);
/* Whether --on-event reports it unless told otherwise. */
bool event_kind_calls(const struct msg_event *event);
/* "failed,done": a bit for each kind, by its place in the table; "all": all. */
int event_kinds_select(const char *list, uint64_t *chosen, struct err *e) MUST_CHECK;
