/* SPDX-License-Identifier: MIT */
#ifdef CRUN_RAFT
#include "rendezvous/job/records/raft_disk.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/wire.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/records/journal.h"
#include "rendezvous/job/records/limits.h"
#include "rendezvous/job/records/raft_message.h"

/*
 * The journal's records: OWNER comes first, the last TERM counts, and PIECES are those
 * of messages as replicas send them. One with entries says what follows the entry
 * before them, and what had been there is void; a snapshot stands for all before it.
 * LASTS is in the journal's mark: messages with entries say it again.
 */
enum { RECORD_OWNER = JOURNAL_REPLICA_TYPES, RECORD_TERM, RECORD_PIECE, RECORD_LASTS };

#define FORMAT 1
#define OWNER_MAX 2048
#define PIECE_MAX (JOURNAL_RECORD_MAX - 1)

struct raft_disk {
    struct journal *journal;
    char owner[OWNER_MAX];
    uint64_t id;
    raft_term term;
    raft_id vote;
    /* The entries that a snapshot does not replace, and a few before. */
    raft_index start;
    struct raft_entry *list;
    size_t count, room;
    raft_index covered;             /* by the snapshot */
    raft_index lasting;             /* the newest entry that is known to last */
    struct raft_snapshot *snapshot; /* as read, until it is loaded */
    uint8_t *part;                  /* of a message that is being read */
    size_t part_size;
    bool failed;
    bool is_tight; /* the last snapshot had no room */
    struct err error;
};

raft_index raft_disk_last(const struct raft_disk *d)
{
    return d->start + d->count - 1;
}

/* -- the entries in memory --------------------------------------------------------- */

static void disk_forget_from(struct raft_disk *d, raft_index index)
{
    while (d->count > 0 && raft_disk_last(d) >= index)
        free(d->list[--d->count].buf.base);
}

static void disk_forget_before(struct raft_disk *d, raft_index index)
{
    size_t n = index > d->start ? index - d->start : 0;

    n = n < d->count ? n : d->count;
    for (size_t i = 0; i < n; i++)
        free(d->list[i].buf.base);
    memmove(d->list, d->list + n, (d->count - n) * sizeof(*d->list));
    d->count -= n;
    d->start += n;
}

static void disk_remember(struct raft_disk *d, const struct raft_entry *entry)
{
    struct raft_entry copy = { .term = entry->term, .type = entry->type };

    copy.buf.len = entry->buf.len;
    copy.buf.base = xmalloc(copy.buf.len + 1);
    if (copy.buf.len > 0)
        memcpy(copy.buf.base, entry->buf.base, copy.buf.len);
    if (d->count == d->room) {
        d->room = 2 * d->room + 16;
        d->list = xrealloc(d->list, d->room * sizeof(*d->list));
    }
    d->list[d->count++] = copy;
}

/* -- writing ----------------------------------------------------------------------- */

static void put_owner(const struct raft_disk *d, struct journal *j)
{
    uint8_t data[OWNER_MAX + 16];
    struct wire_out w = { .start = data, .size = sizeof(data) };

    wire_put_u32(&w, FORMAT);
    wire_put_u64(&w, d->id);
    wire_put_text(&w, d->owner);
    journal_append(j, RECORD_OWNER, data, w.used);
}

static void put_term(const struct raft_disk *d, struct journal *j)
{
    uint8_t data[16];
    struct wire_out w = { .start = data, .size = sizeof(data) };

    wire_put_u64(&w, d->term);
    wire_put_u64(&w, d->vote);
    journal_append(j, RECORD_TERM, data, w.used);
}

static void put_message(const struct raft_disk *d, struct journal *j,
                        const struct raft_message *m)
{
    uint8_t piece[JOURNAL_RECORD_MAX];
    size_t size, part;
    uint8_t *data = raft_message_encode(m, d->id, "", &size);

    for (size_t at = 0; at < size; at += part) {
        part = size - at < PIECE_MAX ? size - at : PIECE_MAX;
        piece[0] = at + part == size;
        memcpy(piece + 1, data + at, part);
        journal_append(j, RECORD_PIECE, piece, 1 + part);
    }
    free(data);
}

static void put_entries(const struct raft_disk *d, struct journal *j, raft_index after,
                        const struct raft_entry *entries, size_t n)
{
    struct raft_message m = {
        .type = RAFT_MESSAGE_APPEND,
        .append_entries = { .prev_log_index = after,
                            .leader_commit = d->lasting,
                            .entries = (struct raft_entry *)entries,
                            .n_entries = (unsigned)n },
    };

    put_message(d, j, &m);
}

static int disk_fail(struct raft_disk *d)
{
    d->failed = true;
    return RAFT_IOERR;
}

static int disk_commit(struct raft_disk *d)
{
    return d->failed || journal_commit(d->journal, &d->error) < 0 ? disk_fail(d) : 0;
}

int raft_disk_set_vote(struct raft_disk *d, raft_id vote)
{
    d->vote = vote;
    put_term(d, d->journal);
    return disk_commit(d);
}

