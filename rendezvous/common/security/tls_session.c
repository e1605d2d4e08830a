/* SPDX-License-Identifier: MIT */
/*
 * Sessions. OpenSSL reads and writes through a BIO of this file, which uses send with
 * MSG_NOSIGNAL and counts: what a peer may send before its handshake is done, and how
 * often it may change its keys afterwards, is limited here.
 *
 * A peer without the key costs little: OpenSSL's 13 KiB are only taken when its whole
 * hello waits in the socket, and a hello without a key or that asks for a second one is
 * refused. So no peer without the key can leave a session half done.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "rendezvous/common/base/thread.h"
#include "rendezvous/common/security/limits.h"
#include "rendezvous/common/security/tls_internal.h"

#define TOO_MUCH "it sends too much before it has shown its key"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static BIO_METHOD *socket_method;
static SSL_CTX *connecting;

/* -- the socket under OpenSSL ----------------------------------------------------- */

static int bio_read(BIO *bio, char *data, int size)
{
    struct tls_session *s = openssl.BIO_get_data(bio);
    ssize_t n;

    openssl.BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    if (!s->done && s->taken + (size_t)size > TLS_HANDSHAKE_BYTES_MAX)
        size = (int)(TLS_HANDSHAKE_BYTES_MAX - s->taken);
    if (size == 0 || s->refused) {
        s->refused = true;
        return -1;
    }
    n = recv(s->fd, data, (size_t)size, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        openssl.BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
    else if (n < 0)
        s->io_errno = errno;
    else if (n == 0)
        s->io_errno = ECONNRESET; /* the peer has not ended the session first */
    else if (!s->done)
        s->taken += (size_t)n;
    return (int)n;
}

static int bio_write(BIO *bio, const char *data, int size)
{
    struct tls_session *s = openssl.BIO_get_data(bio);
    ssize_t n = send(s->fd, data, (size_t)size, MSG_NOSIGNAL);

    openssl.BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        openssl.BIO_set_flags(bio, BIO_FLAGS_WRITE | BIO_FLAGS_SHOULD_RETRY);
    else if (n < 0)
        s->io_errno = errno;
    return (int)n;
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
    return command == BIO_CTRL_FLUSH;
}

/* A message of the handshake protocol after the handshake can only be a change of keys:
 * there are no tickets, and no certificates to ask for. */
static void on_record(int sending, int version, int type, const void *data, size_t size,
                      SSL *ssl, void *arg)
{
    struct tls_session *s = arg;

    if (!sending && s->done && type == SSL3_RT_HANDSHAKE &&
        ++s->updates > TLS_UPDATES_MAX + s->received / TLS_RECORDS_PER_UPDATE_MIN)
        s->refused = true;
}

/* -- what all sessions share ------------------------------------------------------ */

static SSL_CTX *tls_context_create(const SSL_METHOD *method, struct err *e)
{
    SSL_CTX *c;

    openssl.ERR_clear_error();
    c = openssl.SSL_CTX_new(method);
    if (!c || !openssl.SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256") ||
        !openssl.SSL_CTX_ctrl(c, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION,
                              NULL) ||
        !openssl.SSL_CTX_ctrl(c, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION,
                              NULL) ||
        !openssl.SSL_CTX_ctrl(c, SSL_CTRL_SET_GROUPS_LIST, 0, "X25519") ||
        !openssl.SSL_CTX_set_num_tickets(c, 0)) {
        err_set(e, "cannot set up TLS: %s", openssl_reason("no memory"));
        openssl.SSL_CTX_free(c);
        return NULL;
    }
    openssl.SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION |
                                       SSL_OP_NO_COMPRESSION);
    openssl.SSL_CTX_ctrl(c, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
    openssl.SSL_CTX_ctrl(c, SSL_CTRL_MODE,
                         SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                             SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER,
                         NULL);
    return c;
}

/* A server that has a certificate in place of the key fails here. */
static SSL_CTX *tls_connecting_create(struct err *e)
{
    SSL_CTX *c = tls_context_create(openssl.TLS_client_method(), e);

    if (!c)
        return NULL;
    openssl.SSL_CTX_set_verify(c, SSL_VERIFY_PEER, NULL);
    openssl.SSL_CTX_set_psk_use_session_callback(c, tls_use_psk);
    return c;
}

static BIO_METHOD *tls_method_create(struct err *e)
{
    BIO_METHOD *m = openssl.BIO_meth_new(BIO_TYPE_SOURCE_SINK, "crun");

    if (m && openssl.BIO_meth_set_read(m, bio_read) &&
        openssl.BIO_meth_set_write(m, bio_write) &&
        openssl.BIO_meth_set_ctrl(m, bio_ctrl))
        return m;
    openssl.BIO_meth_free(m);
    err_set(e, "cannot set up TLS: no memory");
    return NULL;
}

/* Make what all sessions share, unless it is there. */
static int tls_start(struct err *e)
{
    int rc = tls_load(e);

    pthread_mutex_lock(&lock);
    if (rc == 0 && !socket_method && !(socket_method = tls_method_create(e)))
        rc = -1;
    if (rc == 0 && !connecting && !(connecting = tls_connecting_create(e)))
        rc = -1;
    pthread_mutex_unlock(&lock);
    return rc;
}

static void *tls_prepare_thread(void *unused)
{
    struct err e;

    (void)!tls_start(&e);
    return unused;
}

void tls_prepare(void)
{
    pthread_t thread;

    if (thread_start(&thread, tls_prepare_thread, NULL) == 0)
        pthread_detach(thread);
}

struct tls_door *tls_door_create(bool (*find)(void *arg, const char *identity,
                                              uint8_t secret[TLS_SECRET_BYTES]),
                                 void *arg, struct err *e)
{
    struct tls_door *d;

    if (tls_start(e) < 0)
        return NULL;
    d = calloc(1, sizeof(*d));
    if (!d) {
        err_set(e, "cannot set up TLS: no memory");
        return NULL;
    }
    d->find = find;
    d->arg = arg;
    d->context = tls_context_create(openssl.TLS_server_method(), e);
    if (!d->context) {
        free(d);
        return NULL;
    }
    openssl.SSL_CTX_set_psk_find_session_callback(d->context, tls_find_psk);
    openssl.SSL_CTX_set_client_hello_cb(d->context, tls_check_hello, NULL);
    return d;
}

void tls_door_destroy(struct tls_door *d)
{
    if (!d)
        return;
    openssl.SSL_CTX_free(d->context);
    free(d);
}

/* -- sessions --------------------------------------------------------------------- */

static struct tls_session *tls_session_create(int fd)
{
    struct tls_session *s = calloc(1, sizeof(*s));

    if (s)
        s->fd = fd;
    return s;
}

/* -1: no memory. */
static int tls_session_begin(struct tls_session *s, SSL_CTX *context)
{
    BIO *bio;

    openssl.ERR_clear_error();
    s->ssl = openssl.SSL_new(context);
    bio = s->ssl ? openssl.BIO_new(socket_method) : NULL;
    if (!bio)
        return -1;
    openssl.BIO_set_data(bio, s);
    openssl.BIO_set_init(bio, 1);
    openssl.SSL_set_bio(s->ssl, bio, bio); /* owns it */
    if (!openssl.SSL_set_ex_data(s->ssl, 0, s))
        return -1;
    openssl.SSL_set_msg_callback(s->ssl, on_record);
    openssl.SSL_ctrl(s->ssl, SSL_CTRL_SET_MSG_CALLBACK_ARG, 0, s);
    if (s->accepting)
        openssl.SSL_set_accept_state(s->ssl);
    else
        openssl.SSL_set_connect_state(s->ssl);
    return 0;
}

struct tls_session *tls_accept(struct tls_door *d, int fd)
{
    struct tls_session *s = tls_session_create(fd);

    if (!s)
        return NULL;
    s->door = d;
    s->accepting = true;
    return s;
}

struct tls_session *tls_connect(int fd, const struct tls_psk *psk, struct err *e)
{
    struct tls_session *s;

    if (tls_start(e) < 0)
        return NULL;
    s = tls_session_create(fd);
    if (!s) {
        err_set(e, "cannot set up TLS: no memory");
        return NULL;
    }
    s->psk = *psk;
    return s;
}

void tls_destroy(struct tls_session *s)
{
    if (!s)
        return;
    if (s->ssl)
        openssl.SSL_free(s->ssl);
    explicit_bzero(s, sizeof(*s));
    free(s);
}

static int tls_fail(struct tls_session *s, enum tls_failure failure, const char *why)
{
    if (s->failure == TLS_FAILURE_NONE) {
        s->failure = failure;
        snprintf(s->why, sizeof(s->why), "%s", why);
    }
    return -1;
}

/* Whether the whole hello waits in the socket: 1, or 0 for not yet, or -1. It is one
 * record: each client of this project sends it so. The socket becomes readable when it
 * is whole. */
static int tls_await_hello(struct tls_session *s)
{
    struct pollfd p = { .fd = s->fd, .events = POLLRDHUP };
    uint8_t head[9];
    ssize_t n = recv(s->fd, head, sizeof(head), MSG_PEEK);
    int need = sizeof(head), waiting = 0;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < 0)
        return tls_fail(s, TLS_FAILURE_HERE, strerror(errno));
    if (n == 0)
        return tls_fail(s, TLS_FAILURE_CLOSED, "it closed the connection");
    if (head[0] != SSL3_RT_HANDSHAKE)
        return tls_fail(s, TLS_FAILURE_PROTOCOL, "not a TLS hello");
    if (n == sizeof(head)) {
        need = 5 + (head[3] << 8 | head[4]);
        if (need > TLS_HANDSHAKE_BYTES_MAX)
            return tls_fail(s, TLS_FAILURE_SIZE, TOO_MUCH);
        if (head[5] != SSL3_MT_CLIENT_HELLO ||
            9 + (head[6] << 16 | head[7] << 8 | head[8]) != need)
            return tls_fail(s, TLS_FAILURE_PROTOCOL, "not a TLS hello of crun");
    }
    if (n == sizeof(head) && ioctl(s->fd, FIONREAD, &waiting) == 0 && waiting >= need)
        need = 1;
    else if (poll(&p, 1, 0) > 0)
        return tls_fail(s, TLS_FAILURE_CLOSED, "it closed the connection");
    (void)!setsockopt(s->fd, SOL_SOCKET, SO_RCVLOWAT, &need, sizeof(need));
    return need == 1;
}

