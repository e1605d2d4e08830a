/* SPDX-License-Identifier: MIT */
#include "agent/memory/keeper_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/memory/memory_link.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/rank_ranges.h"

/* A part that the epoch that runs still lacks. */
struct memory_want {
    uint32_t rank;
    bool shared, is_taken, has_failed; /* by a thread; at all holders */
    char why[160];
};

static struct memory_want *find_want(struct memory_keeper *k, uint32_t rank,
                                     bool shared)
{
    for (size_t i = 0; i < k->want_count; i++)
        if (k->want[i].shared == shared && (shared || k->want[i].rank == rank))
            return &k->want[i];
    return NULL;
}

static void fetch_wants(void *arg);

bool memory_fetcher_want(struct memory_keeper *k, uint32_t rank, bool shared,
                         const char **why)
{
    struct memory_want *w = find_want(k, rank, shared);

    *why = "memory: no such part";
    if (rank >= k->now.restore.world)
        return false;
    if (!w) {
        k->want = xrealloc(k->want, (k->want_count + 1) * sizeof(*k->want));
        w = &k->want[k->want_count++];
        *w = (struct memory_want){ .rank = rank, .shared = shared };
        *why = "memory: no thread to fetch it";
        if (memory_keeper_spawn(k, MEMORY_FETCHER, fetch_wants, k) < 0 &&
            k->threads[MEMORY_FETCHER] == 0) {
            k->want_count--;
            return false;
        }
    }
    *why = w->why;
    return !w->has_failed;
}

void memory_fetcher_begin(struct memory_keeper *k)
{
    const struct memory_epoch *now = &k->now;
    const char *why;

    k->want_count = 0;
    for (uint32_t i = 0; i < k->config.workers && now->restore.world == now->world; i++)
        if (!memory_table_find(&k->table, &now->restore, now->first_rank + i, false))
            (void)memory_fetcher_want(k, now->first_rank + i, false, &why);
    if (strchr(now->holders, '+') &&
        !memory_table_find(&k->table, &now->restore, 0, true))
        (void)memory_fetcher_want(k, 0, true, &why);
}

/* -- threads ----------------------------------------------------------------------- */

struct memory_fetch {
    struct memory_keeper *keeper;
    uint64_t epoch;
    struct memory_set set;
    struct memory_want want;
    char address[MEMORY_ADDRESS_BYTES];
    struct memory_file *file;
};

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
    t->file = memory_file_open(MEMORY_FETCHED, t->want.rank, t->want.shared, e);
    if (!t->file)
        return -1;
    pthread_mutex_lock(&k->lock);
    rc = memory_keeper_grow(k, t->file, bytes, e);
    pthread_mutex_unlock(&k->lock);
    return rc;
}

static int fetch_part(struct memory_fetch *t, struct err *e)
{
    struct memory_request r = { .kind = MEMORY_GET,
                                .rank = t->want.rank,
                                .shared = t->want.shared,
                                .set = t->set };
    struct memory_reply reply;
    struct memory_link l;
    int rc;

    t->file = NULL;
    if (memory_link_dial(&l, t->keeper, t->address, e) < 0)
        return -1;
    rc = memory_link_ask(&l, &r, &reply, e);
    if (rc == 0)
        rc = fetch_prepare(t, &reply.header, e);
    if (rc == 0)
        rc = memory_link_take(&l, t->file, &reply.header, e);
    if (rc == 0)
        (void)memory_file_look(t->file);
    else if (t->file)
        memory_file_close(t->file);
    memory_link_close(&l);
    return rc;
}

/* Whether the word "ADDRESS:PORT=0-3,6+" is of an agent that has the part. */
static bool is_holder(struct memory_fetch *t, char *word)
{
    char *held = strchr(word, '=');
    size_t length = held ? strlen(held) : 0;
    struct rank_ranges ranks = { .count = 0 };
    bool has = length > 0 && held[length - 1] == '+';

    if (length < 2)
        return false;
    *held++ = '\0';
    snprintf(t->address, sizeof(t->address), "%s", word);
    if (has || held[length - 2] == '-')
        held[length - 2] = '\0';
    if (!t->want.shared)
        has = rank_ranges_parse(&ranks, held) && rank_ranges_have(&ranks, t->want.rank);
    rank_ranges_fini(&ranks);
    return has;
}

/* From the first holder that gives it. With the lock, which is given back meanwhile. */
static int fetch_want(struct memory_fetch *t, struct err *e)
{
    struct memory_keeper *k = t->keeper;
    char *list = xstrdup(k->holders), *rest = list, *word;
    int rc = err_set(e, "no agent has the part of rank %u", t->want.rank);

    pthread_mutex_unlock(&k->lock);
    while (rc < 0 && (word = strsep(&rest, " "))) {
        if (!is_holder(t, word))
            continue;
        rc = fetch_part(t, e);
        if (rc < 0)
            memory_keeper_say(k, "no part of rank %u from the memory of %s: %s",
                              t->want.rank, t->address, e->text);
    }
    free(list);
    pthread_mutex_lock(&k->lock);
    return rc;
}

static bool next_want(struct memory_keeper *k, struct memory_fetch *t)
{
    for (size_t i = 0; i < k->want_count && !k->stop; i++)
        if (!k->want[i].is_taken) {
            k->want[i].is_taken = true;
            *t = (struct memory_fetch){ .keeper = k,
                                        .epoch = k->now.epoch,
                                        .set = k->now.restore,
                                        .want = k->want[i] };
            return true;
        }
    return false;
}

static void fetch_wants(void *arg)
{
    struct memory_keeper *k = arg;
    struct memory_fetch t;
    struct err e;

    pthread_mutex_lock(&k->lock);
    while (next_want(k, &t)) {
        int rc = fetch_want(&t, &e);
        struct memory_want *w = k->now.epoch == t.epoch
                                    ? find_want(k, t.want.rank, t.want.shared)
                                    : NULL;

        if (rc == 0 && w) {
            memory_table_add(&k->table, t.file);
            *w = k->want[--k->want_count];
        } else if (rc == 0) {
            memory_file_close(t.file);
        } else if (w) {
            w->has_failed = true;
            snprintf(w->why, sizeof(w->why), "memory: %s", e.text);
        }
        memory_keeper_note(k, (struct memory_note){ .kind = NOTE_FETCHED });
    }
}
