/* SPDX-License-Identifier: MIT */
#include "tests/fakes/disk/memfile.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"

#define SECTOR 512

/* A write, or a truncate where data is NULL. */
struct change {
    struct change *next;
    uint8_t *data;
    uint64_t at;
    size_t size;
    bool lost; /* a failed sync: never lasts by a later one */
};

static uint64_t next_random(uint64_t *rng)
{
    uint64_t z = (*rng += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

unsigned memfile_random(uint64_t *rng, unsigned bound)
{
    return (unsigned)(next_random(rng) % bound);
}

static void bytes_resize(struct memfile_bytes *b, size_t size)
{
    if (size > b->room) {
        b->room = size > 2 * b->room ? size : 2 * b->room;
        b->data = xrealloc(b->data, b->room);
    }
    if (size > b->size)
        memset(b->data + b->size, 0, size - b->size);
    b->size = size;
}

static void bytes_put(struct memfile_bytes *b, const uint8_t *data, size_t size,
                      uint64_t at)
{
    if (size == 0)
        return;
    if (at + size > b->size)
        bytes_resize(b, at + size);
    memcpy(b->data + at, data, size);
}

static void change_add(struct memfile *f, const void *data, size_t size, uint64_t at)
{
    struct change *c = xcalloc(1, sizeof(*c));

    c->data = data ? xmemdup(data, size) : NULL;
    c->size = size;
    c->at = at;
    *f->last = c;
    f->last = &c->next;
}

static void changes_drop(struct memfile *f)
{
    struct change *next;

    for (struct change *c = f->first; c; c = next) {
        next = c->next;
        free(c->data);
        free(c);
    }
    f->first = NULL;
    f->last = &f->first;
}

static void change_apply(struct memfile_bytes *b, const struct change *c)
{
    if (c->data)
        bytes_put(b, c->data, c->size, c->at);
    else
        bytes_resize(b, c->at);
}

struct memfile *memfile_create(void)
{
    struct memfile *f = xcalloc(1, sizeof(*f));

    f->last = &f->first;
    return f;
}

void memfile_write(struct memfile *f, const void *data, size_t size, uint64_t at)
{
    bytes_put(&f->seen, data, size, at);
    change_add(f, data, size, at);
}

void memfile_truncate(struct memfile *f, uint64_t size)
{
    bytes_resize(&f->seen, size);
    change_add(f, NULL, 0, size);
    f->blocks_end = memfile_blocks(size);
}

void memfile_sync(struct memfile *f)
{
    for (struct change *c = f->first; c; c = c->next)
        if (!c->lost)
            change_apply(&f->lasting, c);
    changes_drop(f);
}

void memfile_sync_failed(struct memfile *f)
{
    for (struct change *c = f->first; c; c = c->next)
        c->lost = true;
}

void memfile_forget_lost(struct memfile *f)
{
    bytes_resize(&f->seen, 0);
    bytes_put(&f->seen, f->lasting.data, f->lasting.size, 0);
    for (struct change *c = f->first; c; c = c->next)
        if (!c->lost)
            change_apply(&f->seen, c);
}

/* How a crash treats what was not synced: of one mind, or sector by sector. */
enum mood { KEEP_ALL, KEEP_NONE, KEEP_SOME, MOOD_COUNT };

/* One sector of a write: kept, torn, dropped, or dropped with its size kept. */
static void sector_crash(struct memfile_bytes *b, const uint8_t *data, size_t size,
                         uint64_t at, uint64_t *rng)
{
    switch (memfile_random(rng, 8)) {
    case 0:
        bytes_put(b, data, memfile_random(rng, (unsigned)size + 1), at);
        break;
    case 1:
        if (at + size > b->size)
            bytes_resize(b, at + size);
        break;
    case 2:
    case 3:
    case 4:
        bytes_put(b, data, size, at);
        break;
    default:
        break;
    }
}

static void change_crash(struct memfile_bytes *b, const struct change *c, uint64_t *rng)
{
    if (!c->data) {
        if (memfile_random(rng, 2))
            bytes_resize(b, c->at);
        return;
    }
    for (size_t done = 0; done < c->size;) {
        size_t piece = SECTOR - (c->at + done) % SECTOR;

        if (piece > c->size - done)
            piece = c->size - done;
        sector_crash(b, c->data + done, piece, c->at + done, rng);
        done += piece;
    }
}

size_t memfile_blocks(size_t size)
{
    return (size + MEMFILE_BLOCK - 1) / MEMFILE_BLOCK * MEMFILE_BLOCK;
}

static void apply_changes(struct memfile *f)
{
    changes_drop(f);
    bytes_resize(&f->seen, 0);
    bytes_put(&f->seen, f->lasting.data, f->lasting.size, 0);
    f->blocks_end = memfile_blocks(f->seen.size);
}

void memfile_crash(struct memfile *f, uint64_t *rng)
{
    enum mood mood = memfile_random(rng, MOOD_COUNT);

    for (struct change *c = f->first; c; c = c->next) {
        if (mood == KEEP_ALL)
            change_apply(&f->lasting, c);
        else if (mood == KEEP_SOME)
            change_crash(&f->lasting, c, rng);
    }
    apply_changes(f);
}

void memfile_destroy(struct memfile *f)
{
    changes_drop(f);
    free(f->seen.data);
    free(f->lasting.data);
    free(f);
}

void memfile_put(struct memfile *f, const void *data, size_t size)
{
    bytes_resize(&f->lasting, 0);
    bytes_put(&f->lasting, data, size, 0);
    apply_changes(f);
}