/* The alerts by which one end refuses the other's key, and the errors of a peer without
 * a key. */
static bool is_refused_key(int reason)
{
    switch (reason) {
    case SSL_R_BINDER_DOES_NOT_VERIFY:
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
    case SSL_R_TLSV1_ALERT_UNKNOWN_PSK_IDENTITY:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_CERTIFICATE_SET:
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_BAD_PSK:
    case SSL_R_CALLBACK_FAILED: /* on_hello */
        return true;
    }
    return false;
}

/* After a call that has failed for good: why, and errno. */
static ssize_t tls_fail_errno(struct tls_session *s, int error)
{
    unsigned long code = openssl.ERR_peek_error();
    bool cut = s->io_errno == ECONNRESET || s->io_errno == EPIPE;

    if (s->refused)
        tls_fail(s, TLS_FAILURE_SIZE,
                 s->done ? "it changes its keys without end" : TOO_MUCH);
    else if (error == SSL_ERROR_SSL && !s->io_errno &&
             ERR_GET_REASON(code) == SSL_R_CERTIFICATE_VERIFY_FAILED)
        tls_fail(s, TLS_FAILURE_CERTIFICATE, "it has a certificate and no key");
    else if (error == SSL_ERROR_SSL && !s->io_errno &&
             is_refused_key(ERR_GET_REASON(code)))
        tls_fail(s, TLS_FAILURE_KEY, "the keys differ");
    else if (error == SSL_ERROR_SSL && !s->io_errno)
        tls_fail(s, TLS_FAILURE_PROTOCOL, openssl_reason("not the TLS spoken here"));
    else if (cut)
        tls_fail(s, TLS_FAILURE_CLOSED,
                 s->done ? "its connection was cut" : "it closed the connection");
    else
        tls_fail(s, TLS_FAILURE_HERE,
                 s->io_errno ? strerror(s->io_errno) : openssl_reason("no memory"));
    errno = s->io_errno ? s->io_errno : EPROTO;
    openssl.ERR_clear_error();
    return -1;
}