int raft_disk_set_term(struct raft_disk *d, raft_term term)
{
    d->term = term;
    return raft_disk_set_vote(d, 0);
}

int raft_disk_append(struct raft_disk *d, const struct raft_entry entries[], unsigned n)
{
    put_entries(d, d->journal, raft_disk_last(d), entries, n);
    for (unsigned i = 0; i < n; i++)
        disk_remember(d, &entries[i]);
    return disk_commit(d);
}

int raft_disk_truncate(struct raft_disk *d, raft_index index)
{
    disk_forget_from(d, index);
    put_entries(d, d->journal, raft_disk_last(d), NULL, 0);
    return disk_commit(d);
}

void raft_disk_note_lasting(struct raft_disk *d, raft_index index)
{
    uint8_t data[8];
    struct wire_out w = { .start = data, .size = sizeof(data) };

    if (d->failed || index <= d->lasting)
        return;
    d->lasting = index;
    wire_put_u64(&w, index);
    journal_append(d->journal, RECORD_LASTS, data, w.used);
    journal_mark(d->journal);
}

bool raft_disk_admits(struct raft_disk *d, const struct raft_append_entries *a)
{
    for (unsigned i = 0; i <= a->n_entries && !d->failed; i++) {
        raft_index index = a->prev_log_index + i;
        raft_term term = i ? a->entries[i - 1].term : a->prev_log_term;

        if (index < d->start || index > raft_disk_last(d) || index > d->lasting ||
            d->list[index - d->start].term == term)
            continue;
        err_set(&d->error,
                "%" PRIu64 " of the entries that the peers had acknowledged are others "
                "at the one that leads now, as with an old copy of a state directory: "
                "this one has them; to go on without them, empty its state directory",
                (uint64_t)(d->lasting - index + 1));
        (void)disk_fail(d);
    }
    return !d->failed;
}

struct disk_dump {
    const struct raft_disk *disk;
    const struct raft_snapshot *snapshot;
};

static void dump_disk(void *arg, struct journal *j)
{
    const struct disk_dump *dump = arg;
    const struct raft_disk *d = dump->disk;
    const struct raft_snapshot *s = dump->snapshot;
    struct raft_message m = {
        .type = RAFT_MESSAGE_SNAPSHOT,
        .install_snapshot = { .last_index = s->index,
                              .last_term = s->term,
                              .conf = s->configuration,
                              .conf_index = s->configuration_index,
                              .data = s->bufs[0] },
    };

    put_owner(d, j);
    put_term(d, j);
    put_message(d, j, &m);
    put_entries(d, j, d->start - 1, d->list, d->count);
}

/* Without room for it the old file goes on, which has all that was before the snapshot,
 * unless that is another one's. */
int raft_disk_put_snapshot(struct raft_disk *d, unsigned trailing,
                           const struct raft_snapshot *snapshot)
{
    struct disk_dump dump = { .disk = d, .snapshot = snapshot };
    int r;

    if (trailing == 0) {
        disk_forget_from(d, 0);
        d->start = snapshot->index + 1;
    } else if (snapshot->index > trailing) {
        disk_forget_before(d, snapshot->index - trailing + 1);
    }
    d->covered = snapshot->index;
    r = d->failed ? -1 : journal_snapshot(d->journal, dump_disk, &dump, &d->error);
    if (r < 0 || (r > 0 && trailing == 0))
        return disk_fail(d);
    if (r > 0 && !d->is_tight)
        log_warn("%s", d->error.text);
    d->is_tight = r > 0;
    return 0;
}

/* -- reading ----------------------------------------------------------------------- */

static int err_senseless(struct err *e)
{
    return err_set(e, "a replica's record that makes no sense");
}

static int read_owner(struct raft_disk *d, struct wire_in *in, struct err *e)
{
    char owner[OWNER_MAX];
    uint32_t format = wire_get_u32(in);

    if (!in->bad && format != FORMAT)
        return err_set(e, "a replica's format is %" PRIu32 "; this crund reads %d",
                       format, FORMAT);
    d->id = wire_get_u64(in);
    wire_get_text(in, owner, sizeof(owner));
    if (in->bad || d->id == 0)
        return err_senseless(e);
    if (strcmp(owner, d->owner) != 0)
        return err_set(e, "it is that of %s, and this is %s", owner, d->owner);
    return 0;
}

void raft_disk_drop(struct raft_append_entries *a)
{
    if (a->n_entries > 0)
        raft_free(a->entries[0].batch);
    raft_free(a->entries);
}

static int read_entries(struct raft_disk *d, struct raft_append_entries *a,
                        struct err *e)
{
    raft_index after = a->prev_log_index;
    bool fits = d->count == 0 ? after <= d->covered
                              : after + 1 >= d->start && after <= raft_disk_last(d);

    if (fits && d->count == 0)
        d->start = after + 1;
    disk_forget_from(d, after + 1);
    for (unsigned i = 0; fits && i < a->n_entries; i++)
        disk_remember(d, &a->entries[i]);
    if (a->leader_commit > d->lasting)
        d->lasting = a->leader_commit;
    raft_disk_drop(a);
    return fits ? 0 : err_senseless(e);
}

