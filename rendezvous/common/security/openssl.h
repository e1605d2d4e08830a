/* SPDX-License-Identifier: MIT */
#pragma once

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include "rendezvous/common/base/err.h"

/*
 * OpenSSL's functions, looked up in its library when they are first needed. The macros
 * of its headers that are calls of a function are calls of openssl.FUNCTION here.
 */
#define OPENSSL_FUNCTIONS(X)                                                           \
    X(OPENSSL_init_ssl)                                                                \
    X(TLS_client_method)                                                               \
    X(TLS_server_method)                                                               \
    X(SSL_CTX_new)                                                                     \
    X(SSL_CTX_free)                                                                    \
    X(SSL_CTX_ctrl)                                                                    \
    X(SSL_CTX_set_options)                                                             \
    X(SSL_CTX_set_ciphersuites)                                                        \
    X(SSL_CTX_set_verify)                                                              \
    X(SSL_CTX_set_num_tickets)                                                         \
    X(SSL_CTX_set_psk_find_session_callback)                                           \
    X(SSL_CTX_set_client_hello_cb)                                                     \
    X(SSL_client_hello_get0_ext)                                                       \
    X(SSL_CTX_set_psk_use_session_callback)                                            \
    X(SSL_new)                                                                         \
    X(SSL_free)                                                                        \
    X(SSL_set_bio)                                                                     \
    X(SSL_set_ex_data)                                                                 \
    X(SSL_get_ex_data)                                                                 \
    X(SSL_set_msg_callback)                                                            \
    X(SSL_ctrl)                                                                        \
    X(SSL_set_accept_state)                                                            \
    X(SSL_set_connect_state)                                                           \
    X(SSL_do_handshake)                                                                \
    X(SSL_session_reused)                                                              \
    X(SSL_get_error)                                                                   \
    X(SSL_read)                                                                        \
    X(SSL_write)                                                                       \
    X(SSL_has_pending)                                                                 \
    X(SSL_pending)                                                                     \
    X(SSL_key_update)                                                                  \
    X(SSL_shutdown)                                                                    \
    X(SSL_CIPHER_find)                                                                 \
    X(SSL_SESSION_new)                                                                 \
    X(SSL_SESSION_free)                                                                \
    X(SSL_SESSION_set1_master_key)                                                     \
    X(SSL_get_session)                                                                 \
    X(SSL_SESSION_set_cipher)                                                          \
    X(SSL_SESSION_set_protocol_version)                                                \
    X(BIO_meth_new)                                                                    \
    X(BIO_meth_free)                                                                   \
    X(BIO_meth_set_read)                                                               \
    X(BIO_meth_set_write)                                                              \
    X(BIO_meth_set_ctrl)                                                               \
    X(BIO_new)                                                                         \
    X(BIO_set_data)                                                                    \
    X(BIO_get_data)                                                                    \
    X(BIO_set_init)                                                                    \
    X(BIO_set_flags)                                                                   \
    X(BIO_clear_flags)                                                                 \
    X(ERR_clear_error)                                                                 \
    X(ERR_peek_error)                                                                  \
    X(ERR_reason_error_string)

struct openssl {
#define OPENSSL_POINTER(name) __typeof__(name) *name;
    OPENSSL_FUNCTIONS(OPENSSL_POINTER)
#undef OPENSSL_POINTER
};

/* All are set once tls_load has succeeded. */
extern struct openssl openssl;

/* Fill in o from the first of the libraries that can be loaded; NULL ends the names. */
int openssl_open(struct openssl *o, const char *const *libraries,
                 struct err *e) MUST_CHECK;
/* What failed last on this thread, in OpenSSL's words; or `otherwise`. */
const char *openssl_reason(const char *otherwise);
