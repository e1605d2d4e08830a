/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/access.h"
#include "rendezvous/common/base/err.h"
#include "rendezvous/common/security/tls.h"

/*
 * A key proves to a rendezvous what a peer may do, and to the peer that it has reached
 * the right rendezvous. A file holds it as one line of text, the secret in hex:
 *
 *     crun1:9f2c5a1be07d4e83:agent:0:0123...
 *
 * From a key of access `agent`, keys of less access and with an earlier end are
 * derived, under the same id. The rendezvous derives them too, so it needs the agent's
 * key alone. The agent's key cannot be computed from a derived one.
 */
#define KEY_ID_SIZE 17 /* 16 hex digits */
#define KEY_TEXT_SIZE 144
#define KEY_DATE_SIZE 24

struct key {
    char id[KEY_ID_SIZE];
    enum access access;
    int64_t expires; /* seconds since 1970; 0: never */
    uint8_t secret[TLS_SECRET_BYTES];
};

/* What a key says of itself on the wire: "crun1:<id>:<access>:<expires>". */
struct key_identity {
    char id[KEY_ID_SIZE];
    enum access access;
    int64_t expires;
};

/* A new random key of access `agent`. */
void key_generate(int64_t expires, struct key *out);

/* One line without its end; the error names no part of it. */
int key_parse(const char *line, size_t size, struct key *out, struct err *e) MUST_CHECK;
/* With a line end. Returns buf, which the caller wipes. */
char *key_format(const struct key *k, char buf[KEY_TEXT_SIZE]);

/* The key of that access and end from one of access `agent`; the same key if neither is
 * less. Fails if it would allow more, or longer. */
int key_derive(const struct key *from, enum access access, int64_t expires,
               struct key *out, struct err *e) MUST_CHECK;

/* Its identity and the secret for a TLS handshake, which the caller wipes. */
void key_psk(const struct key *k, struct tls_psk *out);
/* False: the text is no identity of a key. */
bool key_identity_parse(const char *text, struct key_identity *out);

bool key_has_ended(int64_t expires, int64_t now);
/* "2027-02-20 14:03 UTC", or "never". Returns buf. */
char *key_format_date(int64_t at, char buf[KEY_DATE_SIZE]);

void key_wipe(struct key *k);