/* Of a call of OpenSSL that gave `result`: -1 with errno, or 0 if the peer has ended
 * the session. */
static ssize_t tls_result(struct tls_session *s, int result)
{
    int error = openssl.SSL_get_error(s->ssl, result);

    s->wants_write = error == SSL_ERROR_WANT_WRITE;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
        errno = EAGAIN;
        return -1;
    }
    if (error == SSL_ERROR_ZERO_RETURN)
        return 0;
    return tls_fail_errno(s, error);
}

/* OpenSSL's errors are the thread's: another session's must not be taken for this
 * one's. False: the session has failed before. */
static bool tls_begin_call(struct tls_session *s)
{
    s->wants_write = false;
    if (s->failure != TLS_FAILURE_NONE) {
        errno = EPROTO;
        return false;
    }
    openssl.ERR_clear_error();
    return true;
}

int tls_handshake(struct tls_session *s)
{
    int result;

    if (s->done)
        return 1;
    if (!tls_begin_call(s))
        return -1;
    if (!s->ssl && s->accepting) {
        result = tls_await_hello(s);
        if (result <= 0)
            return result;
    }
    if (!s->ssl &&
        tls_session_begin(s, s->accepting ? s->door->context : connecting) < 0)
        return tls_fail(s, TLS_FAILURE_HERE, "no memory");
    result = openssl.SSL_do_handshake(s->ssl);
    if (result == 1 && !openssl.SSL_session_reused(s->ssl))
        return tls_fail(s, TLS_FAILURE_KEY, "the keys differ");
    if (result == 1) {
        s->done = true;
        s->door = NULL;
        tls_forget_secret(s);
        return 1;
    }
    if (tls_result(s, result) == 0)
        return tls_fail(s, TLS_FAILURE_CLOSED, "it closed the connection");
    return errno == EAGAIN ? 0 : -1;
}

