/* SPDX-License-Identifier: MIT */
#ifdef CRUN_RAFT
#include "rendezvous/job/records/replica.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/wire.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/records/raft_disk.h"
#include "rendezvous/job/records/raft_message.h"
#include "rendezvous/job/records/replica_internal.h"

/*
 * Each call of the library may leave requests behind: replica_settle answers them, and
 * looks at what has changed, before anything else happens. So a new leader has added
 * its first entry before it counts a single answer, and never takes entries of an
 * earlier term for lasting because they are on a majority (Raft, figure 8).
 *
 * The versions of the library differ in when they call back. So no request of this file
 * has a callback: how far a replica is, what has been applied tells.
 */
#define STAMP_SIZE 24 /* of a message: its times, and the pair's number */
#define TRAILING 64   /* proposals that are kept for a replica that lags a little */

/* The library has it until its entry is applied, or it leads no more. */
struct proposal {
    STAILQ_ENTRY(proposal) entry;
    raft_index index;
    struct raft_apply apply;
};

bool replica_is_built(void)
{
    return true;
}

uint64_t replica_id(const struct replica *r)
{
    return r->raft.id;
}

uint64_t replica_last(const struct replica *r)
{
    return raft_last_index((struct raft *)&r->raft);
}

const char *replica_error(const struct replica *r)
{
    return r->disk ? raft_disk_error(r->disk) : NULL;
}

/* -- the library's calls ---------------------------------------------------------- */

static int on_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
    struct replica *r = fsm->data;

    if (r->room - r->size < buf->len) {
        r->room = 2 * (r->size + buf->len);
        r->records = xrealloc(r->records, r->room);
    }
    if (buf->len > 0)
        memcpy(r->records + r->size, buf->base, buf->len);
    r->size += buf->len;
    *result = NULL;
    return 0;
}

void replica_keep_compact(struct replica *r, const void *records, size_t size)
{
    uint8_t *copy = xmemdup(records, size); /* it may be a part of them */

    free(r->records);
    r->records = copy;
    r->size = r->room = size;
}

static int on_snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n)
{
    struct replica *r = fsm->data;

    if (r->is_started)
        r->config.compact(r->config.arg, r->records, r->size);
    *bufs = raft_calloc(1, sizeof(**bufs));
    if (!*bufs || !((*bufs)->base = raft_malloc(r->size + 1)))
        abort();
    if (r->size > 0)
        memcpy((*bufs)->base, r->records, r->size);
    (*bufs)->len = r->size;
    *n = 1;
    return 0;
}

static int on_restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
    struct replica *r = fsm->data;
    void *result;

    r->size = 0;
    on_apply(fsm, buf, &result);
    raft_free(buf->base);
    return 0;
}

/* A new one has an empty place, else that of the one that was heard of least recently.
 */
struct contact *replica_contact(struct replica *r, uint64_t id, bool make)
{
    struct contact *c = &r->contact[0];

    for (unsigned i = 0; i < REPLICAS_MAX; i++)
        if (r->contact[i].id == id)
            return &r->contact[i];
        else if (c->id && (!r->contact[i].id || r->contact[i].proven_ms < c->proven_ms))
            c = &r->contact[i];
    if (!make)
        return NULL;
    *c = (struct contact){ .id = id };
    return c;
}

/*
 * Up to version 0.19 the library answers entries with its own last one, which another
 * leader may have sent: this leader would take that for its own. So the answer is at
 * most the last entry that is known to match. Version 0.22 may send a snapshot with the
 * term of an older one.
 */
static void on_send(void *arg, const struct raft_message *message)
{
    struct replica *r = arg;
    struct raft_message copy = *message, *m = &copy;
    const struct contact *c = replica_contact(r, m->server_id, true);
    struct wire_out stamped = { .used = 0 };
    size_t size;
    uint8_t *data;

    if (replica_error(r)) /* it promises nothing that it may forget */
        return;
    if ((int)m->type == RAFT_MESSAGE_APPENDED &&
        m->append_entries_result.rejected == 0 &&
        m->append_entries_result.last_log_index > r->matched)
        m->append_entries_result.last_log_index = r->matched;
    if ((int)m->type == RAFT_MESSAGE_SNAPSHOT && r->memory.snapshot)
        m->install_snapshot.last_term = r->memory.snapshot->term;
    data = raft_message_encode(m, r->raft.id, r->raft.address, &size);
    stamped.start = xmalloc(stamped.size = size + STAMP_SIZE);
    wire_put_u64(&stamped, r->memory.now_ms);
    wire_put_u64(&stamped,
                 (int)m->type == RAFT_MESSAGE_APPENDED ? r->asked_ms : c->its_ms);
    wire_put_u64(&stamped,
                 replica_is_leader(r) && r->pair.with == c->id ? r->pair.id : 0);
    wire_put_bytes(&stamped, data, size);
    r->config.send(r->config.arg, m->server_id, m->server_address, stamped.start,
                   stamped.used);
    free(stamped.start);
    free(data);
}

/* -- after each call -------------------------------------------------------------- */

