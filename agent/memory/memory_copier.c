/* SPDX-License-Identifier: MIT */
#include "agent/memory/keeper_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/pkt_sched.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/memory/limits.h"
#include "agent/memory/memory_link.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"

/*
 * Own sections only: a set that spans several nodes has its shared section on each.
 * What cannot be copied counts as kept: training does not wait for a neighbour that is
 * gone, and the next checkpoint is tried again.
 */
struct memory_copier {
    struct memory_keeper *keeper;
    struct memory_link link;              /* fd -1: none */
    char neighbour[MEMORY_ADDRESS_BYTES]; /* of the link */
    uint64_t paced_us;                    /* when the next chunk may be sent */
    uint8_t chunk[MEMORY_CHUNK_BYTES];
};

/* What is to be sent; the worker may write to its file meanwhile. */
struct memory_copy {
    struct memory_file *file;
    struct memory_header header; /* of the file */
    struct memory_set restore;
    bool is_due; /* else its worker is told to go on without a copy */
    char neighbour[MEMORY_ADDRESS_BYTES];
};

/* The newest part of each worker that the neighbour lacks; while that cannot be
 * reached, one whose worker waits. With the lock. */
static struct memory_file *find_work(const struct memory_keeper *k, uint64_t now_ms)
{
    struct memory_file *f;

    TAILQ_FOREACH(f, &k->table.files, entry)
        if (f->copied != f->header.header_hash &&
            (now_ms >= k->copy_again_ms || f->kept != f->header.header_hash) &&
            memory_table_is_newest(&k->table, f))
            return f;
    return NULL;
}

/* Until something has changed, or it is time to try again. With the lock, which is
 * given back meanwhile. A connection that is not used ends. */
static void copier_sleep(struct memory_copier *c, uint64_t now_ms)
{
    struct memory_keeper *k = c->keeper;
    uint64_t ms = k->copy_again_ms > now_ms ? k->copy_again_ms - now_ms
                                            : MEMORY_COPY_IDLE_MS;
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ms / 1000 + 1);
    if (pthread_cond_timedwait(&k->changed, &k->lock, &until) == ETIMEDOUT &&
        c->link.fd >= 0) {
        pthread_mutex_unlock(&k->lock);
        memory_link_close(&c->link);
        pthread_mutex_lock(&k->lock);
    }
}

/* False: the keeper ends. */
static bool await_work(struct memory_copier *c, struct memory_copy *copy)
{
    struct memory_keeper *k = c->keeper;
    struct memory_file *f = NULL;

    pthread_mutex_lock(&k->lock);
    while (!k->stop && !f) {
        uint64_t now_ms = clock_ms();

        f = *k->neighbour ? find_work(k, now_ms) : NULL;
        if (!f)
            copier_sleep(c, now_ms);
    }
    if (f) {
        *copy = (struct memory_copy){ .file = f,
                                      .header = f->header,
                                      .restore = k->restore,
                                      .is_due = clock_ms() >= k->copy_again_ms };
        memcpy(copy->neighbour, k->neighbour, sizeof(copy->neighbour));
    }
    pthread_mutex_unlock(&k->lock);
    return f != NULL;
}

/* The rate is that of all copies of this agent. */
static void copier_pace(struct memory_copier *c, size_t sent)
{
    uint64_t rate = c->keeper->config.copy_rate, now = clock_us();

    if (!rate)
        return;
    if (c->paced_us < now)
        c->paced_us = now;
    c->paced_us += (uint64_t)sent * 1000000 / rate;
    if (c->paced_us > now + 1000)
        poll(NULL, 0, (int)((c->paced_us - now) / 1000));
}

static int send_own(struct memory_copier *c, const struct memory_copy *copy,
                    struct err *e)
{
    /* a chunk takes at most a tenth of a second */
    uint64_t rate = c->keeper->config.copy_rate, left = copy->header.own_bytes;
    size_t most = rate && rate / 10 < sizeof(c->chunk) ? rate / 10 + 1
                                                       : sizeof(c->chunk);

    for (uint64_t at = MEMORY_HEADER_BYTES; left > 0;) {
        size_t n = left < most ? left : most;

        if (memory_file_read(copy->file, at, c->chunk, n) < 0)
            return err_set_errno(e, errno, "a part");
        if (memory_link_send(&c->link, c->chunk, n, e) < 0)
            return -1;
        copier_pace(c, n);
        at += n;
        left -= n;
    }
    return 0;
}

