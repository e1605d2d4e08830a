/* SPDX-License-Identifier: MIT */
#include "agent/memory/memory_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/wire/protocol/rank_ranges.h"

void memory_table_init(struct memory_table *t)
{
    TAILQ_INIT(&t->files);
}

void memory_table_fini(struct memory_table *t)
{
    struct memory_file *f;

    while ((f = TAILQ_FIRST(&t->files)))
        memory_table_remove(t, f);
}

void memory_table_add(struct memory_table *t, struct memory_file *f)
{
    TAILQ_INSERT_TAIL(&t->files, f, entry);
}

void memory_table_remove(struct memory_table *t, struct memory_file *f)
{
    TAILQ_REMOVE(&t->files, f, entry);
    memory_file_close(f);
}

static struct memory_file *table_get_or_open(struct memory_table *t,
                                             enum memory_origin origin, uint32_t owner,
                                             uint32_t slot, struct err *e)
{
    struct memory_file *f;

    TAILQ_FOREACH(f, &t->files, entry)
        if (f->origin == origin && f->owner == owner && f->slot == slot)
            return f;
    f = memory_file_open(origin, owner, slot, e);
    if (f)
        memory_table_add(t, f);
    return f;
}

struct memory_file *memory_table_slot(struct memory_table *t, uint32_t local_rank,
                                      uint32_t slot, struct err *e)
{
    return table_get_or_open(t, MEMORY_OWN, local_rank, slot, e);
}

/*
 * What it costs to lose a copy when one of that header comes: nothing, where there is
 * none or the same again; then the older, unless the job goes back to it as long as
 * there is no copy of the sender's epoch beside it.
 */
static unsigned copy_worth(const struct memory_file *f,
                           const struct memory_file *beside,
                           const struct memory_header *h,
                           const struct memory_set *restore)
{
    if (f->header.set.world == 0 || memory_file_has(f, &h->set, h->rank, false))
        return 0;
    if (restore->world > 0 && memory_set_equal(&f->header.set, restore) &&
        beside->header.set.epoch != h->set.epoch)
        return 3;
    return memory_set_compare(&f->header.set, &beside->header.set) < 0 ? 1 : 2;
}

struct memory_file *memory_table_copy(struct memory_table *t,
                                      const struct memory_header *h,
                                      const struct memory_set *restore, struct err *e)
{
    struct memory_file *f = table_get_or_open(t, MEMORY_COPY, h->rank, 0, e);
    struct memory_file *g = table_get_or_open(t, MEMORY_COPY, h->rank, 1, e), *to;

    if (!f || !g)
        return NULL;
    to = copy_worth(f, g, h, restore) <= copy_worth(g, f, h, restore) ? f : g;
    if (to->users == 0 && (to->header.set.world == 0 ||
                           memory_set_compare(&to->header.set, &h->set) <= 0))
        return to;
    (void)err_set(e, to->users ? "its place is in use" : "newer copies are there");
    return NULL;
}

struct memory_file *memory_table_find(const struct memory_table *t,
                                      const struct memory_set *set, uint32_t rank,
                                      bool shared)
{
    struct memory_file *f;

    TAILQ_FOREACH(f, &t->files, entry)
        if (memory_file_has(f, set, rank, shared))
            return f;
    return NULL;
}

uint64_t memory_table_bytes(const struct memory_table *t, uint64_t *resident)
{
    const struct memory_file *f;
    uint64_t sum = 0;

    *resident = 0;
    TAILQ_FOREACH(f, &t->files, entry) {
        sum += f->bytes;
        *resident += memory_file_resident(f);
    }
    return sum;
}

void memory_table_look(struct memory_table *t)
{
    struct memory_file *f;

    TAILQ_FOREACH(f, &t->files, entry)
        if (f->origin == MEMORY_OWN)
            (void)memory_file_look(f);
}

/* The oldest set of the workers' slots; world 0: one of them has none. */
static struct memory_set oldest_own_set(const struct memory_table *t)
{
    struct memory_set oldest = { .epoch = UINT64_MAX, .step = UINT64_MAX };
    const struct memory_file *f;

