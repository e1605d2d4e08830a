/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/wire/protocol/message.h"
#include "rendezvous/wire/protocol/proto_fields.h"

/* Messages with something in every field, made from the tables. */
enum proto_fill {
    PROTO_FILL_MIN,     /* the lowest numbers, the shortest texts, false */
    PROTO_FILL_TYPICAL, /* no field that is left out */
    PROTO_FILL_MAX,     /* the highest numbers, full texts, true */
    PROTO_FILL_COUNT
};

void proto_fill(struct msg *m, unsigned type, enum proto_fill how);

/* Fill every text that is not a name with c. */
void proto_fill_texts(struct msg *m, char c);

/* Decode a body from memory of exactly its size, so that a sanitizer sees a byte too
 * many read. Returns what proto_decode does. */
int proto_decode_exactly(unsigned type, const char *body, size_t size, struct msg *out,
                         struct err *e);

/* Whether two messages differ at most in the length of texts that are not names. */
bool proto_same_but_texts(const struct msg *a, const struct msg *b);
