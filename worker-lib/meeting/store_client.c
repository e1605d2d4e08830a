/* SPDX-License-Identifier: MIT */
/*
 * The client's side of PyTorch's TCPStore protocol: one request at a time, numbers
 * little-endian, keys and values preceded by eight bytes of length. If an answer does
 * not arrive in time, the connection is out of step with its server, and the next
 * request opens a new one. If the server closes the connection, all later requests
 * fail.
 */
#include "worker-lib/meeting/store_client.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/security/key_memory.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/tcpstore/limits.h"
#include "rendezvous/tcpstore/tcpstore_scan.h"
#include "worker-lib/meeting/environment.h"
#include "worker-lib/meeting/store_token.h"

#define ADDRESSES_MAX 8
#define CONNECT_MS 5000
#define RETRY_MS_MIN 2
#define RETRY_MS_MAX 250
#define CANCEL_MS 2000 /* for the server's answer to a cancelled wait */

struct store_client {
    pthread_mutex_t lock;
    int fd;               /* -1: lost */
    bool late;            /* the reason: an answer did not come in time */
    struct net_addr addr; /* of the server, after the first connection */
    char where[300];
    struct tls_psk *psk;     /* NULL: plain */
    struct tls_session *tls; /* NULL: plain */
};

/* -- the connection ---------------------------------------------------------------- */

/* 1 ready, 0 the deadline passed. */
static int poll_connection(int fd, short events, uint64_t deadline_ms)
{
    struct pollfd p = { .fd = fd, .events = events };

    for (;;) {
        uint64_t now = clock_ms();
        uint64_t left = deadline_ms > now ? deadline_ms - now : 0;
        int n = poll(&p, 1, left > 60000 ? 60000 : (int)left);

        if (n > 0)
            return 1;
        if (n == 0 && left <= 60000)
            return 0;
    }
}

static crun_status fail_late_store(struct store_client *s, struct err *e)
{
    err_set(e, "the store at %s did not answer in time", s->where);
    return CRUN_TIMEOUT;
}

static crun_status fail_gone(struct store_client *s, int errnum, struct err *e)
{
    err_set(e, "the store at %s is gone%s%s", s->where, errnum ? ": " : "",
            errnum ? strerror(errnum) : "");
    return CRUN_PEER_LOST;
}

static crun_status send_bytes(struct store_client *s, const void *data, size_t size,
                              uint64_t deadline_ms, struct err *e)
{
    for (size_t done = 0; done < size;) {
        const char *at = (const char *)data + done;
        ssize_t n = s->tls ? tls_write(s->tls, at, size - done)
                           : send(s->fd, at, size - done, MSG_NOSIGNAL);

        if (n > 0)
            done += (size_t)n;
        else if (n < 0 && errno == EAGAIN &&
                 !poll_connection(s->fd, POLLOUT, deadline_ms))
            return fail_late_store(s, e);
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            return fail_gone(s, errno, e);
    }
    return CRUN_OK;
}

static crun_status receive_bytes(struct store_client *s, void *data, size_t size,
                                 uint64_t deadline_ms, struct err *e)
{
    for (size_t done = 0; done < size;) {
        char *at = (char *)data + done;
        ssize_t n = s->tls ? tls_read(s->tls, at, size - done)
                           : recv(s->fd, at, size - done, 0);

        if (n > 0)
            done += (size_t)n;
        else if (n == 0)
            return fail_gone(s, 0, e);
        else if (errno == EAGAIN && !poll_connection(s->fd, POLLIN, deadline_ms))
            return fail_late_store(s, e);
        else if (errno != EAGAIN && errno != EINTR)
            return fail_gone(s, errno, e);
    }
    return CRUN_OK;
}

static void close_connection(struct store_client *s, crun_status why)
{
    tls_destroy(s->tls);
    s->tls = NULL;
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    s->late = why == CRUN_TIMEOUT;
}