    TAILQ_FOREACH(f, &t->files, entry)
        if (f->origin == MEMORY_OWN) {
            if (f->header.set.world == 0)
                return f->header.set;
            if (memory_set_compare(&f->header.set, &oldest) < 0)
                oldest = f->header.set;
        }
    return oldest;
}

void memory_table_collect(struct memory_table *t)
{
    struct memory_file *f = TAILQ_FIRST(&t->files), *next;
    struct memory_set oldest;

    memory_table_look(t);
    oldest = oldest_own_set(t);
    for (; f && oldest.world > 0; f = next) {
        next = TAILQ_NEXT(f, entry);
        if (f->origin != MEMORY_OWN && f->users == 0 && f->header.set.world > 0 &&
            memory_set_compare(&f->header.set, &oldest) < 0)
            memory_table_remove(t, f);
    }
}

bool memory_table_is_newest(const struct memory_table *t, const struct memory_file *f)
{
    const struct memory_file *other;

    if (f->origin != MEMORY_OWN || f->header.set.world == 0)
        return false;
    TAILQ_FOREACH(other, &t->files, entry)
        if (other->origin == MEMORY_OWN && other->owner == f->owner &&
            memory_set_compare(&other->header.set, &f->header.set) > 0)
            return false;
    return true;
}

struct memory_header memory_table_newest(const struct memory_table *t, uint32_t workers,
                                         bool copied)
{
    struct memory_header newest = { .magic = 0 };
    const struct memory_file *f, *g;

    TAILQ_FOREACH(f, &t->files, entry) {
        uint32_t parts = 0;

        TAILQ_FOREACH(g, &t->files, entry)
            parts += g->origin == MEMORY_OWN &&
                     memory_set_equal(&g->header.set, &f->header.set) &&
                     (!copied || g->copied == g->header.header_hash);
        if (f->header.set.world > 0 && parts >= workers &&
            memory_set_compare(&f->header.set, &newest.set) > 0)
            newest = f->header;
    }
    return newest;
}

/* -- as text ----------------------------------------------------------------------- */

/* The newest set that is older than `than`. */
static struct memory_set next_set(const struct memory_table *t,
                                  const struct memory_set *than)
{
    struct memory_set best = { .world = 0 };
    const struct memory_file *f;

    TAILQ_FOREACH(f, &t->files, entry) {
        const struct memory_set *set = &f->header.set;

        if (set->world > 0 && memory_set_compare(set, than) < 0 &&
            (best.world == 0 || memory_set_compare(set, &best) > 0))
            best = *set;
    }
    return best;
}

/* The size of the text, 0 for a set of which only the shared section is here; -1: it
 * does not fit. */
static ssize_t print_set(const struct memory_table *t, const struct memory_set *set,
                         const char *before, char *text, size_t size)
{
    struct rank_ranges ranks = { .count = 0 };
    const struct memory_file *f;
    bool has_shared = false;
    char list[512];
    ssize_t n = 0;

    TAILQ_FOREACH(f, &t->files, entry)
        if (memory_set_equal(&f->header.set, set)) {
            has_shared |= f->header.has_shared;
            if (memory_file_has(f, set, f->header.rank, false))
                rank_ranges_add(&ranks, f->header.rank, f->header.rank);
        }
    if (rank_ranges_print(&ranks, 0, list, sizeof(list)) < ranks.count)
        n = -1;
    else if (ranks.count > 0)
        n = snprintf(text, size, "%s%" PRIu64 ".%" PRIu64 ".%" PRIu32 ":%s%s", before,
                     set->epoch, set->step, set->world, list,
                     !has_shared                          ? ""
                     : memory_table_find(t, set, 0, true) ? "+"
                                                          : "-");
    rank_ranges_fini(&ranks);
    return n < (ssize_t)size ? n : -1;
}

void memory_table_print(const struct memory_table *t, char *text, size_t size)
{
    struct memory_set set = { .epoch = UINT64_MAX, .step = UINT64_MAX };
    size_t used = 0;

    *text = '\0';
    while ((set = next_set(t, &set)).world > 0) {
        ssize_t n = print_set(t, &set, used ? " " : "", text + used, size - used);

        used += n > 0 ? (size_t)n : 0;
        text[used] = '\0';
        if (n < 0)
            break;
    }
}
