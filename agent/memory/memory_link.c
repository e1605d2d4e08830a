/* SPDX-License-Identifier: MIT */
#include "agent/memory/memory_link.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/memory/limits.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/keys/key_ring.h"
#include "rendezvous/common/tls/tls.h"

#define IDENTITY "crun1-memory:"
#define GREETING_MAGIC 0x6b707263u /* "crpk" */
#define ADDRESSES_MAX 8

struct memory_greeting {
    uint32_t magic, version;
    struct id128 instance;
};

/* -- bytes ------------------------------------------------------------------------- */

static int link_wait(struct memory_link *l, short events, struct err *e)
{
    struct pollfd p = { .fd = l->fd, .events = events };
    uint64_t now = clock_ms();
    int wait_ms = !l->until_ms        ? MEMORY_PEER_STILL_MS
                  : l->until_ms > now ? (int)(l->until_ms - now)
                                      : 0;

    if (poll(&p, 1, wait_ms) == 0)
        return err_set(e, "no answer in %d s",
                       (l->until_ms ? MEMORY_PEER_DIAL_MS : MEMORY_PEER_STILL_MS) /
                           1000);
    return 0;
}

static int link_fault(const struct memory_link *l, ssize_t n, struct err *e)
{
    if (n == 0)
        return err_set(e, "the connection was closed");
    return l->tls && *tls_why(l->tls) ? err_set(e, "%s", tls_why(l->tls))
                                      : err_set_errno(e, errno, "the connection");
}

int memory_link_send(struct memory_link *l, const void *data, size_t size,
                     struct err *e)
{
    for (const uint8_t *from = data; size > 0;) {
        ssize_t n = l->tls ? tls_write(l->tls, from, size)
                           : send(l->fd, from, size, MSG_NOSIGNAL);

        if (n > 0) {
            from += n;
            size -= (size_t)n;
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            return link_fault(l, n, e);
        } else if (link_wait(l, POLLOUT, e) < 0) {
            return -1;
        }
    }
    return 0;
}

int memory_link_receive(struct memory_link *l, void *data, size_t size, struct err *e)
{
    for (uint8_t *to = data; size > 0;) {
        ssize_t n = l->tls ? tls_read(l->tls, to, size) : recv(l->fd, to, size, 0);

        if (n > 0) {
            to += n;
            size -= (size_t)n;
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            return link_fault(l, n, e);
        } else if (link_wait(l, POLLIN, e) < 0) {
            return -1;
        }
    }
    return 0;
}

bool memory_link_idle(struct memory_link *l)
{
    struct pollfd p = { .fd = l->fd, .events = POLLIN };

    return (l->tls && tls_pending(l->tls)) || poll(&p, 1, MEMORY_PEER_IDLE_MS) > 0;
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
    int done;

    while ((done = tls_handshake(l->tls)) == 0)
        if (link_wait(l, tls_wants_write(l->tls) ? POLLOUT : POLLIN, e) < 0)
            return -1;
    return done > 0 ? 0 : err_set(e, "%s", tls_why(l->tls));
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

/* The keeper may end it from here on. */
static int link_init(struct memory_link *l, struct memory_keeper *k, int fd,
                     struct err *e)
{
    int rc = 0;

    *l = (struct memory_link){ .keeper = k, .fd = fd };
    l->until_ms = clock_ms() + MEMORY_PEER_DIAL_MS;
    pthread_mutex_lock(&k->lock);
    if (k->stop)
        rc = err_set(e, "this agent ends");
    LIST_INSERT_HEAD(&k->links, l, entry);
    pthread_mutex_unlock(&k->lock);
    return rc;
}

void memory_link_close(struct memory_link *l)
{
    if (l->fd < 0)
        return;
    pthread_mutex_lock(&l->keeper->lock);
    LIST_REMOVE(l, entry);
    pthread_mutex_unlock(&l->keeper->lock);
    tls_destroy(l->tls);
    close(l->fd);
    l->fd = -1;
    l->tls = NULL;
}

static int link_connect(const char *address, struct err *e)
{
    struct net_addr list[ADDRESSES_MAX];
    char host[ADDRESS_MAX_BYTES + 1];
    uint16_t port;
    size_t count;

    if (net_split(address, -1, host, sizeof(host), &port, e) < 0 ||
        net_resolve(host, port, list, ADDRESSES_MAX, &count, e) < 0)
        return -1;
    return net_connect(&list[0], e);
}

int memory_link_dial(struct memory_link *l, struct memory_keeper *k,
                     const char *address, struct err *e)
{
    struct memory_greeting g = { GREETING_MAGIC, MEMORY_VERSION, memory_keeper_job(k) };
    int fd = link_connect(address, e), error = 0;
    socklen_t size = sizeof(error);

    l->fd = -1;
    if (fd < 0)
        return -1;
    if (link_init(l, k, fd, e) == 0 && link_wait(l, POLLOUT, e) == 0) {
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error)
            (void)err_set_errno(e, error, "the connection");
        else if ((!k->config.keys || link_shake_dialled(l, e) == 0) &&
                 memory_link_send(l, &g, sizeof(g), e) == 0) {
            l->until_ms = 0;
            return 0;
        }
    }
    memory_link_close(l);
    return -1;
}

int memory_link_accept(struct memory_link *l, struct memory_keeper *k, int fd,
                       struct err *e)
{
    struct id128 instance = memory_keeper_job(k);
    struct memory_greeting g;

    if (link_init(l, k, fd, e) == 0 &&
        (!k->config.keys || link_shake_accepted(l, e) == 0) &&
        memory_link_receive(l, &g, sizeof(g), e) == 0) {
        l->until_ms = 0;
        if (g.magic == GREETING_MAGIC && g.version == MEMORY_VERSION &&
            !id128_is_zero(&instance) && id128_equal(&g.instance, &instance))
            return 0;
        (void)err_set(e, "no agent of this job");
    }
    memory_link_close(l);
    return -1;
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
    if (memory_link_send(l, r, sizeof(*r), e) < 0)
        return -1;
    return memory_link_await(l, reply, e);
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