/* The greeting of PyTorch's client; the echo proves that a store is listening. */
static crun_status greet_store(struct store_client *s, uint64_t deadline_ms,
                               struct err *e)
{
    uint8_t hello[10] = { TCPSTORE_VALIDATE, 0, 0, 0, 0, TCPSTORE_PING };
    uint32_t magic = htole32(TCPSTORE_MAGIC), nonce = (uint32_t)getpid(), echo;
    crun_status status;

    memcpy(hello + 1, &magic, 4);
    memcpy(hello + 6, &nonce, 4);
    status = send_bytes(s, hello, sizeof(hello), deadline_ms, e);
    if (status == CRUN_OK)
        status = receive_bytes(s, &echo, sizeof(echo), deadline_ms, e);
    if (status == CRUN_OK && echo != nonce) {
        err_set(e, "%s does not speak the store's protocol", s->where);
        status = CRUN_PEER_LOST;
    }
    return status;
}

static crun_status secure_connection(struct store_client *s, uint64_t deadline_ms,
                                     struct err *e)
{
    int r;

    s->tls = tls_connect(s->fd, s->psk, e);
    if (!s->tls)
        return CRUN_SYSTEM;
    while ((r = tls_handshake(s->tls)) == 0)
        if (!poll_connection(s->fd, tls_wants_write(s->tls) ? POLLOUT : POLLIN,
                             deadline_ms))
            return fail_late_store(s, e);
    if (r > 0)
        return CRUN_OK;
    err_set(e, "the store at %s: %s", s->where, tls_why(s->tls));
    return CRUN_PEER_LOST;
}

static crun_status connect_to(struct store_client *s, const struct net_addr *addr,
                              uint64_t deadline_ms, struct err *e)
{
    int errnum = 0;
    socklen_t size = sizeof(errnum);
    crun_status status;

    s->fd = net_connect(addr, e);
    if (s->fd < 0)
        return CRUN_SYSTEM;
    if (!poll_connection(s->fd, POLLOUT, deadline_ms))
        status = fail_late_store(s, e);
    else if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &errnum, &size) < 0 || errnum) {
        err_set_errno(e, errnum, "cannot connect to the store at %s", s->where);
        status = CRUN_SYSTEM;
    } else {
        status = s->psk ? secure_connection(s, deadline_ms, e) : CRUN_OK;
        if (status == CRUN_OK)
            status = greet_store(s, deadline_ms, e);
    }
    if (status == CRUN_OK)
        s->addr = *addr;
    else
        close_connection(s, status);
    return status;
}

static crun_status try_once(struct store_client *s, const char *host, uint16_t port,
                            uint64_t deadline_ms, struct err *e)
{
    struct net_addr list[ADDRESSES_MAX];
    crun_status status = CRUN_SYSTEM;
    size_t count = 0;

    if (net_resolve(host, port, list, ADDRESSES_MAX, &count, e) < 0)
        return CRUN_SYSTEM;
    for (size_t i = 0; i < count && status != CRUN_OK; i++) {
        uint64_t until = clock_ms() + CONNECT_MS;

        status = connect_to(s, &list[i], until < deadline_ms ? until : deadline_ms, e);
    }
    return status;
}

/* -- requests ---------------------------------------------------------------------- */

struct request_text {
    size_t used;
    char text[STORE_KEY_MAX + 64];
};

static void add_byte(struct request_text *r, unsigned byte)
{
    r->text[r->used++] = (char)byte;
}

static void add_number(struct request_text *r, uint64_t value)
{
    value = htole64(value);
    memcpy(r->text + r->used, &value, sizeof(value));
    r->used += sizeof(value);
}

static void add_key(struct request_text *r, const char *key)
{
    size_t length = strlen(key);

    add_number(r, length);
    memcpy(r->text + r->used, key, length);
    r->used += length;
}

static crun_status exchange_request(struct store_client *s,
                                    const struct request_text *r, void *answer,
                                    size_t size, uint64_t deadline_ms, struct err *e)
{
    crun_status status = send_bytes(s, r->text, r->used, deadline_ms, e);

    return status == CRUN_OK ? receive_bytes(s, answer, size, deadline_ms, e) : status;
}

