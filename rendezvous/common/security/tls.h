/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rendezvous/common/base/err.h"

/*
 * TLS 1.3 between two ends that share a key: external PSK with X25519 (psk_dhe_ke),
 * TLS_AES_128_GCM_SHA256 only. No certificates, tickets, or early data, so there is
 * nothing to negotiate down to. OpenSSL does it; it is loaded when it is first needed,
 * because linking it would slow every start of a program.
 *
 * A session works on a non-blocking socket that it does not own. It may move between
 * threads, but two must not use it at once.
 */
#define TLS_SECRET_BYTES 32
#define TLS_IDENTITY_MAX 127

struct tls_psk {
    char identity[TLS_IDENTITY_MAX + 1];
    uint8_t secret[TLS_SECRET_BYTES];
};

struct tls_door;
struct tls_session;

/* Load OpenSSL, once per process; from any thread. On failure e says what is missing or
 * too old. */
int tls_load(struct err *e) MUST_CHECK;

/* Starts the same in a thread and returns at once. The first session waits until the
 * thread has ended, and reports its errors. */
void tls_prepare(void);

/* HKDF-SHA-256 of a secret: a new one for the purpose `label` and what `context` says.
 * Needs no OpenSSL, like tls_sha256. */
void tls_hkdf(const uint8_t secret[TLS_SECRET_BYTES], const char *label,
              const void *context, size_t size, uint8_t out[TLS_SECRET_BYTES]);
void tls_sha256(const void *data, size_t size, uint8_t out[32]);

/*
 * The accepting side. `find` fills in the secret of an identity; false if there is
 * none. A random secret is used then, so that the peer cannot tell an unknown identity
 * from a wrong key.
 */
struct tls_door *tls_door_create(bool (*find)(void *arg, const char *identity,
                                              uint8_t secret[TLS_SECRET_BYTES]),
                                 void *arg, struct err *e) MUST_CHECK;
/* Its sessions may outlive it, once their handshakes are done. NULL is fine. */
void tls_door_destroy(struct tls_door *d);

/* NULL: no memory. */
struct tls_session *tls_accept(struct tls_door *d, int fd) MUST_CHECK;
struct tls_session *tls_connect(int fd, const struct tls_psk *psk,
                                struct err *e) MUST_CHECK;
/* 1: done, 0: call again when the socket is readable, or writable if tls_wants_write.
 * -1: failed, see tls_why. At most 4 KiB are taken from a peer before it is done. */
int tls_handshake(struct tls_session *s) MUST_CHECK;
/* The last call returned early because the socket takes no more. */
bool tls_wants_write(const struct tls_session *s);

/*
 * As recv and send: -1 with errno, EAGAIN when it would block. 0 bytes read: the peer
 * has ended the session in good order. ECONNRESET: its connection has ended without
 * that. EPROTO: see tls_why. After EAGAIN of tls_write, call it with the same bytes
 * first.
 */
ssize_t tls_read(struct tls_session *s, void *data, size_t size);
ssize_t tls_write(struct tls_session *s, const void *data, size_t size);
/* More can be read although the socket may not be readable. */
bool tls_pending(const struct tls_session *s);
/* A part of a record has come, and its rest has not. */
bool tls_is_partial(const struct tls_session *s);
/* Signal the peer that no more bytes follow. */
void tls_shut(struct tls_session *s);
void tls_destroy(struct tls_session *s); /* NULL is fine */

/* What kept a handshake from its end. */
enum tls_failure {
    TLS_FAILURE_NONE,
    TLS_FAILURE_KEY, /* the ends have different keys, or one has none for the other */
    TLS_FAILURE_CERTIFICATE, /* the accepting end has a certificate and no key */
    TLS_FAILURE_PROTOCOL,    /* the peer speaks something else, or another TLS */
    TLS_FAILURE_CLOSED,      /* the peer has closed the connection in the middle */
    TLS_FAILURE_SIZE,        /* the peer has sent too much */
    TLS_FAILURE_HERE         /* no memory, or the socket failed */
};
enum tls_failure tls_failure(const struct tls_session *s);
/* The same in words; "" while nothing has failed. */
const char *tls_why(const struct tls_session *s);
/* The identity that the peer has named, on the accepting side; "" before. It is proven
 * once the handshake is done. */
const char *tls_identity(const struct tls_session *s);
