/* SPDX-License-Identifier: MIT */
#include "agent/memory/keeper_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/memory/limits.h"
#include "agent/memory/memory_link.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/xalloc.h"

static int peer_get(struct memory_link *l, const struct memory_request *r,
                    struct err *e)
{
    struct memory_keeper *k = l->keeper;
    struct memory_header h;
    struct memory_file *f;
    uint64_t at;
    int rc;

    pthread_mutex_lock(&k->lock);
    f = memory_table_find(&k->table, &r->set, r->rank, r->shared != 0);
    if (f) {
        h = memory_file_section(f, r->shared != 0, &at);
        f->users++;
    }
    pthread_mutex_unlock(&k->lock);
    if (!f)
        return memory_link_reply(l, MEMORY_NOT_HERE, NULL, "it is not there", e);
    rc = memory_link_reply(l, MEMORY_OK, &h, "", e);
    if (rc == 0)
        rc = memory_link_give(l, f, at, h.own_bytes + h.shared_bytes, 0, e);
    pthread_mutex_lock(&k->lock);
    f->users--;
    pthread_mutex_unlock(&k->lock);
    return rc;
}

/* A place for it, which is in use then, and has no part. NULL and why not; or "", if
 * the copy is there already. */
static struct memory_file *prepare_copy(struct memory_keeper *k,
                                        const struct memory_request *r, struct err *e)
{
    const struct memory_header *h = &r->header;
    uint64_t bytes = memory_slot_bytes(h->own_bytes, 0);
    struct memory_file *f = NULL;

    (void)err_set(e, "its header is none");
    if (!memory_header_is_whole(h, bytes) || h->shared_bytes || bytes == UINT64_MAX)
        return NULL;
    pthread_mutex_lock(&k->lock);
    f = memory_table_find(&k->table, &h->set, h->rank, false);
    if (f && f->origin == MEMORY_COPY && f->header.header_hash == h->header_hash) {
        (void)err_set(e, "%s", "");
        f = NULL;
    } else {
        f = memory_table_copy(&k->table, h, &r->set, e);
        if (f && memory_keeper_grow(k, f, bytes, e) < 0)
            f = NULL;
    }
    if (f) {
        memory_file_drop(f);
        f->users++;
    }
    pthread_mutex_unlock(&k->lock);
    return f;
}

static int peer_put(struct memory_link *l, const struct memory_request *r,
                    struct err *e)
{
    struct memory_keeper *k = l->keeper;
    struct memory_file *f = prepare_copy(k, r, e);
    int rc;

    if (!f && !*e->text)
        return memory_link_reply(l, MEMORY_OK, &r->header, "", e);
    if (!f)
        return memory_link_reply(l, MEMORY_NO_MEMORY, NULL, e->text, e);
    memory_link_give_way(r->header.own_bytes);
    rc = memory_link_reply(l, MEMORY_OK, NULL, "", e);
    if (rc == 0)
        rc = memory_link_take(l, f, &r->header, e);
    pthread_mutex_lock(&k->lock);
    if (rc == 0)
        (void)memory_file_look(f);
    f->users--;
    pthread_mutex_unlock(&k->lock);
    if (rc < 0 && e->code != MEMORY_REFUSED)
        return -1;
    return memory_link_reply(l, rc < 0 ? MEMORY_REFUSED : MEMORY_OK, NULL,
                             rc < 0 ? e->text : "", e);
}

struct memory_peer {
    struct memory_keeper *keeper;
    int fd;
};

static void serve_peer(void *arg)
{
    struct memory_peer p = *(struct memory_peer *)arg;
    struct memory_request r;
    struct memory_link l;
    struct err e = { .code = 0 };
    int rc;

    free(arg);
    rc = memory_link_accept(&l, p.keeper, p.fd);
    while (rc == 0 && memory_link_next(&l, &r) == 0)
        rc = r.kind == MEMORY_GET   ? peer_get(&l, &r, &e)
             : r.kind == MEMORY_PUT ? peer_put(&l, &r, &e)
                                    : -1;
    memory_link_close(&l);
    pthread_mutex_lock(&p.keeper->lock);
}

void memory_for_agents_accept(struct memory_keeper *k)
{
    struct net_addr from;
    struct memory_peer peer = { k, net_accept(k->port_listener, &from) }, *p;
    int rc;

    if (peer.fd < 0) {
        if (errno != EAGAIN) /* no descriptors: it stays readable */
            poll(NULL, 0, 20);
        return;
    }
    p = xmemdup(&peer, sizeof(peer));
    pthread_mutex_lock(&k->lock);
    rc = memory_keeper_spawn(k, MEMORY_PEER, serve_peer, p);
    pthread_mutex_unlock(&k->lock);
    if (rc == 0)
        return;
    close(peer.fd);
    free(p);
}
