/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/access.h"
#include "rendezvous/common/base/err.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * Messages to frames and back, as JSON. A table for each message describes its fields
 * (proto_fields.c); encoding (proto_encode.c), decoding (proto.c), bounds, tests and
 * PROTOCOL.md follow it. Like cJSON, for one thread at a time.
 */
#define PROTO_VERSION_MIN 3
#define PROTO_VERSION_MAX 3

/* A connection is in one phase, which decides what its peer may send. */
enum proto_phase {
    PROTO_NEW,    /* only HELLO */
    PROTO_AGENT,  /* an agent without a node in a job */
    PROTO_JOINED, /* an agent with one */
    PROTO_CTL,
    PROTO_REPLICA, /* another replica of the rendezvous */
    PROTO_PHASE_COUNT
};

/* NULL if no message has the number. */
const char *proto_name(unsigned type);
bool proto_allowed(unsigned type, enum proto_phase phase);
/* What its sender needs; ACCESS_NONE for messages of the rendezvous. */
enum access proto_least_access(unsigned type);
/* Empty the fields that a reader with that access is not shown. */
void proto_redact(struct msg *m, enum access access);
/* The longest body that the rendezvous takes in the phase. */
uint32_t proto_body_max(enum proto_phase phase);

/*
 * Write the whole frame to out. Returns its size. Every message fits in
 * FRAME_HEADER_SIZE + FRAME_BODY_MAX (texts are cut where they would not).
 */
size_t proto_encode(const struct msg *m, uint8_t *out, size_t size);

/*
 * Fill *m from a frame. Strict: JSON in full, depth, no duplicate keys, every required
 * field, every bound; unknown fields are skipped, so that a newer peer may add some.
 */
struct frame_header;
int proto_decode(const struct frame_header *h, const void *body, struct msg *m,
                 struct err *e) MUST_CHECK;

/*
 * Whether text can be a run id, a host or another name: one or more letters, digits and
 * . _ : @ % + -. The field limits its length.
 */
bool proto_is_name(const char *text);

const char *proto_refusal_name(enum refusal why);
const char *proto_failure_kind_name(enum failure_kind kind);
const char *proto_state_name(enum job_state state);
const char *proto_node_state_name(enum node_state state);
const char *proto_cause_name(enum job_cause cause);
const char *proto_reason_name(enum job_reason reason);
const char *proto_scale_name(enum job_scale scale);
enum job_scale proto_scale(const char *name); /* JOB_SCALE_UNKNOWN: it is none */
const char *proto_note_name(enum note_kind kind);
const char *proto_stacks_name(enum stacks_kind kind);
/* Of KEEPERS: three or more, so that the others can go on without one of them. */
bool proto_keepers_are_several(const char *endpoints);
/* For users: another node, `host`, hosts it now, and why. */
void proto_keepers_moved(const struct msg_keepers *k, const char *host, char *text,
                         size_t size);
