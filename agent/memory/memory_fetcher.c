/* SPDX-License-Identifier: MIT */
#include "agent/memory/keeper_internal.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/memory/limits.h"
#include "agent/memory/memory_link.h"
#include "rendezvous/common/base/thread.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/rank_ranges.h"

#define PIECE_BYTES (4u << 20) /* of one request */

struct memory_holder {
    char address[MEMORY_ADDRESS_BYTES];
    struct rank_ranges ranks;
    bool has_shared;
};

struct memory_want {
    uint32_t rank;
    bool shared, failed;
    char why[160];
};

/* -- holders and wants ------------------------------------------------------------- */

static void drop_holders(struct memory_keeper *k)
{
    for (size_t i = 0; i < k->holder_count; i++)
        rank_ranges_fini(&k->holder[i].ranks);
    k->holder_count = 0;
}

void memory_fetcher_add_holder(struct memory_keeper *k, const char *address,
                               const char *held)
{
    char text[MEMORY_HELD_SIZE];
    size_t length = strlen(held);
    struct memory_holder *h;

    if (k->holders_used)
        drop_holders(k);
    k->holders_used = false;
    snprintf(text, sizeof(text), "%s", held);
    if (length > 0 && length < sizeof(text) && strchr("+-", text[length - 1]))
        text[length - 1] = '\0';
    k->holder = xrealloc(k->holder, (k->holder_count + 1) * sizeof(*k->holder));
    h = &k->holder[k->holder_count];
    *h = (struct memory_holder){ .has_shared = length > 0 && held[length - 1] == '+' };
    snprintf(h->address, sizeof(h->address), "%s", address);
    k->set_has_shared |= length > 0 && strchr("+-", held[length - 1]) != NULL;
    if (rank_ranges_parse(&h->ranks, text))
        k->holder_count++;
    else
        rank_ranges_fini(&h->ranks);
}

static struct memory_want *find_want(struct memory_keeper *k, uint32_t rank,
                                     bool shared)
{
    for (size_t i = 0; i < k->want_count; i++)
        if (k->want[i].shared == shared && (shared || k->want[i].rank == rank))
            return &k->want[i];
    return NULL;
}

static void *fetch_wants(void *arg);

static struct memory_want *add_want(struct memory_keeper *k, uint32_t rank, bool shared)
{
    struct memory_want *w;

    k->want = xrealloc(k->want, (k->want_count + 1) * sizeof(*k->want));
    w = &k->want[k->want_count++];
    *w = (struct memory_want){ .rank = rank, .shared = shared };
    if (memory_keeper_spawn(k, &k->fetchers, 1, fetch_wants, k) < 0 &&
        k->fetchers == 0) {
        w->failed = true;
        snprintf(w->why, sizeof(w->why), "memory: no thread to fetch it");
    }
    return w;
}

enum memory_status memory_fetcher_want(struct memory_keeper *k, uint32_t rank,
                                       bool shared, const char **why)
{
    struct memory_want *w = find_want(k, rank, shared);

    if (k->restore.world == 0 || rank >= k->restore.world) {
        *why = "memory: no such part";
        return MEMORY_NOT_HERE;
    }
    if (!w)
        w = add_want(k, rank, shared);
    *why = w->why;
    return w->failed ? MEMORY_NOT_HERE : MEMORY_OK;
}

void memory_fetcher_begin(struct memory_keeper *k)
{
    const char *why;
    struct memory_file *f;

    if (!k->holders_used && k->restore.world == 0)
        drop_holders(k);
    k->holders_used = true; /* the next one is for the next epoch */
    k->want_count = 0;
    *k->fetched_from = '\0';
    for (uint32_t i = 0; i < k->config.workers && k->restore.world == k->world; i++)
        if (!memory_table_find(&k->table, &k->restore, k->first_rank + i, false))
            (void)memory_fetcher_want(k, k->first_rank + i, false, &why);
    TAILQ_FOREACH(f, &k->table.files, entry)
        if (memory_set_equal(&f->header.set, &k->restore))
            k->set_has_shared |= f->header.has_shared;
    if (k->restore.world > 0 && k->set_has_shared &&
        !memory_table_find(&k->table, &k->restore, 0, true))
        (void)memory_fetcher_want(k, 0, true, &why);
    k->set_has_shared = false;
}

