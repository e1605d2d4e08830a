/* SPDX-License-Identifier: MIT */
/*
 * Writing a journal: the batch under construction, the tail of the file, the room
 * reserved after it, and the snapshot that makes the file short again.
 *
 * A failed write or sync is final. The kernel may drop pages that it could not write
 * and report no error at the next sync: only a new process that reads the file can find
 * out its content.
 */
#include "rendezvous/job/records/journal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "rendezvous/common/base/wire.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/records/journal_format.h"
#include "rendezvous/job/records/limits.h"

#define SNAPSHOT_BATCH_BYTES (256u * 1024)
#define SNAPSHOT_RETRY_BYTES (JOURNAL_RESERVE_BYTES / 4)

/* A file, and where it grows. */
struct tail {
    int file;
    uint32_t file_check;
    uint32_t check;  /* of the last batch */
    uint64_t number; /* of the last batch */
    uint64_t end;
};

struct journal {
    struct disk *disk; /* NULL: it has a keeper */
    struct journal_keeper keeper;
    struct tail tail;
    uint8_t *batch; /* begins with room for its header */
    size_t used;
    size_t size;
    uint64_t reserved_end; /* of the room that was reserved */
    uint64_t snapshot_at;  /* a tail beyond this is worth a snapshot */
    uint64_t retry_at;     /* below this no snapshot is tried, even on a full disk */
    bool full;
    bool failed;
    bool dumping; /* records go to a snapshot; dump_errno: its error */
    int dump_errno;
};

static int write_at(struct disk *d, int file, const void *data, size_t size,
                    uint64_t at)
{
    const uint8_t *next = data;

    while (size > 0) {
        int64_t n = d->ops->write(d, file, next, size, at);

        if (n <= 0) {
            errno = n < 0 ? errno : EIO;
            return -1;
        }
        next += n;
        at += (uint64_t)n;
        size -= (size_t)n;
    }
    return 0;
}

static void batch_clear(struct journal *j)
{
    j->used = JOURNAL_BATCH_HEADER_SIZE;
}

static uint8_t *batch_extend(struct journal *j, size_t more)
{
    uint8_t *place;

    if (j->size - j->used < more) {
        j->size = 2 * (j->used + more);
        j->batch = xrealloc(j->batch, j->size);
    }
    place = j->batch + j->used;
    j->used += more;
    return place;
}

/* Write the batch at the tail and begin a new one; does not sync. */
static int batch_write(struct journal *j)
{
    struct tail *t = &j->tail;
    size_t length = j->used - JOURNAL_BATCH_HEADER_SIZE;
    struct journal_batch_header h = {
        .length = (uint32_t)length,
        .number = t->number + 1,
        .previous = t->check,
        .body = journal_checksum(j->batch + JOURNAL_BATCH_HEADER_SIZE, length),
    };

    if (length > JOURNAL_BATCH_MAX) {
        errno = EMSGSIZE;
        return -1;
    }
    journal_put_batch_header(&h, t->file_check, j->batch);
    if (write_at(j->disk, t->file, j->batch, j->used, t->end) < 0)
        return -1;
    t->end += j->used;
    t->number = h.number;
    t->check = h.check;
    batch_clear(j);
    return 0;
}

void journal_mark(struct journal *j)
{
    struct tail at = j->tail;

    (void)batch_write(j); /* the next commit fails, too */
    batch_clear(j);
    j->tail = at;
}

/* Keep the reserve. Twice its size is requested, so that requests are rare; if that
 * fails, the reserve alone decides. */
static void reserve_ahead(struct journal *j)
{
    struct disk *d = j->disk;

    if (j->reserved_end >= j->tail.end + JOURNAL_RESERVE_BYTES)
        return;
    for (uint64_t size = 2 * JOURNAL_RESERVE_BYTES; size >= JOURNAL_RESERVE_BYTES;
         size /= 2) {
        if (d->ops->reserve(d, j->tail.file, j->tail.end, size) == 0) {
            j->reserved_end = j->tail.end + size;
            j->full = false;
            return;
        }
    }
    j->full = true;
}

/* Create a file with a header alone, under the name of a new file. */
static int tail_create(struct disk *d, struct tail *t)
{
    uint8_t header[JOURNAL_FILE_HEADER_SIZE];
    struct id128 id = id128_random();

    t->file = d->ops->open(d, JOURNAL_NEW_NAME, true);
    if (t->file < 0)
        return -1;
    t->number = 0;
    t->end = sizeof(header);
    t->file_check = t->check = journal_put_file_header(&id, header);
    if (d->ops->truncate(d, t->file, 0) < 0)
        return -1;
    return write_at(d, t->file, header, sizeof(header), 0);
}