/* All entries before its own first one last when that does. */
static void replica_begin_to_lead(struct replica *r)
{
    for (unsigned i = 0; i < REPLICAS_MAX; i++)
        r->contact[i] = (struct contact){ .id = r->contact[i].id };
    r->pair = (struct replica_pair){ .id = 0 };
    r->first_own = r->confirmed = 0;
    r->since_ms = r->memory.now_ms;
    if (raft_barrier(&r->raft, &r->barrier, NULL) == 0)
        r->first_own = raft_last_index(&r->raft);
}

static void replica_end_proposals(struct replica *r, raft_index last)
{
    struct proposal *p;

    while ((p = STAILQ_FIRST(&r->proposals)) && p->index <= last) {
        STAILQ_REMOVE_HEAD(&r->proposals, entry);
        free(p);
    }
}

const struct raft_server *replica_server(const struct replica *r, uint64_t id)
{
    const struct raft_configuration *c = &r->raft.configuration;

    for (unsigned i = 0; i < c->n; i++)
        if (c->servers[i].id == id)
            return &c->servers[i];
    return NULL;
}

/* An entry after a change of the list that lasts: the others learn at once that it
 * does, one that has lost its vote too. */
static void replica_confirm_list(struct replica *r)
{
    if (replica_is_changing(r))
        r->confirmed = 0;
    else if (r->leads && r->confirmed == 0) {
        r->confirmed = raft_last_index(&r->raft) + 1;
        replica_propose(r, "", 0, r->memory.now_ms);
    }
}

void replica_settle(struct replica *r)
{
    do {
        if (replica_is_leader(r) && !r->led) {
            r->led = true;
            replica_begin_to_lead(r);
        } else if (!replica_is_leader(r)) {
            r->led = false;
            replica_end_proposals(r, UINT64_MAX);
        }
    } while (raft_memory_answer(&r->memory));
    replica_end_proposals(r, r->raft.last_applied);
    r->leads = r->led && r->first_own && r->raft.last_applied >= r->first_own;
    replica_confirm_list(r);
    replica_note_lasting_list(r);
    replica_look_at_pair(r);
    if (r->disk) /* what follows the last message may be of another leader */
        raft_disk_note_lasting(r->disk, r->led || r->raft.commit_index < r->matched
                                            ? r->raft.commit_index
                                            : r->matched);
    if (replica_leader(r) && replica_leader(r) != r->gone)
        r->gone = 0;
    r->config.changed(r->config.arg);
}

void replica_set_now(struct replica *r, uint64_t now_ms)
{
    if (now_ms > r->memory.now_ms)
        r->memory.now_ms = now_ms;
}

/* -- messages --------------------------------------------------------------------- */

/* False: it was overtaken by a later one, which the library does not always notice. */
static bool take_answer(struct replica *r, const struct raft_message *m,
                        uint64_t its_ms, uint64_t asked_ms)
{
    const struct raft_append_entries_result *a = &m->append_entries_result;
    struct contact *c = replica_contact(r, m->server_id, false);

    if (!c || a->term != r->raft.current_term || !replica_is_leader(r))
        return true;
    if (c->has_lost)
        return false;
    c->heard_ms = r->memory.now_ms;
    c->its_ms = its_ms;
    if (asked_ms > c->proven_ms && asked_ms <= r->memory.now_ms)
        c->proven_ms = asked_ms;
    if (a->rejected > 0)
        return a->rejected > c->matches && a->last_log_index >= c->matches;
    if (a->last_log_index > c->matches)
        c->matches = a->last_log_index;
    return true;
}

/* Version 0.22 would take back what lasts, if this message was overtaken. False: this
 * replica's disk must be looked at. */
static bool take_entries(struct replica *r, struct raft_append_entries *a)
{
    if (r->disk && a->term >= r->raft.current_term && !raft_disk_admits(r->disk, a)) {
        raft_disk_drop(a);
        replica_settle(r);
        return false;
    }
    replica_take_back_list(r, a);
    r->matched = a->prev_log_index + a->n_entries;
    if (r->matched < r->raft.commit_index && a->leader_commit > r->raft.commit_index)
        a->leader_commit = r->raft.commit_index;
    return true;
}

/* False: it was overtaken, and the library would forget what came since. One that is
 * newer than all entries here has none to compare with those that lasted. */
static bool take_snapshot(struct replica *r, struct raft_install_snapshot *s)
{
    r->matched = s->last_index;
    if (s->last_index > r->raft.last_applied)
        return true;
    raft_configuration_close(&s->conf);
    raft_free(s->data.base);
    return false;
}

