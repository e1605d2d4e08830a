/* SPDX-License-Identifier: MIT */
/* Sessions against OpenSSL's own ends. */
#include <openssl/pem.h>

#include "tests/worlds/tls_world.h"

/* An end of a certificate, which has no key. */
static const char certificate[] =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBbzCCARWgAwIBAgIUJtv+AirXkCuT+oTXb2ahGP9qCicwCgYIKoZIzj0EAwIw\n"
    "DDEKMAgGA1UEAwwBdDAgFw0yNjExMjIxNzA3NTJaGA8yMTI2MTAyOTE3MDc1Mlow\n"
    "DDEKMAgGA1UEAwwBdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABIRcRpcNhcam\n"
    "+0rMWAX0Lfru3rmH2SW8eo3kCSiZhXk6NEj+UN0TtcQhXpVfqaJN2OFKgDE/41n2\n"
    "2sGx6repTW+jUzBRMB0GA1UdDgQWBBTo/J+ZjvWRUo5ip6Gi0fTO3NBb6jAfBgNV\n"
    "HSMEGDAWgBTo/J+ZjvWRUo5ip6Gi0fTO3NBb6jAPBgNVHRMBAf8EBTADAQH/MAoG\n"
    "CCqGSM49BAMCA0gAMEUCIAIjO9AM8KQpbP/UVFyfbV5V2G7DieEWfOv+I1YaDf4r\n"
    "AiEAu34QkkQaLeo6hz4Lnc7WdiQLVU3MkD8WISdCq6aaQ/w=\n"
    "-----END CERTIFICATE-----\n";
static const char certificate_key[] =
    "-----BEGIN PRIVATE KEY-----\n"
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgXZCd0TA8Dbm+ZZRa\n"
    "syp2XgQrWyGsw22F3arDRN64UDWhRANCAASEXEaXDYXGpvtKzFgF9C367t65h9kl\n"
    "vHqN5AkomYV5OjRI/lDdE7XEIV6VX6miTdjhSoAxP+NZ9trBseq3qU1v\n"
    "-----END PRIVATE KEY-----\n";

FIXTURE(set_up, tear_down);

static SSL_SESSION *foreign_secret(SSL *ssl)
{
    static const unsigned char suite[] = { 0x13, 0x01 };
    SSL_SESSION *session = SSL_SESSION_new();

    SSL_SESSION_set1_master_key(session, right.secret, sizeof(right.secret));
    SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, suite));
    SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
    return session;
}

static int on_foreign_psk(SSL *ssl, const EVP_MD *digest,
                          const unsigned char **identity, size_t *size,
                          SSL_SESSION **session)
{
    *identity = (const unsigned char *)right.identity;
    *size = strlen(right.identity);
    *session = foreign_secret(ssl);
    return 1;
}

static SSL *foreign_client(SSL_CTX *context)
{
    SSL *ssl = SSL_new(context);

    SSL_set_fd(ssl, peer);
    SSL_set_connect_state(ssl);
    return ssl;
}

static void foreign_shake(SSL *ssl, struct tls_session *s, int *ours, int *theirs)
{
    *ours = *theirs = 0;
    for (int i = 0; i < 10; i++) {
        if (*theirs <= 0)
            *theirs = SSL_do_handshake(ssl);
        if (*ours == 0)
            *ours = tls_handshake(s);
    }
}

TEST(changes_of_keys_without_end_end_the_session)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    struct tls_session *s = accept_one();
    SSL *ssl;
    int ours, theirs, count;
    char byte;

    SSL_CTX_set_psk_use_session_callback(context, on_foreign_psk);
    ssl = foreign_client(context);
    foreign_shake(ssl, s, &ours, &theirs);
    ck_assert_int_eq(ours, 1);
    for (count = 0; count < 1000; count++) {
        ck_assert_int_eq(SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        ck_assert_int_eq(SSL_write(ssl, "x", 1), 1);
        if (tls_read(s, &byte, 1) < 0)
            break;
    }
    ck_assert_int_eq(count, TLS_UPDATES_MAX);
    ck_assert_int_eq(tls_failure(s), TLS_FAILURE_SIZE);
    SSL_free(ssl);
    SSL_CTX_free(context);
    tls_destroy(s);
}

TEST_LOOP(other_suites_groups_and_versions_are_refused, 0, 4)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    struct tls_session *s = accept_one();
    SSL *ssl;
    int ours, theirs;

    SSL_CTX_set_psk_use_session_callback(context, on_foreign_psk);
    if (_i == 0)
        SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
    if (_i == 1)
        SSL_CTX_set1_groups_list(context, "P-256");
    if (_i == 2)
        SSL_CTX_set_ciphersuites(context, "TLS_CHACHA20_POLY1305_SHA256");
    if (_i == 3) /* no key at all */
        SSL_CTX_set_psk_use_session_callback(context, NULL);
    ssl = foreign_client(context);
    foreign_shake(ssl, s, &ours, &theirs);
    ck_assert_int_eq(ours, -1);
    ck_assert_int_ne(theirs, 1);
    ck_assert_msg(tls_failure(s) == TLS_FAILURE_KEY ||
                      tls_failure(s) == TLS_FAILURE_PROTOCOL,
                  "%d: %s", tls_failure(s), tls_why(s));
    SSL_free(ssl);
    SSL_CTX_free(context);
    tls_destroy(s);
}

/* A man in the middle has a certificate, and everybody may make one. */
TEST(a_server_with_a_certificate_in_place_of_the_key_is_refused)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    BIO *text = BIO_new_mem_buf(certificate, -1),
        *key_text = BIO_new_mem_buf(certificate_key, -1);
    X509 *x509 = PEM_read_bio_X509(text, NULL, NULL, NULL);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(key_text, NULL, NULL, NULL);
    struct tls_session *c = connect_with(&right);
    SSL *ssl;
    int ours = 0, theirs = 0;

    ck_assert_int_eq(SSL_CTX_use_certificate(context, x509), 1);
    ck_assert_int_eq(SSL_CTX_use_PrivateKey(context, key), 1);
    ssl = SSL_new(context);
    SSL_set_fd(ssl, here);
    SSL_set_accept_state(ssl);
    for (int i = 0; i < 10 && ours == 0; i++) {
        ours = tls_handshake(c);
        theirs = SSL_do_handshake(ssl);
    }
    ck_assert_int_eq(ours, -1);
    ck_assert_int_ne(theirs, 1);
    ck_assert_int_eq(tls_failure(c), TLS_FAILURE_CERTIFICATE);
    tls_destroy(c);
    SSL_free(ssl);
    SSL_CTX_free(context);
    X509_free(x509);
    EVP_PKEY_free(key);
    BIO_free(text);
    BIO_free(key_text);
}
