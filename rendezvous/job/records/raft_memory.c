/* SPDX-License-Identifier: MIT */
#ifdef CRUN_RAFT
#include "rendezvous/job/records/raft_memory.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/records/raft_disk.h"

/* An answer that waits: one of the requests. */
struct raft_memory_answer {
    STAILQ_ENTRY(raft_memory_answer) entry;
    struct raft_io_send *send;
    struct raft_io_append *append;
    struct raft_io_snapshot_put *put;
    struct raft_io_snapshot_get *get;
    raft_io_send_cb sent;
    raft_io_append_cb appended;
    raft_io_snapshot_put_cb was_put;
    raft_io_snapshot_get_cb got;
    int status;
};

static struct raft_memory *raft_memory_of(struct raft_io *io)
{
    return io->impl;
}

static int raft_memory_queue(struct raft_io *io,
                             const struct raft_memory_answer *answer)
{
    struct raft_memory *m = raft_memory_of(io);
    struct raft_memory_answer *a = xmemdup(answer, sizeof(*answer));

    STAILQ_INSERT_TAIL(&m->answers, a, entry);
    return 0;
}

/* -- snapshots -------------------------------------------------------------------- */

/* A copy in one piece. */
static struct raft_snapshot *snapshot_copy(const struct raft_snapshot *from)
{
    struct raft_snapshot *to = raft_calloc(1, sizeof(*to));
    struct raft_buffer *all = raft_calloc(1, sizeof(*all));

    if (!to || !all)
        abort();
    for (unsigned i = 0; i < from->n_bufs; i++)
        all->len += from->bufs[i].len;
    all->base = raft_malloc(all->len + 1);
    if (!all->base)
        abort();
    for (size_t i = 0, used = 0; i < from->n_bufs; used += from->bufs[i++].len)
        memcpy((char *)all->base + used, from->bufs[i].base, from->bufs[i].len);
    *to = (struct raft_snapshot){ .index = from->index,
                                  .term = from->term,
                                  .configuration_index = from->configuration_index,
                                  .bufs = all,
                                  .n_bufs = 1 };
    raft_configuration_init(&to->configuration);
    for (unsigned i = 0; i < from->configuration.n; i++) {
        const struct raft_server *s = &from->configuration.servers[i];

        if (raft_configuration_add(&to->configuration, s->id, s->address, s->role) != 0)
            abort();
    }
    return to;
}

static void snapshot_free(struct raft_snapshot *s)
{
    if (!s)
        return;
    raft_configuration_close(&s->configuration);
    raft_free(s->bufs[0].base);
    raft_free(s->bufs);
    raft_free(s);
}

static int on_snapshot_put(struct raft_io *io, unsigned trailing,
                           struct raft_io_snapshot_put *req,
                           const struct raft_snapshot *snapshot,
                           raft_io_snapshot_put_cb cb)
{
    struct raft_memory *m = raft_memory_of(io);

    snapshot_free(m->snapshot);
    m->snapshot = snapshot_copy(snapshot);
    return raft_memory_queue(
        io,
        &(struct raft_memory_answer){
            .put = req,
            .was_put = cb,
            .status = m->disk ? raft_disk_put_snapshot(m->disk, trailing, m->snapshot)
                              : 0 });
}

static int on_snapshot_get(struct raft_io *io, struct raft_io_snapshot_get *req,
                           raft_io_snapshot_get_cb cb)
{
    return raft_memory_queue(io, &(struct raft_memory_answer){ .get = req, .got = cb });
}

/* -- requests --------------------------------------------------------------------- */

static int on_send(struct raft_io *io, struct raft_io_send *req,
                   const struct raft_message *message, raft_io_send_cb cb)
{
    struct raft_memory *m = raft_memory_of(io);

    m->send(m->arg, message);
    return raft_memory_queue(io,
                             &(struct raft_memory_answer){ .send = req, .sent = cb });
}

static int on_append(struct raft_io *io, struct raft_io_append *req,
                     const struct raft_entry entries[], unsigned n,
                     raft_io_append_cb cb)
{
    struct raft_disk *disk = raft_memory_of(io)->disk;

    return raft_memory_queue(
        io, &(struct raft_memory_answer){
                .append = req,
                .appended = cb,
                .status = disk ? raft_disk_append(disk, entries, n) : 0 });
}

static void give_answer(struct raft_memory *m, const struct raft_memory_answer *a)
{
    if (a->sent)
        a->sent(a->send, 0);
    else if (a->appended)
        a->appended(a->append, a->status);
    else if (a->was_put)
        a->was_put(a->put, a->status);
    else if (a->got && m->snapshot)
        a->got(a->get, snapshot_copy(m->snapshot), 0);
    else
        a->got(a->get, NULL, RAFT_NOTFOUND);
}