/* Under the lock. Opens a new connection after a late answer. */
static crun_status reconnect_store(struct store_client *s, uint64_t deadline_ms,
                                   struct err *e)
{
    crun_status status;

    if (s->fd >= 0)
        return CRUN_OK;
    if (!s->late)
        return fail_gone(s, 0, e);
    status = connect_to(s, &s->addr, deadline_ms, e);
    return status == CRUN_OK || status == CRUN_TIMEOUT ? status : fail_gone(s, 0, e);
}

/* Takes the lock and begins a request with its first byte.
 * end_request() releases the lock. */
static crun_status begin_request(struct store_client *s, struct request_text *r,
                                 enum tcpstore_op kind, const char *key,
                                 uint64_t deadline_ms, struct err *e)
{
    uint64_t now = clock_ms(), left = deadline_ms > now ? deadline_ms - now : 0;
    struct timespec until;
    crun_status status;

    if (strlen(key) > STORE_KEY_MAX) {
        err_set(e, "a key of %zu bytes: the store takes %d", strlen(key),
                STORE_KEY_MAX);
        return CRUN_BAD_ARGUMENT;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(left / 1000);
    until.tv_nsec += (long)(left % 1000) * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_mutex_timedlock(&s->lock, &until) != 0)
        return fail_late_store(s, e);
    status = reconnect_store(s, deadline_ms, e);
    if (status != CRUN_OK) {
        pthread_mutex_unlock(&s->lock);
        return status;
    }
    r->used = 0;
    add_byte(r, kind);
    return CRUN_OK;
}

