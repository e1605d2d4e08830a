/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/id128.h"
#include "rendezvous/common/security/tls.h"

#define STORE_KEYS_KEPT 8

/*
 * The secret of an epoch's store. Every agent computes it from its key, so it never
 * travels. It is of no use for another epoch, nor for anything else that a key opens.
 * Keys may be replaced during an epoch: a secret that was used in it stays valid until
 * its end.
 */
struct store_epoch {
    struct key_ring *keys;
    struct id128 instance; /* of the job */
    uint64_t epoch;
    unsigned kept;         /* secrets that were found */
    struct tls_psk *known; /* STORE_KEYS_KEPT; NULL: not open */
};

/* For the connecting side, with the first key. The caller wipes psk. */
int store_token_make(const struct store_epoch *of, struct tls_psk *psk,
                     struct err *e) MUST_CHECK;
/* The accepting side keeps the secret of its own first key from the beginning. */
void store_token_begin(struct store_epoch *of);
void store_token_wipe(struct store_epoch *of);

/* For the accepting side: the secret of an identity of this epoch and one of the keys.
 * of: a struct store_epoch, of which it is the only user for that time. */
bool store_token_find(void *of, const char *identity, uint8_t secret[TLS_SECRET_BYTES]);
