/* SPDX-License-Identifier: MIT */
#include "agent/memory/keeper_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/memory/limits.h"
#include "agent/memory/memory_link.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/xalloc.h"

struct memory_peer {
    struct memory_keeper *keeper;
    int fd;
    struct memory_link link;
    uint8_t chunk[MEMORY_CHUNK_BYTES];
};

/* -- GET --------------------------------------------------------------------------- */

static int send_section(struct memory_peer *p, const struct memory_file *f,
                        uint64_t from, uint64_t to, struct err *e)
{
    while (from < to) {
        size_t n = to - from < sizeof(p->chunk) ? to - from : sizeof(p->chunk);

        if (memory_file_read(f, from, p->chunk, n) < 0)
            return err_set_errno(e, errno, "a part");
        if (memory_link_send(&p->link, p->chunk, n, e) < 0)
            return -1;
        from += n;
    }
    return 0;
}

static int peer_get(struct memory_peer *p, const struct memory_request *r,
                    struct err *e)
{
    struct memory_keeper *k = p->keeper;
    struct memory_header header;
    struct memory_file *f;
    uint64_t at = 0, size = 0;
    int rc = -1;

    pthread_mutex_lock(&k->lock);
    f = memory_table_find(&k->table, &r->set, r->rank, r->shared != 0);
    if (f) {
        header = memory_file_section(f, r->shared != 0, &at);
        size = r->shared ? header.shared_bytes : header.own_bytes;
        f->users++;
    }
    pthread_mutex_unlock(&k->lock);
    if (!f)
        return memory_link_reply(&p->link, MEMORY_NOT_HERE, NULL, "it is not there", e);
    if (r->from > r->to || r->to > size)
        rc = memory_link_reply(&p->link, MEMORY_REFUSED, NULL, "no such bytes", e);
    else if (memory_link_reply(&p->link, MEMORY_OK, &header, "", e) == 0)
        rc = send_section(p, f, at + r->from, at + r->to, e);
    memory_keeper_release(k, f);
    return rc;
}

/* -- PUT --------------------------------------------------------------------------- */

static bool has_copy(struct memory_keeper *k, const struct memory_header *h)
{
    const struct memory_file *f;
    bool has;

    pthread_mutex_lock(&k->lock);
    f = memory_table_find(&k->table, &h->set, h->rank, false);
    has = f && f->origin == MEMORY_COPY && f->header.header_hash == h->header_hash;
    pthread_mutex_unlock(&k->lock);
    return has;
}

/* A place for it, which is in use then, and has no part. NULL and why not. */
static struct memory_file *prepare_copy(struct memory_keeper *k,
                                        const struct memory_request *r, struct err *e)
{
    const struct memory_header *h = &r->header;
    uint64_t bytes = memory_slot_bytes(h->own_bytes, 0);
    struct memory_file *f = NULL;

    if (!memory_header_is_whole(h, bytes) || h->shared_bytes || bytes == UINT64_MAX) {
        (void)err_set(e, "its header is none");
        return NULL;
    }
    pthread_mutex_lock(&k->lock);
    f = memory_table_copy(&k->table, h, &r->set, e);
    if (f && ((bytes > f->bytes && memory_keeper_grant(k, bytes - f->bytes, e) < 0) ||
              memory_file_grow(f, bytes, e) < 0))
        f = NULL;
    if (f) {
        memory_file_drop(f);
        f->users++;
    }
    pthread_mutex_unlock(&k->lock);
    return f;
}

/* The header comes last: until then, the file has no part. */
static int receive_copy(struct memory_peer *p, struct memory_file *f,
                        const struct memory_header *h, struct err *e)
{
    struct memory_hasher hasher;
    uint64_t at = 0;

    memory_hasher_begin(&hasher);
    while (at < h->own_bytes) {
        size_t n = h->own_bytes - at < sizeof(p->chunk) ? h->own_bytes - at
                                                        : sizeof(p->chunk);

        if (memory_link_receive(&p->link, p->chunk, n, e) < 0)
            return -1;
        if (memory_file_write(f, MEMORY_HEADER_BYTES + at, p->chunk, n) < 0)
            return err_set_errno(e, errno, "memory for a copy");
        memory_hasher_add(&hasher, p->chunk, n);
        at += n;
    }
    if (memory_hasher_end(&hasher) != h->own_hash) {
        (void)err_set(e, "its bytes are not those of its hash");
        return err_set_code(e, MEMORY_REFUSED, 0);
    }
    return memory_file_write(f, 0, h, sizeof(*h)) < 0
               ? err_set_errno(e, errno, "a copy")
               : 0;
}

static int peer_put(struct memory_peer *p, const struct memory_request *r,
                    struct err *e)
{
    struct memory_keeper *k = p->keeper;
    struct memory_file *f;
    int rc;

    if (has_copy(k, &r->header))
        return memory_link_reply(&p->link, MEMORY_OK, &r->header, "", e);
    /* a peer that sends copies asks for no parts: the thread stays so */
    (void)setpriority(PRIO_PROCESS, 0, MEMORY_COPY_NICE);
    f = prepare_copy(k, r, e);
    if (!f)
        return memory_link_reply(&p->link, MEMORY_NO_MEMORY, NULL, e->text, e);
    rc = memory_link_reply(&p->link, MEMORY_OK, NULL, "", e);
    if (rc == 0)
        rc = receive_copy(p, f, &r->header, e);
    pthread_mutex_lock(&k->lock);
    if (rc == 0 && memory_file_look(f))
        f->sound = f->header.header_hash;
    pthread_mutex_unlock(&k->lock);
    memory_keeper_release(k, f);
    if (rc < 0 && e->code != MEMORY_REFUSED)
        return -1;
    return memory_link_reply(&p->link, rc < 0 ? MEMORY_REFUSED : MEMORY_OK, NULL,
                             rc < 0 ? e->text : "", e);
}

/* -- connections ------------------------------------------------------------------- */

static void *serve_peer(void *arg)
{
    struct memory_peer *p = arg;
    struct memory_keeper *k = p->keeper;
    struct memory_request r;
    struct err e;

    if (memory_link_accept(&p->link, k, p->fd, &e) == 0) {
        int rc = 0;

        while (rc == 0 && memory_link_idle(&p->link) &&
               memory_link_receive(&p->link, &r, sizeof(r), &e) == 0 &&
               r.magic == MEMORY_MAGIC)
            rc = r.kind == MEMORY_GET   ? peer_get(p, &r, &e)
                 : r.kind == MEMORY_PUT ? peer_put(p, &r, &e)
                                        : -1;
        memory_link_close(&p->link);
    }
    free(p);
    pthread_mutex_lock(&k->lock);
    memory_keeper_leave(k, &k->peers);
    return NULL;
}

void memory_peers_accept(struct memory_keeper *k)
{
    struct net_addr from;
    int fd = net_accept(k->port_listener, &from);
    struct memory_peer *p;
    int rc;

    if (fd < 0) {
        if (errno != EAGAIN) /* no descriptors: it stays readable */
            poll(NULL, 0, 20);
        return;
    }
    p = xcalloc(1, sizeof(*p));
    p->keeper = k;
    p->fd = fd;
    pthread_mutex_lock(&k->lock);
    rc = memory_keeper_spawn(k, &k->peers, MEMORY_PEERS_MAX, serve_peer, p);
    pthread_mutex_unlock(&k->lock);
    if (rc == 0)
        return;
    close(fd);
    free(p);
}
