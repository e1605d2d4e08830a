/* SPDX-License-Identifier: MIT */
#ifndef TESTS_HELPERS_PROTO_FILL_H
#define TESTS_HELPERS_PROTO_FILL_H

#include <stdbool.h>

#include "rendezvous/proto_fields.h"
#include "rendezvous/message.h"

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

/* Whether two messages differ at most in the length of texts that are not names. */
bool proto_same_but_texts(const struct msg *a, const struct msg *b);

#endif