bool raft_memory_answer(struct raft_memory *m)
{
    struct raft_memory_answer *a = STAILQ_FIRST(&m->answers);

    if (!a)
        return false;
    STAILQ_REMOVE_HEAD(&m->answers, entry);
    give_answer(m, a);
    free(a);
    return true;
}

/* -- the state -------------------------------------------------------------------- */

static int on_init(struct raft_io *io, raft_id id, const char *address)
{
    return 0;
}

static void on_close(struct raft_io *io, raft_io_close_cb cb)
{
    struct raft_memory *m = raft_memory_of(io);

    while (raft_memory_answer(m))
        ;
    cb(io);
}

/* The configuration of the founder is its first entry. */
static int on_bootstrap(struct raft_io *io, const struct raft_configuration *conf)
{
    struct raft_memory *m = raft_memory_of(io);
    struct raft_entry entry = { .term = 1, .type = RAFT_CHANGE };
    int rv = raft_configuration_encode(conf, &m->first);

    if (rv != 0 || !m->disk)
        return rv;
    entry.buf = m->first;
    rv = raft_disk_set_term(m->disk, 1);
    return rv != 0 ? rv : raft_disk_append(m->disk, &entry, 1);
}

static int on_load(struct raft_io *io, raft_term *term, raft_id *voted_for,
                   struct raft_snapshot **snapshot, raft_index *start_index,
                   struct raft_entry *entries[], size_t *n_entries)
{
    struct raft_memory *m = raft_memory_of(io);

    if (m->disk) {
        raft_disk_load(m->disk, term, voted_for, &m->snapshot, start_index, entries,
                       n_entries);
        *snapshot = m->snapshot ? snapshot_copy(m->snapshot) : NULL;
        return 0;
    }
    *term = m->first.base ? 1 : 0;
    *voted_for = 0;
    *snapshot = NULL;
    *start_index = 1;
    *entries = NULL;
    *n_entries = 0;
    if (!m->first.base)
        return 0;
    *entries = raft_calloc(1, sizeof(**entries));
    if (!*entries)
        return RAFT_NOMEM;
    (*entries)[0].term = 1;
    (*entries)[0].type = RAFT_CHANGE;
    (*entries)[0].buf = m->first;
    (*entries)[0].batch = m->first.base;
    *n_entries = 1;
    m->first.base = NULL;
    return 0;
}

static int on_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
                    raft_io_recv_cb receive)
{
    struct raft_memory *m = raft_memory_of(io);

    m->tick = tick;
    m->receive = receive;
    return 0;
}

/* Without a disk nothing of it outlives the process, and the library has it. */
static int on_set_term(struct raft_io *io, raft_term term)
{
    struct raft_disk *disk = raft_memory_of(io)->disk;

    return disk ? raft_disk_set_term(disk, term) : 0;
}

static int on_set_vote(struct raft_io *io, raft_id id)
{
    struct raft_disk *disk = raft_memory_of(io)->disk;

    return disk ? raft_disk_set_vote(disk, id) : 0;
}

static int on_truncate(struct raft_io *io, raft_index index)
{
    struct raft_disk *disk = raft_memory_of(io)->disk;

    return disk ? raft_disk_truncate(disk, index) : 0;
}

static int on_recover(struct raft_io *io, const struct raft_configuration *conf)
{
    return RAFT_INVALID;
}

static raft_time on_time(struct raft_io *io)
{
    const struct raft_memory *m = raft_memory_of(io);

    return m->now_ms + m->ahead_ms;
}

static int on_random(struct raft_io *io, int min, int max)
{
    struct raft_memory *m = raft_memory_of(io);

    m->random = m->random * 6364136223846793005u + 1442695040888963407u;
    return max > min ? min + (int)((m->random >> 33) % (unsigned)(max - min)) : min;
}

void raft_memory_skip(struct raft_memory *m, uint64_t ms)
{
    m->ahead_ms += ms;
}

void raft_memory_init(struct raft_memory *m, struct raft_disk *disk, uint64_t seed,
                      void (*send)(void *arg, const struct raft_message *m), void *arg)
{
    *m = (struct raft_memory){ .io = { .version = 1,
                                       .impl = m,
                                       .init = on_init,
                                       .close = on_close,
                                       .load = on_load,
                                       .start = on_start,
                                       .bootstrap = on_bootstrap,
                                       .recover = on_recover,
                                       .set_term = on_set_term,
                                       .set_vote = on_set_vote,
                                       .send = on_send,
                                       .append = on_append,
                                       .truncate = on_truncate,
                                       .snapshot_put = on_snapshot_put,
                                       .snapshot_get = on_snapshot_get,
                                       .time = on_time,
                                       .random = on_random },
                               .disk = disk,
                               .random = seed,
                               .send = send,
                               .arg = arg };
    STAILQ_INIT(&m->answers);
}

void raft_memory_fini(struct raft_memory *m)
{
    snapshot_free(m->snapshot);
    raft_free(m->first.base);
}

#endif
