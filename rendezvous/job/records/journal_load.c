/* SPDX-License-Identifier: MIT */
/*
 * Reading a journal. A crash can leave one batch that was never synced at the end of
 * the file: it is skipped, and its size is reported. One that was synced has a mark
 * behind it, an empty batch, unless the machine has lost its power. Everything else
 * that fails a check is damage: acknowledged data is lost, and to continue without it
 * would be worse than not to start.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/wire.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/records/journal_format.h"
#include "rendezvous/job/records/limits.h"

#define SEARCH_BYTES (256u * 1024)

struct load {
    struct disk *disk;
    int file;
    uint64_t size;
    struct journal_extent *extent;
    uint8_t *body;
    size_t body_size;
    struct err *e;
};

/* The bytes after the last whole batch. */
enum next { NEXT_BATCH, NEXT_END, NEXT_BROKEN, NEXT_REFUSED };

static int read_at(struct load *l, void *data, size_t size, uint64_t at)
{
    uint8_t *next = data;

    while (size > 0) {
        int64_t n = l->disk->ops->read(l->disk, l->file, next, size, at);

        if (n <= 0)
            return err_set_errno(l->e, n < 0 ? errno : EIO,
                                 "journal: cannot read at byte %" PRIu64, at);
        next += n;
        at += (uint64_t)n;
        size -= (size_t)n;
    }
    return 0;
}

static int err_damaged(struct load *l, uint64_t at_least, const char *what)
{
    uint64_t number = l->extent->number + 1;

    return err_set(l->e,
                   "journal: damaged at byte %" PRIu64 " (batch %" PRIu64
                   " of at least %" PRIu64
                   "%s): refusing to start; move the file away to start without it",
                   l->extent->end, number, at_least > number ? at_least : number, what);
}

/* Returns 1 if they make no sense, and -1 if fn has refused one. */
static int give_each(const void *records, size_t length, journal_record_fn *fn,
                     void *arg, struct err *e)
{
    struct wire_in r = { .next = records, .left = length };

    while (r.left > 0) {
        unsigned type = wire_get_u16(&r);
        uint32_t size = wire_get_u32(&r);

        if (r.bad || size > r.left || size > JOURNAL_RECORD_MAX)
            return 1;
        if (fn(arg, type, r.next, size, e) < 0)
            return -1;
        r.next += size;
        r.left -= size;
    }
    return 0;
}

static int give_records(struct load *l, size_t length, journal_record_fn *fn, void *arg)
{
    int r = give_each(l->body, length, fn, arg, l->e);

    if (r > 0)
        return err_damaged(l, 0, ", records that make no sense");
    if (r < 0)
        return err_wrap(l->e, "journal: batch %" PRIu64 " at byte %" PRIu64,
                        l->extent->number + 1, l->extent->end);
    return 0;
}

int journal_give(const void *records, size_t size, journal_record_fn *fn, void *arg,
                 struct err *e)
{
    int r = give_each(records, size, fn, arg, e);

    return r > 0 ? err_set(e, "records that make no sense") : r;
}

/* Allocates only for bytes that the file has. */
static int read_body(struct load *l, uint32_t length)
{
    if (length > l->body_size) {
        free(l->body);
        l->body = xmalloc(length);
        l->body_size = length;
    }
    return read_at(l, l->body, length, l->extent->end + JOURNAL_BATCH_HEADER_SIZE);
}

static enum next read_batch(struct load *l, struct journal_batch_header *h)
{
    const struct journal_extent *x = l->extent;
    uint64_t left = l->size - x->end;
    uint8_t header[JOURNAL_BATCH_HEADER_SIZE];

    if (left == 0)
        return NEXT_END;
    if (left < sizeof(header))
        return NEXT_BROKEN;
    if (read_at(l, header, sizeof(header), x->end) < 0)
        return NEXT_REFUSED;
    if (!journal_get_batch_header(header, x->file_check, h))
        return NEXT_BROKEN;
    if (h->number != x->number + 1 || h->previous != x->check ||
        h->length > JOURNAL_BATCH_MAX) {
        err_damaged(l, h->number, ", out of its place");
        return NEXT_REFUSED;
    }
    if (h->length > left - sizeof(header))
        return NEXT_BROKEN;
    if (read_body(l, h->length) < 0)
        return NEXT_REFUSED;
    return journal_checksum(l->body, h->length) == h->body ? NEXT_BATCH : NEXT_BROKEN;
}

/* The highest batch number in the chunk, and how much of it is not a tail of zeros. */
static void search_chunk(const struct load *l, const uint8_t *chunk, size_t size,
                         uint64_t *highest, size_t *used)
{
    struct journal_batch_header h;

    *used = 0;
    for (size_t i = 0; i < size; i++) {
        if (chunk[i] == 0)
            continue;
        *used = i + 1;
        if (chunk[i] == (JOURNAL_BATCH_MAGIC & 0xff) &&
            size - i >= JOURNAL_BATCH_HEADER_SIZE &&
            journal_get_batch_header(chunk + i, l->extent->file_check, &h) &&
            h.number > *highest)
            *highest = h.number;
    }
}

/* Whether the broken batch was the last one. Chunks overlap by the size of a header. */
static int search_rest(struct load *l)
{
    struct journal_extent *x = l->extent;
    uint8_t *chunk = xmalloc(SEARCH_BYTES);
    uint64_t highest = 0;
    int r = 0;

    for (uint64_t at = x->end; at < l->size;) {
        uint64_t left = l->size - at;
        size_t size = left < SEARCH_BYTES ? (size_t)left : SEARCH_BYTES;
        size_t used;

        r = read_at(l, chunk, size, at);
        if (r < 0)
            break;
        search_chunk(l, chunk, size, &highest, &used);
        if (used > 0)
            x->cut_bytes = at + used - x->end;
        at += size == left ? size : size - JOURNAL_BATCH_HEADER_SIZE + 1;
    }
    free(chunk);
    if (r == 0 && highest > x->number + 1)
        return err_damaged(l, highest, "");
    return r;
}

static int load_batches(struct load *l, journal_record_fn *fn, void *arg)
{
    struct journal_extent *x = l->extent;
    struct journal_batch_header h;

    for (;;) {
        switch (read_batch(l, &h)) {
        case NEXT_END:
            return 0;
        case NEXT_REFUSED:
            return -1;
        case NEXT_BROKEN:
            return search_rest(l);
        case NEXT_BATCH:
            break;
        }
        if (give_records(l, h.length, fn, arg) < 0)
            return -1;
        x->end += JOURNAL_BATCH_HEADER_SIZE + h.length;
        x->number = h.number;
        x->check = h.check;
    }
}

int journal_load(struct disk *disk, int file, journal_record_fn *fn, void *arg,
                 struct journal_extent *extent, struct err *e)
{
    struct load l = { .disk = disk, .file = file, .extent = extent, .e = e };
    uint8_t header[JOURNAL_FILE_HEADER_SIZE];
    int64_t size = disk->ops->size(disk, file);
    int r;

    memset(extent, 0, sizeof(*extent));
    if (size < 0)
        return err_set_errno(e, errno, "journal: cannot tell its size");
    l.size = (uint64_t)size;
    if (l.size < sizeof(header))
        return err_set(e, "journal: damaged: it has %" PRIu64 " bytes, its header %zu",
                       l.size, sizeof(header));
    if (read_at(&l, header, sizeof(header), 0) < 0 ||
        journal_get_file_header(header, &extent->file_check, e) < 0)
        return -1;
    extent->end = sizeof(header);
    extent->check = extent->file_check;
    r = load_batches(&l, fn, arg);
    free(l.body);
    return r;
}
