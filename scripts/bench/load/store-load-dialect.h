/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * The requests of a client of the load generator and the expected answers, computed
 * byte by byte before the clock starts: the same operations in the protocols of three
 * servers. Counters go up and down, so that an answer does not depend on the number of
 * requests.
 */
enum dialect { DIALECT_TCPSTORE, DIALECT_REDIS, DIALECT_ECHO, DIALECT_COUNT };
enum operation { OP_SET, OP_GET, OP_ADD, OP_WAIT, OP_PYGET, OP_COUNT };

extern const char *const dialect_names[DIALECT_COUNT];
extern const char *const operation_names[OP_COUNT];

struct bytes {
    uint8_t *data;
    size_t size, room;
};

/*
 * One turn of a client. It has a second connection, its partner, for OP_WAIT: the first
 * waits and the partner writes. The turn is over when both have received all of
 * `reply`.
 */
struct exchange {
    struct bytes request[2], reply[2];
    unsigned operations; /* completed by this turn */
};

#define SCRIPT_TURNS_MAX 2

struct script {
    struct exchange prepare;
    struct exchange turn[SCRIPT_TURNS_MAX];
    unsigned turns; /* repeated for as long as the run lasts */
};

/* The first message of every connection and its answer, in request[0] and reply[0]. */
void dialect_hello(enum dialect d, struct exchange *hello);

/* `depth` operations are sent at once;
 * OP_WAIT and OP_PYGET only support a depth of 1. */
void dialect_script(enum dialect d, enum operation op, const char *key,
                    const struct bytes *value, unsigned depth, struct script *script);

void script_fini(struct script *script);
void exchange_fini(struct exchange *exchange);