static void disk_drop_snapshot(struct raft_disk *d)
{
    if (!d->snapshot)
        return;
    raft_configuration_close(&d->snapshot->configuration);
    raft_free(d->snapshot->bufs[0].base);
    raft_free(d->snapshot->bufs);
    raft_free(d->snapshot);
    d->snapshot = NULL;
}

static void read_snapshot(struct raft_disk *d, const struct raft_install_snapshot *s)
{
    struct raft_snapshot *to = raft_calloc(1, sizeof(*to));
    struct raft_buffer *buf = raft_calloc(1, sizeof(*buf));

    if (!to || !buf)
        abort();
    *buf = s->data;
    *to = (struct raft_snapshot){ .index = s->last_index,
                                  .term = s->last_term,
                                  .configuration = s->conf,
                                  .configuration_index = s->conf_index,
                                  .bufs = buf,
                                  .n_bufs = 1 };
    disk_drop_snapshot(d);
    disk_forget_from(d, 0);
    d->snapshot = to;
    d->covered = to->index;
    d->start = to->index + 1;
}

static int read_piece(struct raft_disk *d, const uint8_t *data, size_t size,
                      struct err *e)
{
    char address[REPLICA_ADDRESS_SIZE];
    struct raft_message m;
    int r;

    if (size < 2)
        return err_senseless(e);
    d->part = xrealloc(d->part, d->part_size + size);
    memcpy(d->part + d->part_size, data + 1, size - 1);
    d->part_size += size - 1;
    if (!data[0])
        return 0;
    r = raft_message_decode(d->part, d->part_size, &m, address);
    free(d->part);
    d->part = NULL;
    d->part_size = 0;
    if (r == 0 && (int)m.type == RAFT_MESSAGE_APPEND)
        return read_entries(d, &m.append_entries, e);
    if (r < 0 || (int)m.type != RAFT_MESSAGE_SNAPSHOT)
        return err_senseless(e);
    read_snapshot(d, &m.install_snapshot);
    return 0;
}

static int disk_read(void *arg, unsigned type, const void *data, size_t size,
                     struct err *e)
{
    struct raft_disk *d = arg;
    struct wire_in in = { .next = data, .left = size };

    if (type < JOURNAL_REPLICA_TYPES)
        return err_set(e, "it is that of a crund without --peers");
    if (type == RECORD_OWNER)
        return read_owner(d, &in, e);
    if (type == RECORD_PIECE && d->id)
        return read_piece(d, data, size, e);
    if (type == RECORD_LASTS) {
        d->lasting = wire_get_u64(&in);
        return in.bad ? err_senseless(e) : 0;
    }
    d->term = wire_get_u64(&in);
    d->vote = wire_get_u64(&in);
    return type == RECORD_TERM && !in.bad && d->id ? 0 : err_senseless(e);
}

/* -- life -------------------------------------------------------------------------- */

struct raft_disk *raft_disk_open(struct disk *disk, const char *owner, uint64_t id,
                                 struct err *e)
{
    struct raft_disk *d = xcalloc(1, sizeof(*d));
    uint64_t cut;
    int r = 0;

    d->start = 1;
    snprintf(d->owner, sizeof(d->owner), "%s", owner);
    d->journal = journal_open(disk, disk_read, d, &cut, e);
    if (d->journal && !d->id) {
        d->id = id;
        put_owner(d, d->journal);
        r = journal_commit(d->journal, e);
    }
    if (!d->journal || r < 0) {
        raft_disk_close(d);
        return NULL;
    }
    if (cut)
        log_warn("the journal's last %" PRIu64 " bytes were torn and are cut off: "
                 "nothing that was acknowledged is lost, if the disk keeps what it "
                 "was told to sync",
                 cut);
    return d;
}

void raft_disk_close(struct raft_disk *d)
{
    if (!d)
        return;
    journal_close(d->journal);
    disk_forget_from(d, 0);
    disk_drop_snapshot(d);
    free(d->list);
    free(d->part);
    free(d);
}

uint64_t raft_disk_id(const struct raft_disk *d)
{
    return d->id;
}

const char *raft_disk_error(const struct raft_disk *d)
{
    return d->failed ? d->error.text : NULL;
}

void raft_disk_load(struct raft_disk *d, raft_term *term, raft_id *vote,
                    struct raft_snapshot **snapshot, raft_index *start,
                    struct raft_entry *entries[], size_t *n)
{
    *term = d->term;
    *vote = d->vote;
    *snapshot = d->snapshot;
    d->snapshot = NULL;
    *start = d->start;
    *n = d->count;
    *entries = d->count ? raft_calloc(d->count, sizeof(**entries)) : NULL;
    for (size_t i = 0; *entries && i < d->count; i++) {
        struct raft_entry *to = &(*entries)[i];

        *to = d->list[i];
        to->batch = to->buf.base = raft_malloc(to->buf.len + 1);
        if (!to->batch)
            abort();
        memcpy(to->batch, d->list[i].buf.base, to->buf.len);
    }
    if (d->count && !*entries)
        abort();
}
#endif