static int copier_connect(struct memory_copier *c, const struct memory_copy *copy,
                          struct err *e)
{
    int bulk = TC_PRIO_BULK;

    if (c->link.fd >= 0 && strcmp(c->neighbour, copy->neighbour) == 0)
        return 0;
    if (c->link.fd >= 0)
        memory_link_close(&c->link);
    if (memory_link_dial(&c->link, c->keeper, copy->neighbour, e) < 0)
        return -1;
    (void)setsockopt(c->link.fd, SOL_SOCKET, SO_PRIORITY, &bulk, sizeof(bulk));
    memcpy(c->neighbour, copy->neighbour, sizeof(c->neighbour));
    return 0;
}

static int copier_send(struct memory_copier *c, const struct memory_copy *copy,
                       struct err *e)
{
    struct memory_request r = { .kind = MEMORY_PUT, .set = copy->restore };
    struct memory_file of = { .header = copy->header };
    struct memory_reply reply;
    uint64_t at;

    r.header = memory_file_section(&of, false, &at);
    if (memory_link_ask(&c->link, &r, &reply, e) < 0)
        return -1;
    if (reply.header.header_hash == r.header.header_hash)
        return 0;
    if (send_own(c, copy, e) < 0)
        return -1;
    return memory_link_await(&c->link, &reply, e);
}

/* An answer of the neighbour ends no connection. A connection that has ended since the
 * last copy is made anew; a neighbour that was silent is not asked again. */
static int copier_try(struct memory_copier *c, const struct memory_copy *copy,
                      struct err *e)
{
    for (int tries = 0; tries < 2; tries++) {
        uint64_t began_ms = clock_ms();
        bool was_open = c->link.fd >= 0;

        e->code = 0;
        if (copier_connect(c, copy, e) == 0 && copier_send(c, copy, e) == 0)
            return 0;
        if (e->code)
            return -1;
        memory_link_close(&c->link);
        if (!was_open || clock_ms() - began_ms >= MEMORY_PEER_STILL_MS)
            return -1;
    }
    return -1;
}

/* One line for each time that copies stop. */
static void copier_fail(struct memory_keeper *k, const struct memory_copy *copy,
                        const struct err *e)
{
    if (!k->copy_again_ms)
        memory_keeper_say(k, "no copies of checkpoints in memory at %s for now: %s",
                          copy->neighbour, e->text);
    k->copy_again_ms = clock_ms() + MEMORY_COPY_AGAIN_MS;
}

static void copier_work(struct memory_copier *c, const struct memory_copy *copy)
{
    struct memory_keeper *k = c->keeper;
    struct memory_file *f = copy->file;
    uint64_t hash = copy->header.header_hash;
    struct err e;
    bool copied = copy->is_due && copier_try(c, copy, &e) == 0;

    pthread_mutex_lock(&k->lock);
    (void)memory_file_look(f);
    if (f->header.header_hash == hash) {
        memory_file_set_kept(f);
        f->kept = hash;
    }
    if (strcmp(k->neighbour, copy->neighbour) != 0 || !copy->is_due) {
        /* says nothing of the neighbour */
    } else if (copied) {
        k->copy_again_ms = 0;
        f->copied = hash;
    } else if (f->kept ==
               f->header.header_hash) { /* else the worker has written to it */
        copier_fail(k, copy, &e);
    }
    pthread_mutex_unlock(&k->lock);
}

static void *copy_parts(void *arg)
{
    struct memory_copier *c = arg;
    struct memory_keeper *k = c->keeper;
    struct memory_copy copy;

    (void)setpriority(PRIO_PROCESS, 0, MEMORY_COPY_NICE);
    while (await_work(c, &copy))
        copier_work(c, &copy);
    memory_link_close(&c->link);
    free(c);
    pthread_mutex_lock(&k->lock);
    memory_keeper_leave(k, &k->copiers);
    return NULL;
}

void memory_copier_start(struct memory_keeper *k)
{
    struct memory_copier *c = xcalloc(1, sizeof(*c));

    c->keeper = k;
    c->link.fd = -1;
    if (memory_keeper_spawn(k, &k->copiers, 1, copy_parts, c) < 0)
        free(c);
}