void memory_fetcher_fini(struct memory_keeper *k)
{
    drop_holders(k);
    free(k->holder);
    free(k->want);
}

/* -- one part of one holder -------------------------------------------------------- */

struct memory_fetch {
    struct memory_keeper *keeper;
    char address[MEMORY_ADDRESS_BYTES];
    struct memory_set set;
    struct memory_want want;
    struct memory_file *file;
    uint64_t at, size; /* of the section in it */
    atomic_uint_least64_t next;
    atomic_bool failed;
};

static int fetch_ask(const struct memory_fetch *t, struct memory_link *l, uint64_t from,
                     uint64_t to, struct memory_reply *reply, struct err *e)
{
    struct memory_request r = { .kind = MEMORY_GET,
                                .rank = t->want.rank,
                                .shared = t->want.shared,
                                .set = t->set,
                                .from = from,
                                .to = to };

    return memory_link_ask(l, &r, reply, e);
}

static int fetch_bytes(const struct memory_fetch *t, struct memory_link *l,
                       uint64_t from, uint64_t to, struct err *e)
{
    uint8_t *chunk = xmalloc(MEMORY_CHUNK_BYTES);
    int rc = 0;

    while (from < to && rc == 0) {
        size_t n = to - from < MEMORY_CHUNK_BYTES ? to - from : MEMORY_CHUNK_BYTES;

        rc = memory_link_receive(l, chunk, n, e);
        if (rc == 0 && memory_file_write(t->file, t->at + from, chunk, n) < 0)
            rc = err_set_errno(e, errno, "memory for a part");
        from += n;
    }
    free(chunk);
    return rc;
}

/* Pieces until there are no more, or one of the links has failed. */
static int fetch_pieces(struct memory_fetch *t, struct memory_link *l, struct err *e)
{
    struct memory_reply reply;
    uint64_t from;

    while (!atomic_load(&t->failed) &&
           (from = atomic_fetch_add(&t->next, PIECE_BYTES)) < t->size) {
        uint64_t to = t->size - from < PIECE_BYTES ? t->size : from + PIECE_BYTES;

        if (fetch_ask(t, l, from, to, &reply, e) < 0 ||
            fetch_bytes(t, l, from, to, e) < 0) {
            atomic_store(&t->failed, true);
            return -1;
        }
    }
    return 0;
}

/* One more connection. If there is none, the others do its work. */
static void *fetch_beside(void *arg)
{
    struct memory_fetch *t = arg;
    struct memory_link link;
    struct err e;

    if (memory_link_dial(&link, t->keeper, t->address, &e) == 0) {
        (void)!fetch_pieces(t, &link, &e);
        memory_link_close(&link);
    }
    return NULL;
}

static int fetch_all(struct memory_fetch *t, struct memory_link *first, struct err *e)
{
    pthread_t thread[MEMORY_FETCH_LINKS];
    unsigned threads = 0;
    int rc;

    while (threads + 1 < MEMORY_FETCH_LINKS &&
           t->size > (threads + 1) * (uint64_t)MEMORY_FETCH_SHARE_MIN &&
           thread_start(&thread[threads], fetch_beside, t) == 0)
        threads++;
    rc = fetch_pieces(t, first, e);
    while (threads > 0)
        pthread_join(thread[--threads], NULL);
    return rc == 0 && atomic_load(&t->failed) ? err_set(e, "a connection has failed")
                                              : rc;
}

/* Makes a file that joins the table only when all of it is there and sound. */
static int fetch_prepare(struct memory_fetch *t, const struct memory_header *h,
                         struct err *e)
{
    uint64_t bytes = memory_slot_bytes(h->own_bytes, h->shared_bytes);
    struct memory_keeper *k = t->keeper;
    int rc;