static crun_status end_request(struct store_client *s, crun_status status)
{
    if (status != CRUN_OK && status != CRUN_BAD_ARGUMENT)
        close_connection(s, status);
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* The key did not come in time: cancels the wait, so that the connection stays in step.
 * The answer to the wait may come before the answer to the cancellation. */
static crun_status cancel_wait(struct store_client *s, const char *key, struct err *e)
{
    uint64_t until = clock_ms() + CANCEL_MS;
    uint8_t byte = TCPSTORE_CANCEL_WAIT;
    crun_status status = send_bytes(s, &byte, 1, until, e);

    while (status == CRUN_OK) {
        status = receive_bytes(s, &byte, 1, until, e);
        if (status == CRUN_OK && byte == TCPSTORE_WAIT_CANCELED)
            break;
    }
    if (status != CRUN_OK)
        close_connection(s, status);
    err_set(e, "key \"%s\" was not set in time in the store at %s", key, s->where);
    return CRUN_TIMEOUT;
}

static crun_status wait_key(struct store_client *s, struct request_text *r,
                            const char *key, uint64_t deadline_ms, struct err *e)
{
    uint8_t byte;
    crun_status status;

    r->used = 0;
    add_byte(r, TCPSTORE_WAIT);
    add_number(r, 1);
    add_key(r, key);
    status = send_bytes(s, r->text, r->used, deadline_ms, e);
    if (status == CRUN_OK && !(s->tls && tls_pending(s->tls)) &&
        !poll_connection(s->fd, POLLIN, deadline_ms))
        return cancel_wait(s, key, e);
    return status == CRUN_OK ? receive_bytes(s, &byte, 1, deadline_ms, e) : status;
}

crun_status store_client_set(struct store_client *s, const char *key, const void *value,
                             size_t size, uint64_t deadline_ms, struct err *e)
{
    struct request_text r;
    crun_status status = begin_request(s, &r, TCPSTORE_SET, key, deadline_ms, e);

    if (status != CRUN_OK)
        return status;
    if (size > STORE_VALUE_MAX) {
        err_set(e, "a value of %zu bytes: the store takes %u", size, STORE_VALUE_MAX);
        return end_request(s, CRUN_BAD_ARGUMENT);
    }
    add_key(&r, key);
    add_number(&r, size);
    status = send_bytes(s, r.text, r.used, deadline_ms, e);
    if (status == CRUN_OK)
        status = send_bytes(s, value, size, deadline_ms, e);
    return end_request(s, status);
}

/* A value that does not fit is read to its end: the next answer follows it. */
static crun_status take_value(struct store_client *s, const char *key, void *value,
                              size_t *size, uint64_t deadline_ms, struct err *e)
{
    char rest[512];
    uint64_t length, left;
    size_t room = *size;
    crun_status status = receive_bytes(s, &length, sizeof(length), deadline_ms, e);

    if (status != CRUN_OK)
        return status;
    length = le64toh(length);
    if (length > STORE_VALUE_MAX) {
        err_set(e, "%s does not speak the store's protocol", s->where);
        return CRUN_PEER_LOST;
    }
    *size = (size_t)length;
    status = receive_bytes(s, value, length < room ? length : room, deadline_ms, e);
    for (left = length < room ? 0 : length - room; left > 0 && status == CRUN_OK;) {
        size_t part = left < sizeof(rest) ? left : sizeof(rest);

        status = receive_bytes(s, rest, part, deadline_ms, e);
        left -= part;
    }
    if (status == CRUN_OK && length > room) {
        err_set(e, "\"%s\" has %zu bytes, there is room for %zu", key, *size, room);
        return CRUN_BAD_ARGUMENT;
    }
    return status;
}

crun_status store_client_get(struct store_client *s, const char *key, void *value,
                             size_t *size, uint64_t deadline_ms, struct err *e)
{
    struct request_text r;
    crun_status status = begin_request(s, &r, TCPSTORE_WAIT, key, deadline_ms, e);

    if (status != CRUN_OK)
        return status;
    status = wait_key(s, &r, key, deadline_ms, e);
    if (status == CRUN_TIMEOUT) {
        pthread_mutex_unlock(&s->lock);
        return status;
    }
    r.used = 0;
    add_byte(&r, TCPSTORE_GET);
    add_key(&r, key);
    if (status == CRUN_OK)
        status = send_bytes(s, r.text, r.used, deadline_ms, e);
    if (status == CRUN_OK)
        status = take_value(s, key, value, size, deadline_ms, e);
    return end_request(s, status);
}

crun_status store_client_agree(struct store_client *s, const char *key, void *value,
                               size_t *size, uint64_t deadline_ms, struct err *e)
{
    struct request_text r;
    crun_status status = begin_request(s, &r, TCPSTORE_COMPARE_SET, key, deadline_ms,
                                       e);

    if (status != CRUN_OK)
        return status;
    add_key(&r, key);
    add_number(&r, 0); /* it has no value yet */
    add_number(&r, *size);
    status = send_bytes(s, r.text, r.used, deadline_ms, e);
    if (status == CRUN_OK)
        status = send_bytes(s, value, *size, deadline_ms, e);
    if (status == CRUN_OK)
        status = take_value(s, key, value, size, deadline_ms, e);
    return end_request(s, status);
}

int store_client_has(struct store_client *s, const char *key, uint64_t deadline_ms)
{
    struct request_text r;
    struct err e;
    uint8_t byte = TCPSTORE_NOT_READY;
    crun_status status = begin_request(s, &r, TCPSTORE_CHECK, key, deadline_ms, &e);

    if (status != CRUN_OK)
        return -1;
    add_number(&r, 1);
    add_key(&r, key);
    status = end_request(s, exchange_request(s, &r, &byte, 1, deadline_ms, &e));
    return status == CRUN_OK ? byte == TCPSTORE_READY : -1;
}

crun_status store_client_add(struct store_client *s, const char *key, int64_t amount,
                             int64_t *sum, uint64_t deadline_ms, struct err *e)
{
    struct request_text r;
    uint64_t answer = 0;
    crun_status status = begin_request(s, &r, TCPSTORE_ADD, key, deadline_ms, e);

    if (status != CRUN_OK)
        return status;
    add_key(&r, key);
    add_number(&r, (uint64_t)amount);
    status = end_request(
        s, exchange_request(s, &r, &answer, sizeof(answer), deadline_ms, e));
    *sum = (int64_t)le64toh(answer);
    return status;
}

crun_status store_client_delete(struct store_client *s, const char *key,
                                uint64_t deadline_ms, struct err *e)
{
    struct request_text r;
    uint64_t erased;
    crun_status status = begin_request(s, &r, TCPSTORE_DELETE_KEY, key, deadline_ms, e);

    if (status != CRUN_OK)
        return status;
    add_key(&r, key);
    return end_request(
        s, exchange_request(s, &r, &erased, sizeof(erased), deadline_ms, e));
}

/* -- opening ----------------------------------------------------------------------- */

static struct store_client *new_client(void)
{
    struct store_client *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->fd = -1;
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

/* In no core. */
static bool keep_secret(struct store_client *s, const struct tls_psk *psk,
                        struct err *e)
{
    s->psk = key_memory_create(sizeof(*s->psk), e);
    if (s->psk)
        *s->psk = *psk;
    return s->psk != NULL;
}

static crun_status open_client(struct store_client **out, const char *host,
                               uint16_t port, const struct tls_psk *psk,
                               uint64_t deadline_ms, struct err *e)
{
    struct store_client *s = new_client();
    uint64_t pause = RETRY_MS_MIN;
    crun_status status;

    if (!s) {
        err_set(e, "no memory");
        return CRUN_NO_MEMORY;
    }
    if (psk && !keep_secret(s, psk, e)) {
        store_client_close(s);
        return CRUN_NO_MEMORY;
    }
    snprintf(s->where, sizeof(s->where), strchr(host, ':') ? "[%s]:%u" : "%s:%u", host,
             port);
    while ((status = try_once(s, host, port, deadline_ms, e)) != CRUN_OK &&
           clock_ms() + pause < deadline_ms) {
        poll(NULL, 0, (int)pause);
        pause = pause * 2 < RETRY_MS_MAX ? pause * 2 : RETRY_MS_MAX;
    }
    if (status != CRUN_OK) {
        store_client_close(s);
        return status;
    }
    *out = s;
    return CRUN_OK;
}

crun_status store_client_open(struct store_client **out, const char *host,
                              uint16_t port, uint64_t deadline_ms, struct err *e)
{
    return open_client(out, host, port, NULL, deadline_ms, e);
}

crun_status store_client_open_job(struct store_client **out,
                                  const struct environment *env, uint64_t deadline_ms,
                                  struct err *e)
{
    struct store_token token;
    crun_status status;

    if (!env->agent_store || !store_token_read(&token))
        return store_client_open(out, env->host, env->port, deadline_ms, e);
    status = open_client(out, token.host, token.port, &token.psk, deadline_ms, e);
    explicit_bzero(&token, sizeof(token));
    return status;
}

crun_status store_client_open_another(struct store_client **out,
                                      const struct store_client *like,
                                      uint64_t deadline_ms, struct err *e)
{
    struct store_client *s = new_client();
    crun_status status;

    if (!s) {
        err_set(e, "no memory");
        return CRUN_NO_MEMORY;
    }
    snprintf(s->where, sizeof(s->where), "%s", like->where);
    if (like->psk && !keep_secret(s, like->psk, e)) {
        store_client_close(s);
        return CRUN_NO_MEMORY;
    }
    status = connect_to(s, &like->addr, deadline_ms, e);
    if (status == CRUN_OK)
        *out = s;
    else
        store_client_close(s);
    return status;
}

int store_client_handle(const struct store_client *s)
{
    return s->fd < 0 ? -1 : fcntl(s->fd, F_DUPFD_CLOEXEC, 0);
}

char *store_client_address(const struct store_client *s, char *buf, size_t size)
{
    struct net_addr addr;

    if (size > 0)
        buf[0] = '\0';
    return net_local_addr(s->fd, &addr) == 0 ? net_format_host(&addr, buf, size) : buf;
}

void store_client_close(struct store_client *s)
{
    if (!s)
        return;
    close_connection(s, CRUN_OK);
    pthread_mutex_destroy(&s->lock);
    key_memory_destroy(s->psk, sizeof(*s->psk));
    free(s);
}