static void tail_close(struct disk *d, struct tail *t)
{
    int why = errno;

    if (t->file >= 0)
        d->ops->close(d, t->file);
    t->file = -1;
    errno = why;
}

static int journal_make_empty(struct disk *d, struct tail *t, struct err *e)
{
    if (tail_create(d, t) < 0 || d->ops->sync(d, t->file) < 0 ||
        d->ops->replace(d, JOURNAL_NEW_NAME, JOURNAL_NAME) < 0)
        return err_set_errno(e, errno, "journal: cannot create it");
    return 0;
}

/*
 * The process that wrote the file may not have synced its last batch, or its name. Both
 * are synced before anything acts on them.
 */
static int read_existing(struct journal *j, journal_record_fn *fn, void *arg,
                         uint64_t *cut_bytes, struct err *e)
{
    struct disk *d = j->disk;
    struct tail *t = &j->tail;
    struct journal_extent x;

    if (journal_load(d, t->file, fn, arg, &x, e) < 0)
        return -1;
    *t = (struct tail){ .file = t->file,
                        .file_check = x.file_check,
                        .check = x.check,
                        .number = x.number,
                        .end = x.end };
    *cut_bytes = x.cut_bytes;
    if (d->ops->truncate(d, t->file, x.end) < 0)
        return err_set_errno(e, errno, "journal: cannot cut its tail");
    if (d->ops->sync(d, t->file) < 0 || d->ops->sync_names(d) < 0)
        return err_set_errno(e, errno, "journal: cannot sync");
    return 0;
}

static int open_tail(struct journal *j, journal_record_fn *fn, void *arg,
                     uint64_t *cut_bytes, struct err *e)
{
    struct disk *d = j->disk;

    *cut_bytes = 0;
    if (d->ops->remove(d, JOURNAL_NEW_NAME) < 0 && errno != ENOENT)
        return err_set_errno(e, errno, "journal: cannot remove %s", JOURNAL_NEW_NAME);
    j->tail.file = d->ops->open(d, JOURNAL_NAME, false);
    if (j->tail.file >= 0)
        return read_existing(j, fn, arg, cut_bytes, e);
    if (errno != ENOENT)
        return err_set_errno(e, errno, "journal: cannot open it");
    return journal_make_empty(d, &j->tail, e);
}

struct journal *journal_open(struct disk *disk, journal_record_fn *fn, void *arg,
                             uint64_t *cut_bytes, struct err *e)
{
    struct journal *j;

    if (disk->ops->lock(disk, e) < 0)
        return NULL;
    j = xcalloc(1, sizeof(*j));
    j->disk = disk;
    j->tail.file = -1;
    batch_clear(j);
    if (open_tail(j, fn, arg, cut_bytes, e) < 0) {
        journal_close(j);
        return NULL;
    }
    j->size = j->used;
    j->batch = xmalloc(j->size);
    j->snapshot_at = JOURNAL_SNAPSHOT_BYTES;
    reserve_ahead(j);
    return j;
}

void journal_close(struct journal *j)
{
    if (!j)
        return;
    if (j->disk) {
        tail_close(j->disk, &j->tail);
        j->disk->ops->unlock(j->disk);
    }
    free(j->batch);
    free(j);
}

struct journal *journal_create_kept(const struct journal_keeper *keeper)
{
    struct journal *j = xcalloc(1, sizeof(*j));

    j->keeper = *keeper;
    batch_clear(j);
    j->size = j->used;
    j->batch = xmalloc(j->size);
    return j;
}

bool journal_is_settled(const struct journal *j)
{
    return j->disk || j->keeper.has_kept(j->keeper.arg);
}

/* A snapshot has batches of limited size: none of them counts until all are written. */
static void dump_flush(struct journal *j)
{
    if (j->dump_errno == 0 && batch_write(j) < 0)
        j->dump_errno = errno;
    batch_clear(j);
}

void journal_append(struct journal *j, unsigned type, const void *data, size_t size)
{
    struct wire_out w = { .start = batch_extend(j, JOURNAL_RECORD_HEADER_SIZE + size),
                          .size = JOURNAL_RECORD_HEADER_SIZE + size };

    assert(type <= UINT16_MAX && size <= JOURNAL_RECORD_MAX);
    wire_put_u16(&w, (uint16_t)type);
    wire_put_u32(&w, (uint32_t)size);
    wire_put_bytes(&w, data, size);
    if (j->dumping && j->used >= SNAPSHOT_BATCH_BYTES)
        dump_flush(j);
}

bool journal_pending(const struct journal *j)
{
    return j->used > JOURNAL_BATCH_HEADER_SIZE;
}