    if (bytes == UINT64_MAX || !memory_header_is_whole(h, bytes) ||
        !memory_set_equal(&h->set, &t->set) ||
        (t->want.shared ? h->own_bytes != 0 || h->shared_bytes == 0
                        : h->shared_bytes != 0 || h->rank != t->want.rank))
        return err_set(e, "the header of its part is none");
    t->size = t->want.shared ? h->shared_bytes : h->own_bytes;
    t->at = MEMORY_HEADER_BYTES;
    t->file = memory_file_open(MEMORY_FETCHED, t->want.rank, t->want.shared, e);
    if (!t->file)
        return -1;
    pthread_mutex_lock(&k->lock);
    rc = memory_keeper_grant(k, bytes, e);
    pthread_mutex_unlock(&k->lock);
    return rc < 0 ? -1 : memory_file_grow(t->file, bytes, e);
}

static int fetch_part(struct memory_fetch *t, struct err *e)
{
    struct memory_link link;
    struct memory_reply reply;
    int rc;

    if (memory_link_dial(&link, t->keeper, t->address, e) < 0)
        return -1;
    rc = fetch_ask(t, &link, 0, 0, &reply, e);
    if (rc == 0)
        rc = fetch_prepare(t, &reply.header, e);
    if (rc == 0)
        rc = fetch_all(t, &link, e);
    memory_link_close(&link);
    if (rc == 0 &&
        memory_file_write(t->file, 0, &reply.header, sizeof(reply.header)) < 0)
        rc = err_set_errno(e, errno, "memory for a part");
    if (rc == 0 && !(memory_file_look(t->file) && memory_file_is_sound(t->file)))
        rc = err_set(e, "its part is damaged");
    if (rc == 0)
        t->file->sound = t->file->header.header_hash;
    else if (t->file)
        memory_file_close(t->file);
    return rc;
}

/* -- the thread -------------------------------------------------------------------- */

/* The next agent that has it, from *at on. With the lock. */
static bool next_holder(const struct memory_keeper *k, struct memory_fetch *t,
                        size_t *at)
{
    while (*at < k->holder_count) {
        const struct memory_holder *h = &k->holder[(*at)++];

        if (t->want.shared ? h->has_shared
                           : rank_ranges_have(&h->ranks, t->want.rank)) {
            memcpy(t->address, h->address, sizeof(t->address));
            return true;
        }
    }
    return false;
}

/* Adds the file to the table, if the epoch still wants it. With the lock. */
static void note_fetched(struct memory_keeper *k, const struct memory_fetch *t, int rc,
                         const struct err *e)
{
    bool is_wanted = memory_set_equal(&t->set, &k->restore);
    struct memory_want *w = is_wanted ? find_want(k, t->want.rank, t->want.shared)
                                      : NULL;

    if (rc == 0 && is_wanted) {
        memory_table_add(&k->table, t->file);
        snprintf(k->fetched_from, sizeof(k->fetched_from), "%s", t->address);
    } else if (rc == 0) {
        memory_file_close(t->file);
    }
    if (w && rc < 0) {
        w->failed = true;
        snprintf(w->why, sizeof(w->why), "memory: %s", e->text);
    }
    memory_keeper_wake(k);
}

static bool next_want(const struct memory_keeper *k, struct memory_fetch *t)
{
    for (size_t i = 0; i < k->want_count && !k->stop; i++)
        if (!k->want[i].failed &&
            !memory_table_find(&k->table, &k->restore, k->want[i].rank,
                               k->want[i].shared)) {
            *t = (struct memory_fetch){ .set = k->restore, .want = k->want[i] };
            return true;
        }
    return false;
}

static void *fetch_wants(void *arg)
{
    struct memory_keeper *k = arg;
    struct memory_fetch t;
    struct err e;

    pthread_mutex_lock(&k->lock);
    while (next_want(k, &t)) {
        size_t at = 0;
        int rc = err_set(&e, "no agent has the part of rank %u", t.want.rank);

        t.keeper = k;
        while (rc < 0 && next_holder(k, &t, &at)) {
            t.file = NULL;
            atomic_store(&t.next, 0);
            atomic_store(&t.failed, false);
            pthread_mutex_unlock(&k->lock);
            rc = fetch_part(&t, &e);
            if (rc < 0)
                memory_keeper_say(k, "no part of rank %u from the memory of %s: %s",
                                  t.want.rank, t.address, e.text);
            pthread_mutex_lock(&k->lock);
        }
        note_fetched(k, &t, rc, &e);
    }
    memory_keeper_leave(k, &k->fetchers);
    return NULL;
}
