/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/wire/protocol/message.h"

/*
 * Messages that are sent again, in order, until each is answered. Each has its own
 * sequence number, which the answer repeats. Pure; embed it.
 */
struct outbox {
    struct outbox_entry *first, **last;
    unsigned count;
    uint64_t sequence; /* of the newest; the first is 1 */
};

void outbox_init(struct outbox *o);
void outbox_clear(struct outbox *o); /* numbering continues */

/* Keep a copy of msg with the next sequence number; returns the copy. */
struct msg *outbox_add(struct outbox *o, const struct msg *msg);
bool outbox_has(const struct outbox *o, uint64_t sequence);
/* The oldest of this type, or NULL. */
struct msg *outbox_find_type(const struct outbox *o, enum msg_type type);
/* The message is answered; may be called again. */
void outbox_settle(struct outbox *o, uint64_t sequence);
void outbox_each(struct outbox *o, void (*fn)(void *arg, struct msg *msg), void *arg);
