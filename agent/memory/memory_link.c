/* SPDX-License-Identifier: MIT */
#include "agent/memory/memory_link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/memory/limits.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/key_ring.h"
#include "rendezvous/common/security/tls.h"

#define IDENTITY "crun1-memory:"
#define ADDRESSES_MAX 8
#define LOOK_MS 50

/* -- bytes ------------------------------------------------------------------------- */

static void link_set_patience(const struct memory_link *l, unsigned ms)
{
    struct timeval t = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };

    (void)setsockopt(l->fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
    (void)setsockopt(l->fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
}

static int link_fault(const struct memory_link *l, ssize_t n, struct err *e)
{
    if (n == 0)
        return err_set(e, "the connection was closed");
    if (errno == EAGAIN)
        return err_set(e, "no answer in %d s", MEMORY_PEER_STILL_MS / 1000);
    return l->tls && *tls_why(l->tls) ? err_set(e, "%s", tls_why(l->tls))
                                      : err_set_errno(e, errno, "the connection");
}

int memory_link_send(struct memory_link *l, const void *data, size_t size,
                     struct err *e)
{
    for (const uint8_t *from = data; size > 0;) {
        ssize_t n = l->tls ? tls_write(l->tls, from, size)
                           : send(l->fd, from, size, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return link_fault(l, n, e);
        from += n;
        size -= (size_t)n;
    }
    return 0;
}

int memory_link_receive(struct memory_link *l, void *data, size_t size, struct err *e)
{
    for (uint8_t *to = data; size > 0;) {
        ssize_t n = l->tls ? tls_read(l->tls, to, size) : recv(l->fd, to, size, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return link_fault(l, n, e);
        to += n;
        size -= (size_t)n;
    }
    return 0;
}

int memory_link_give(struct memory_link *l, const struct memory_file *f, uint64_t at,
                     uint64_t size, uint64_t rate, struct err *e)
{
    /* a chunk takes at most a tenth of a second */
    size_t most = rate && rate / 10 < MEMORY_CHUNK_BYTES ? rate / 10 + 1
                                                         : MEMORY_CHUNK_BYTES;
    uint8_t *chunk = xmalloc(most);
    uint64_t began_us = clock_us(), sent = 0;
    int rc = 0;

    while (sent < size && rc == 0) {
        size_t n = size - sent < most ? size - sent : most;

        rc = memory_file_read(f, at + sent, chunk, n) < 0
                 ? err_set_errno(e, errno, "a part")
                 : memory_link_send(l, chunk, n, e);
        sent += n;
        if (rate) {
            uint64_t until_us = began_us + sent * 1000000 / rate, now_us = clock_us();

            if (until_us > now_us + 1000)
                poll(NULL, 0, (int)((until_us - now_us) / 1000));
        }
    }
    free(chunk);
    return rc;
}

void memory_link_give_way(uint64_t bytes)
{
    if (bytes >= MEMORY_COPY_LARGE)
        (void)setpriority(PRIO_PROCESS, 0, MEMORY_COPY_NICE);
}

static int link_take_bytes(struct memory_link *l, struct memory_file *f, uint64_t size,
                           uint64_t *hash, struct err *e)
{
    uint8_t *chunk = xmalloc(MEMORY_CHUNK_BYTES);
    struct memory_hasher hasher;
    int rc = 0;

    memory_hasher_begin(&hasher);
    for (uint64_t at = MEMORY_HEADER_BYTES; size > 0 && rc == 0;) {
        size_t n = size < MEMORY_CHUNK_BYTES ? size : MEMORY_CHUNK_BYTES;

        rc = memory_link_receive(l, chunk, n, e);
        if (rc == 0 && memory_file_write(f, at, chunk, n) < 0)
            rc = err_set_errno(e, errno, "memory for a part");
        memory_hasher_add(&hasher, chunk, n);
        at += n;
        size -= n;
    }
    *hash = memory_hasher_end(&hasher);
    free(chunk);
    return rc;
}

int memory_link_take(struct memory_link *l, struct memory_file *f,
                     const struct memory_header *h, struct err *e)
{
    bool shared = h->shared_bytes > 0;
    uint64_t hash;

    e->code = 0;
    if (link_take_bytes(l, f, shared ? h->shared_bytes : h->own_bytes, &hash, e) < 0)
        return -1;
    if (hash != (shared ? h->shared_hash : h->own_hash)) {
        (void)err_set(e, "its bytes are not those of its hash");
        return err_set_code(e, MEMORY_REFUSED, 0);
    }
    if (memory_file_write(f, 0, h, sizeof(*h)) < 0)
        return err_set_errno(e, errno, "memory for a part");
    f->sound = h->header_hash;
    return 0;
}

/* -- who is there ------------------------------------------------------------------ */

static int derive_secret(struct memory_keeper *k, char key_id[KEY_ID_SIZE],
                         uint8_t secret[TLS_SECRET_BYTES], struct err *e)
{
    struct id128 instance = memory_keeper_job(k);

    return key_ring_derive(k->config.keys, key_id, "crun memory", instance.byte,
                           sizeof(instance.byte), secret, e);
}

static bool find_secret(void *arg, const char *identity,
                        uint8_t secret[TLS_SECRET_BYTES])
{
    char key_id[KEY_ID_SIZE];
    size_t length = strlen(IDENTITY);
    struct err e;

    if (strncmp(identity, IDENTITY, length) != 0 ||
        strlen(identity + length) != sizeof(key_id) - 1)
        return false;
    memcpy(key_id, identity + length, sizeof(key_id));
    return derive_secret(arg, key_id, secret, &e) == 0;
}

static int link_shake(struct memory_link *l, struct err *e)
{
    int done = tls_handshake(l->tls);

    return done > 0    ? 0
           : done == 0 ? err_set(e, "no answer in %d s", MEMORY_PEER_DIAL_MS / 1000)
                       : err_set(e, "%s", tls_why(l->tls));
}

static int link_shake_dialled(struct memory_link *l, struct err *e)
{
    char key_id[KEY_ID_SIZE] = "";
    struct tls_psk psk;
    int rc = -1;

    if (tls_load(e) == 0 && derive_secret(l->keeper, key_id, psk.secret, e) == 0) {
        snprintf(psk.identity, sizeof(psk.identity), IDENTITY "%s", key_id);
        l->tls = tls_connect(l->fd, &psk, e);
        rc = l->tls ? link_shake(l, e) : -1;
    }
    explicit_bzero(&psk, sizeof(psk));
    return rc;
}

static int link_shake_accepted(struct memory_link *l, struct err *e)
{
    struct tls_door *door = NULL;
    int rc = -1;

    if (tls_load(e) == 0 && (door = tls_door_create(find_secret, l->keeper, e))) {
        l->tls = tls_accept(door, l->fd);
        rc = l->tls ? link_shake(l, e) : err_set(e, "no memory for a connection");
    }
    tls_door_destroy(door);
    return rc;
}

/* -- a link ------------------------------------------------------------------------ */

void memory_link_close(struct memory_link *l)
{
    if (l->fd < 0)
        return;
    pthread_mutex_lock(&l->keeper->lock);
    LIST_REMOVE(l, entry);
    pthread_mutex_unlock(&l->keeper->lock);
    tls_destroy(l->tls);
    close(l->fd);
    *l = (struct memory_link){ .keeper = l->keeper, .fd = -1 };
}

/* The keeper's end ends it soon, too. */
static int link_connect(const struct memory_keeper *k, const char *address,
                        struct err *e)
{
    struct net_addr list[ADDRESSES_MAX];
    char host[ADDRESS_MAX_BYTES + 1];
    socklen_t size = sizeof(int);
    struct pollfd p = { .events = POLLOUT };
    uint16_t port;
    size_t count;
    int error = ETIMEDOUT;

    if (net_split(address, -1, host, sizeof(host), &port, e) < 0 ||
        net_resolve(host, port, list, ADDRESSES_MAX, &count, e) < 0 ||
        (p.fd = net_connect(&list[0], e)) < 0)
        return -1;
    for (int ms = 0; error == ETIMEDOUT && ms < MEMORY_PEER_DIAL_MS && !k->stop;
         ms += LOOK_MS)
        if (poll(&p, 1, LOOK_MS) == 1)
            (void)getsockopt(p.fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (!error)
        return p.fd;
    close(p.fd);
    return err_set_errno(e, error, "the connection");
}

/* The socket blocks, for so long. The keeper may end it from here on. */
static int link_open(struct memory_link *l, struct memory_keeper *k, int fd,
                     int (*shake)(struct memory_link *, struct err *), struct err *e)
{
    int rc = 0;

    *l = (struct memory_link){ .keeper = k, .fd = fd };
    (void)fcntl(fd, F_SETFL, 0);
    link_set_patience(l, MEMORY_PEER_DIAL_MS);
    pthread_mutex_lock(&k->lock);
    if (k->stop)
        rc = err_set(e, "this agent ends");
    LIST_INSERT_HEAD(&k->links, l, entry);
    pthread_mutex_unlock(&k->lock);
    if (rc == 0 && k->config.keys)
        rc = shake(l, e);
    link_set_patience(l, MEMORY_PEER_STILL_MS);
    if (rc < 0)
        memory_link_close(l);
    return rc;
}

int memory_link_dial(struct memory_link *l, struct memory_keeper *k,
                     const char *address, struct err *e)
{
    int fd = link_connect(k, address, e);

    l->fd = -1;
    return fd < 0 ? -1 : link_open(l, k, fd, link_shake_dialled, e);
}

int memory_link_accept(struct memory_link *l, struct memory_keeper *k, int fd)
{
    struct err e;

    return link_open(l, k, fd, link_shake_accepted, &e);
}

/* -- requests ---------------------------------------------------------------------- */

int memory_link_await(struct memory_link *l, struct memory_reply *reply, struct err *e)
{
    if (memory_link_receive(l, reply, sizeof(*reply), e) < 0)
        return -1;
    if (reply->magic != MEMORY_MAGIC)
        return err_set(e, "an answer that is none");
    if (reply->status == MEMORY_OK)
        return 0;
    reply->text[sizeof(reply->text) - 1] = '\0';
    (void)err_set(e, "%s", reply->text);
    return err_set_code(e, (int)reply->status, 0);
}

int memory_link_ask(struct memory_link *l, struct memory_request *r,
                    struct memory_reply *reply, struct err *e)
{
    r->magic = MEMORY_MAGIC;
    r->version = MEMORY_VERSION;
    r->instance = memory_keeper_job(l->keeper);
    if (memory_link_send(l, r, sizeof(*r), e) < 0)
        return -1;
    return memory_link_await(l, reply, e);
}

int memory_link_next(struct memory_link *l, struct memory_request *r)
{
    struct id128 instance = memory_keeper_job(l->keeper);
    struct err e;

    if (memory_link_receive(l, r, sizeof(*r), &e) < 0)
        return -1;
    return r->magic == MEMORY_MAGIC && r->version == MEMORY_VERSION &&
                   !id128_is_zero(&instance) && id128_equal(&r->instance, &instance)
               ? 0
               : -1;
}

int memory_link_reply(struct memory_link *l, enum memory_status status,
                      const struct memory_header *header, const char *text,
                      struct err *e)
{
    struct memory_reply r = { .magic = MEMORY_MAGIC, .status = status };

    if (header)
        r.header = *header;
    snprintf(r.text, sizeof(r.text), "%s", text);
    return memory_link_send(l, &r, sizeof(r), e);
}