ssize_t tls_read(struct tls_session *s, void *data, size_t size)
{
    int n;

    if (!tls_begin_call(s))
        return -1;
    n = openssl.SSL_read(s->ssl, data, (int)(size < INT32_MAX ? size : INT32_MAX));
    if (s->refused) { /* the data, if any, came with them */
        s->io_errno = 0;
        return tls_fail_errno(s, SSL_ERROR_SSL);
    }
    if (n <= 0)
        return tls_result(s, n);
    s->received++;
    return n;
}

ssize_t tls_write(struct tls_session *s, const void *data, size_t size)
{
    int n;

    if (!tls_begin_call(s))
        return -1;
    if (s->sent >= TLS_RECORDS_PER_KEY &&
        openssl.SSL_key_update(s->ssl, SSL_KEY_UPDATE_NOT_REQUESTED))
        s->sent = 0;
    n = openssl.SSL_write(s->ssl, data, (int)(size < INT32_MAX ? size : INT32_MAX));
    if (n <= 0)
        return tls_result(s, n) < 0 ? -1 : tls_fail_errno(s, SSL_ERROR_SYSCALL);
    s->sent += 1 + (uint64_t)n / SSL3_RT_MAX_PLAIN_LENGTH;
    return n;
}

bool tls_pending(const struct tls_session *s)
{
    return openssl.SSL_pending(s->ssl) > 0;
}

bool tls_is_partial(const struct tls_session *s)
{
    return openssl.SSL_has_pending(s->ssl) && openssl.SSL_pending(s->ssl) == 0;
}

bool tls_wants_write(const struct tls_session *s)
{
    return s->wants_write;
}

void tls_shut(struct tls_session *s)
{
    if (s->done && tls_begin_call(s))
        (void)openssl.SSL_shutdown(s->ssl);
    shutdown(s->fd, SHUT_WR);
}

enum tls_failure tls_failure(const struct tls_session *s)
{
    return s->failure;
}

const char *tls_why(const struct tls_session *s)
{
    return s->why;
}

const char *tls_identity(const struct tls_session *s)
{
    return s->psk.identity;
}
