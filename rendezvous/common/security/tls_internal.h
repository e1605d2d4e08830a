/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/security/openssl.h"
#include "rendezvous/common/security/tls.h"

struct tls_door {
    SSL_CTX *context;
    bool (*find)(void *arg, const char *identity, uint8_t secret[TLS_SECRET_BYTES]);
    void *arg;
};

struct tls_session {
    SSL *ssl; /* NULL until the first step; on the accepting side until the hello is
                 there */
    const struct tls_door *door; /* NULL: the connecting side. Only in a handshake */
    int fd;
    bool accepting, done, wants_write, refused;
    int io_errno;      /* of the socket's last failure */
    size_t taken;      /* bytes, in the handshake */
    unsigned updates;  /* of the peer's keys */
    uint64_t received; /* calls that gave data */
    uint64_t sent;     /* the same, since the last change of keys */
    enum tls_failure failure;
    struct tls_psk psk; /* the secret is wiped when the handshake is done */
    char why[160];
};

/* tls_keys.c: what OpenSSL calls in a handshake, to have the key of either side. */
int tls_check_hello(SSL *ssl, int *alert, void *arg);
int tls_find_psk(SSL *ssl, const unsigned char *identity, size_t size,
                 SSL_SESSION **session);
int tls_use_psk(SSL *ssl, const EVP_MD *digest, const unsigned char **identity,
                size_t *size, SSL_SESSION **session);
void tls_forget_secret(struct tls_session *s);
