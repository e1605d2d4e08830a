/* SPDX-License-Identifier: MIT */
#include <string.h>
#include <sys/random.h>

#include "rendezvous/common/security/tls_internal.h"

static SSL_SESSION *session_of_secret(SSL *ssl, const uint8_t *secret)
{
    static const unsigned char suite[] = { 0x13, 0x01 }; /* TLS_AES_128_GCM_SHA256 */
    const SSL_CIPHER *cipher = openssl.SSL_CIPHER_find(ssl, suite);
    SSL_SESSION *session = openssl.SSL_SESSION_new();

    if (session && cipher &&
        openssl.SSL_SESSION_set1_master_key(session, secret, TLS_SECRET_BYTES) &&
        openssl.SSL_SESSION_set_cipher(session, cipher) &&
        openssl.SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
        return session;
    openssl.SSL_SESSION_free(session);
    return NULL;
}

/* After the handshake the secret is of no more use, and must not be in a core. */
void tls_forget_secret(struct tls_session *s)
{
    static const uint8_t zeroes[TLS_SECRET_BYTES];
    SSL_SESSION *session = openssl.SSL_get_session(s->ssl);

    if (session)
        (void)openssl.SSL_SESSION_set1_master_key(session, zeroes, sizeof(zeroes));
    explicit_bzero(s->psk.secret, sizeof(s->psk.secret));
}

/* An identity that is not known takes the same path as a known one, with a secret that
 * the peer cannot have. */
int tls_find_psk(SSL *ssl, const unsigned char *identity, size_t size,
                 SSL_SESSION **session)
{
    struct tls_session *s = openssl.SSL_get_ex_data(ssl, 0);
    uint8_t secret[TLS_SECRET_BYTES], found[TLS_SECRET_BYTES];

    *session = NULL;
    if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
        return 0;
    memset(found, 0, sizeof(found));
    s->psk.identity[0] = '\0';
    if (size <= TLS_IDENTITY_MAX && !memchr(identity, '\0', size)) {
        memcpy(s->psk.identity, identity, size);
        s->psk.identity[size] = '\0';
        if (s->door->find(s->door->arg, s->psk.identity, found))
            memcpy(secret, found, sizeof(secret));
    }
    *session = session_of_secret(ssl, secret);
    explicit_bzero(secret, sizeof(secret));
    explicit_bzero(found, sizeof(found));
    return *session != NULL;
}

/* A hello has a key, and a share of the one group: else OpenSSL would ask for another
 * hello, and keep the session meanwhile. */
int tls_check_hello(SSL *ssl, int *alert, void *arg)
{
    static const unsigned char x25519[] = { 0x00, 0x1d };
    const unsigned char *share, *psk;
    size_t share_size, psk_size;

    if (openssl.SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_psk, &psk, &psk_size) &&
        openssl.SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_key_share, &share,
                                          &share_size) &&
        share_size >= 4 && memcmp(share + 2, x25519, sizeof(x25519)) == 0)
        return SSL_CLIENT_HELLO_SUCCESS;
    *alert = SSL_AD_HANDSHAKE_FAILURE;
    return SSL_CLIENT_HELLO_ERROR;
}

int tls_use_psk(SSL *ssl, const EVP_MD *digest, const unsigned char **identity,
                size_t *size, SSL_SESSION **session)
{
    struct tls_session *s = openssl.SSL_get_ex_data(ssl, 0);

    (void)digest; /* there is one suite */
    *session = session_of_secret(ssl, s->psk.secret);
    *identity = (const unsigned char *)s->psk.identity;
    *size = strlen(s->psk.identity);
    return *session != NULL;
}