void replica_receive(struct replica *r, const void *data, size_t size, uint64_t now_ms)
{
    char address[REPLICA_ADDRESS_SIZE];
    struct wire_in in = { .next = data, .left = size }, head;
    uint64_t its_ms = wire_get_u64(&in), own_ms = wire_get_u64(&in);
    uint64_t pair = wire_get_u64(&in), from;
    struct raft_message m;
    bool good = true;

    head = in;
    from = wire_get_u64(&head);
    if (head.bad || (r->forsaken && from == r->forsaken) ||
        raft_message_decode(in.next, in.left, &m, address) < 0)
        return;
    replica_set_now(r, now_ms);
    if ((int)m.type == RAFT_MESSAGE_APPENDED)
        good = take_answer(r, &m, its_ms, own_ms);
    else
        r->asked_ms = its_ms;
    if ((int)m.type == RAFT_MESSAGE_APPEND && !take_entries(r, &m.append_entries))
        return;
    else if ((int)m.type == RAFT_MESSAGE_SNAPSHOT)
        good = take_snapshot(r, &m.install_snapshot);
    if (good)
        r->memory.receive(&r->memory.io, &m);
    if ((int)m.type == RAFT_MESSAGE_APPEND || (int)m.type == RAFT_MESSAGE_SNAPSHOT)
        replica_take_pair(r, from, pair, own_ms);
    replica_settle(r);
}

/* -- leading ---------------------------------------------------------------------- */

bool replica_leads(const struct replica *r)
{
    return replica_is_leader(r) && r->leads && !replica_error(r);
}

uint64_t replica_leader(const struct replica *r)
{
    if (replica_is_leader(r))
        return r->raft.id;
    return r->raft.state == RAFT_FOLLOWER ? r->raft.follower_state.current_leader.id
                                          : 0;
}

uint64_t replica_term(const struct replica *r)
{
    return r->raft.current_term;
}

void replica_propose(struct replica *r, const void *data, size_t size, uint64_t now_ms)
{
    struct proposal *p = xcalloc(1, sizeof(*p));
    struct raft_buffer buf = { .base = raft_malloc(size), .len = size };

    if (!buf.base)
        abort();
    memcpy(buf.base, data, size);
    replica_set_now(r, now_ms);
    if (raft_apply(&r->raft, &p->apply, &buf, 1, NULL) == 0) {
        p->index = raft_last_index(&r->raft);
        STAILQ_INSERT_TAIL(&r->proposals, p, entry);
    } else { /* it leads no more, or cannot: what follows shall not last either */
        raft_free(buf.base);
        free(p);
        r->first_own = 0;
    }
    replica_settle(r);
}

const uint8_t *replica_records(const struct replica *r, size_t *size)
{
    *size = r->size;
    return r->records;
}

/* -- life ------------------------------------------------------------------------- */

static int replica_found(struct replica *r)
{
    struct raft_configuration alone;
    int rv;

    raft_configuration_init(&alone);
    rv = raft_configuration_add(&alone, r->raft.id, r->raft.address, RAFT_VOTER);
    if (rv == 0)
        rv = raft_bootstrap(&r->raft, &alone);
    raft_configuration_close(&alone);
    return rv;
}

struct replica *replica_create(const struct replica_config *config, uint64_t now_ms,
                               struct err *e)
{
    struct replica *r = xcalloc(1, sizeof(*r));
    uint64_t id = config->id;
    int rv;

    if (config->disk) {
        r->disk = raft_disk_open(config->disk, config->owner, id, e);
        id = r->disk ? raft_disk_id(r->disk) : 0;
    }
    if (!id) {
        free(r);
        return NULL;
    }
    r->config = *config;
    r->fsm = (struct raft_fsm){ .version = 1,
                                .data = r,
                                .apply = on_apply,
                                .snapshot = on_snapshot,
                                .restore = on_restore };
    STAILQ_INIT(&r->proposals);
    raft_memory_init(&r->memory, r->disk, config->seed, on_send, r);
    r->memory.now_ms = now_ms;
    rv = raft_init(&r->raft, &r->memory.io, &r->fsm, id, config->address);
    if (rv != 0) {
        raft_disk_close(r->disk);
        free(r);
        err_set(e, "libraft: %s", raft_strerror(rv));
        return NULL;
    }
    raft_set_election_timeout(&r->raft, config->election_ms);
    raft_set_heartbeat_timeout(&r->raft, config->election_ms / TICKS_PER_ELECTION);
    raft_set_snapshot_threshold(&r->raft, config->compact_after);
    raft_set_snapshot_trailing(&r->raft, TRAILING);
    /* one that does not follow becomes no voter: it stops no other change */
    raft_set_max_catch_up_round_duration(&r->raft, config->election_ms);
    raft_set_pre_vote(&r->raft, true);
#ifdef RAFT_VERSION_NUMBER
    raft_set_capacity_threshold(&r->raft, 0); /* there is no disk that could be full */
#endif
    if (config->founds)
        rv = replica_found(r);
    if (rv == 0)
        rv = raft_start(&r->raft);
    if (rv != 0) {
        err_set(e, "libraft: %s", raft_strerror(rv));
        replica_destroy(r);
        return NULL;
    }
    r->is_started = true;
    r->tick_ms = now_ms;
    return r;
}

static void on_closed(struct raft *raft)
{
}

void replica_destroy(struct replica *r)
{
    if (!r)
        return;
    raft_close(&r->raft, on_closed);
    replica_end_proposals(r, UINT64_MAX);
    raft_memory_fini(&r->memory);
    raft_disk_close(r->disk);
    raft_configuration_close(&r->list);
    free(r->records);
    free(r);
}

#endif