static int journal_fail(struct journal *j, struct err *e, const char *what)
{
    j->failed = true;
    return err_set_errno(e, errno, "journal: cannot %s", what);
}

int journal_commit(struct journal *j, struct err *e)
{
    if (j->failed)
        return err_set(e, "journal: an earlier write or sync failed");
    if (!journal_pending(j))
        return 0;
    if (!j->disk) {
        j->keeper.keep(j->keeper.arg, j->batch + JOURNAL_BATCH_HEADER_SIZE,
                       j->used - JOURNAL_BATCH_HEADER_SIZE);
        batch_clear(j);
        return 0;
    }
    if (batch_write(j) < 0)
        return journal_fail(j, e, "write");
    if (j->disk->ops->sync(j->disk, j->tail.file) < 0)
        return journal_fail(j, e, "sync");
    journal_mark(j);
    reserve_ahead(j);
    return 0;
}

bool journal_is_full(struct journal *j)
{
    if (j->full && !j->failed)
        reserve_ahead(j);
    return j->full;
}

/* The disk is full and half of the reserve is used: a snapshot must make room. */
static bool journal_is_tight(const struct journal *j)
{
    return j->full && j->reserved_end < j->tail.end + JOURNAL_RESERVE_BYTES / 2;
}

bool journal_wants_snapshot(const struct journal *j)
{
    return j->tail.end > j->retry_at &&
           (j->tail.end > j->snapshot_at || journal_is_tight(j));
}

static bool err_no_room(int errnum)
{
    return errnum == ENOSPC || errnum == EDQUOT || errnum == EFBIG;
}

/* Write what `dump` appends to a new file, which becomes j->tail. */
static int write_snapshot(struct journal *j, void (*dump)(void *arg, struct journal *j),
                          void *arg)
{
    j->dump_errno = 0;
    if (tail_create(j->disk, &j->tail) < 0)
        return -1;
    j->dumping = true;
    dump(arg, j);
    if (journal_pending(j))
        dump_flush(j);
    j->dumping = false;
    if (j->dump_errno != 0) {
        errno = j->dump_errno;
        return -1;
    }
    return j->disk->ops->sync(j->disk, j->tail.file);
}

/*
 * On a full disk only the reserve has room for a snapshot: release it. Returns its
 * size, to take it again if that was not enough.
 */
static uint64_t lend_reserve(struct journal *j)
{
    uint64_t end = j->tail.end,
             lent = j->reserved_end > end ? j->reserved_end - end : 0;

    if (!j->full || j->disk->ops->truncate(j->disk, j->tail.file, end) < 0)
        return 0;
    j->reserved_end = end;
    return lent;
}

/* Continue with the old file, which contains everything. */
static int keep_old_file(struct journal *j, const struct tail *old, uint64_t lent,
                         struct err *e)
{
    struct disk *d = j->disk;

    err_set_errno(e, errno, "journal: no room for a snapshot");
    tail_close(d, &j->tail);
    j->tail = *old;
    j->retry_at = j->tail.end + SNAPSHOT_RETRY_BYTES;
    if (d->ops->remove(d, JOURNAL_NEW_NAME) < 0 && errno != ENOENT)
        return journal_fail(j, e, "remove a snapshot that had no room");
    if (lent > 0 && d->ops->reserve(d, j->tail.file, j->tail.end, lent) == 0)
        j->reserved_end = j->tail.end + lent;
    return 1;
}

int journal_snapshot(struct journal *j, void (*dump)(void *arg, struct journal *j),
                     void *arg, struct err *e)
{
    struct tail old;
    uint64_t lent, worth;

    if (journal_commit(j, e) < 0)
        return -1;
    lent = lend_reserve(j);
    old = j->tail;
    if (write_snapshot(j, dump, arg) < 0) {
        if (err_no_room(errno))
            return keep_old_file(j, &old, lent, e);
        tail_close(j->disk, &old);
        return journal_fail(j, e, "write a snapshot");
    }
    tail_close(j->disk, &old);
    if (j->disk->ops->replace(j->disk, JOURNAL_NEW_NAME, JOURNAL_NAME) < 0)
        return journal_fail(j, e, "replace it with a snapshot");
    worth = 4 * j->tail.end;
    j->snapshot_at = j->tail.end +
                     (worth > JOURNAL_SNAPSHOT_BYTES ? worth : JOURNAL_SNAPSHOT_BYTES);
    j->retry_at = j->tail.end + SNAPSHOT_RETRY_BYTES;
    j->reserved_end = 0;
    journal_mark(j);
    reserve_ahead(j);
    return 0;
}
