/* SPDX-License-Identifier: MIT */
#include "agent/memory/keeper_internal.h"

#include <linux/pkt_sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "agent/memory/limits.h"
#include "agent/memory/memory_link.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/thread.h"
#include "rendezvous/common/base/xalloc.h"

/*
 * Own sections only: a set that spans several nodes has its shared section on each.
 * What cannot be copied counts as kept: training does not wait for a neighbour that is
 * gone.
 */
struct memory_copier {
    struct memory_keeper *keeper;
    struct memory_link link;
    char neighbour[MEMORY_ADDRESS_BYTES]; /* of the link */
    /* what is to be sent; the worker may write to its file meanwhile */
    struct memory_file *file;
    struct memory_header header; /* of the file */
    struct memory_set restore;
    char to[MEMORY_ADDRESS_BYTES];
    bool is_due; /* else its worker is told to go on without a copy */
};

/* The newest part of each worker that the neighbour lacks; while that cannot be
 * reached, one whose worker waits. With the lock. */
static struct memory_file *find_work(const struct memory_keeper *k, bool is_due)
{
    struct memory_file *f;

    TAILQ_FOREACH(f, &k->table.files, entry)
        if (f->copied != f->header.header_hash &&
            (is_due || f->kept != f->header.header_hash) &&
            memory_table_is_newest(&k->table, f))
            return f;
    return NULL;
}

/* False: the keeper ends. */
static bool await_work(struct memory_copier *c)
{
    struct memory_keeper *k = c->keeper;

    pthread_mutex_lock(&k->lock);
    while (!k->stop) {
        c->is_due = clock_ms() >= k->copy_again_ms;
        c->file = *k->now.neighbour ? find_work(k, c->is_due) : NULL;
        if (c->file)
            break;
        if (c->is_due)
            pthread_cond_wait(&k->changed, &k->lock);
        else
            (void)thread_wait_until(&k->changed, &k->lock, k->copy_again_ms);
    }
    if (c->file) {
        c->header = c->file->header;
        c->restore = k->now.restore;
        memcpy(c->to, k->now.neighbour, sizeof(c->to));
    }
    pthread_mutex_unlock(&k->lock);
    return c->file && !k->stop;
}

static int copier_connect(struct memory_copier *c, struct err *e)
{
    int bulk = TC_PRIO_BULK;

    if (c->link.fd >= 0 && strcmp(c->neighbour, c->to) == 0)
        return 0;
    memory_link_close(&c->link);
    if (memory_link_dial(&c->link, c->keeper, c->to, e) < 0)
        return -1;
    (void)setsockopt(c->link.fd, SOL_SOCKET, SO_PRIORITY, &bulk, sizeof(bulk));
    memcpy(c->neighbour, c->to, sizeof(c->neighbour));
    return 0;
}

static int copier_send(struct memory_copier *c, struct err *e)
{
    struct memory_request r = { .kind = MEMORY_PUT, .set = c->restore };
    struct memory_file of = { .header = c->header };
    struct memory_reply reply;
    uint64_t at;

    r.header = memory_file_section(&of, false, &at);
    if (memory_link_ask(&c->link, &r, &reply, e) < 0)
        return -1;
    if (reply.header.header_hash == r.header.header_hash)
        return 0;
    memory_link_give_way(r.header.own_bytes);
    if (memory_link_give(&c->link, c->file, at, r.header.own_bytes,
                         c->keeper->config.copy_rate, e) < 0)
        return -1;
    return memory_link_await(&c->link, &reply, e);
}

/* An answer of the neighbour ends no connection. A connection that has ended since the
 * last copy is made anew; a neighbour that was silent is not asked again. */
static int copier_try(struct memory_copier *c, struct err *e)
{
    for (int tries = 0; tries < 2; tries++) {
        uint64_t began_ms = clock_ms();
        bool was_open = c->link.fd >= 0;

        e->code = 0;
        if (copier_connect(c, e) == 0 && copier_send(c, e) == 0)
            return 0;
        if (e->code)
            return -1;
        memory_link_close(&c->link);
        if (!was_open || clock_ms() - began_ms >= MEMORY_PEER_STILL_MS)
            return -1;
    }
    return -1;
}

static void copier_work(struct memory_copier *c)
{
    struct memory_keeper *k = c->keeper;
    struct memory_file *f = c->file;
    uint64_t hash = c->header.header_hash;
    struct err e;
    bool copied = c->is_due && copier_try(c, &e) == 0;

    pthread_mutex_lock(&k->lock);
    (void)memory_file_look(f);
    if (f->header.header_hash == hash) {
        memory_file_set_kept(f);
        f->kept = hash;
    }
    if (strcmp(k->now.neighbour, c->to) != 0 || !c->is_due) {
        /* says nothing of the neighbour */
    } else if (copied) {
        k->copy_again_ms = 0;
        f->copied = hash;
    } else if (f->kept ==
               f->header.header_hash) { /* else the worker has written to it */
        if (!k->copy_again_ms)          /* one line for each time that copies stop */
            memory_keeper_say(k, "no copies of checkpoints in memory at %s for now: %s",
                              c->to, e.text);
        k->copy_again_ms = clock_ms() + MEMORY_COPY_AGAIN_MS;
    }
    pthread_mutex_unlock(&k->lock);
}

static void copy_parts(void *arg)
{
    struct memory_copier *c = arg;

    while (await_work(c))
        copier_work(c);
    memory_link_close(&c->link);
    pthread_mutex_lock(&c->keeper->lock);
    free(c);
}

void memory_copier_begin(struct memory_keeper *k)
{
    struct memory_copier copier = { .keeper = k, .link = { .keeper = k, .fd = -1 } },
                         *c;
    struct memory_file *f;

    if (!k->config.copies)
        *k->now.neighbour = '\0';
    k->copy_again_ms = 0;
    TAILQ_FOREACH(f, &k->table.files, entry)
        f->copied = 0;
    pthread_cond_broadcast(&k->changed);
    if (!*k->now.neighbour || k->threads[MEMORY_COPIER])
        return;
    c = xmemdup(&copier, sizeof(copier));
    if (memory_keeper_spawn(k, MEMORY_COPIER, copy_parts, c) < 0)
        free(c);
}
