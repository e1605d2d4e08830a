/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/registry/job_records.h"

#include <assert.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/wire.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/journal/journal.h"
#include "rendezvous/job/journal/limits.h"
#include "rendezvous/wire/protocol/proto.h"
#include "rendezvous/wire/protocol/proto_fields.h"

/* Numbers on disk: never reused. */
enum record_type {
    RECORD_JOB = 1,
    RECORD_STATE,
    RECORD_FAILURE,
    RECORD_NODE,
    RECORD_PLACE_IN_CLEAR, /* of older versions: with the incarnation itself */
    RECORD_DROP,
    RECORD_END,
    RECORD_SLOT,
    RECORD_PAST,
    RECORD_OWNER,
    RECORD_PLACE,
    RECORD_RENDEZVOUS,
    RECORD_TYPE_COUNT
};

/*
 * A record is made of the fields of a table, in its order. JOB and FAILURE use the
 * tables of JOIN and FAILED, so that a new setting of a job is in the journal too.
 */
#define FIELD(kind_, type, member)                                                     \
    .name = #member, .kind = kind_, .offset = offsetof(struct type, member),           \
    .size = sizeof(((struct type *)0)->member)
#define PLAIN(kind, type, member)                                                      \
    {                                                                                  \
        FIELD(PROTO_##kind, type, member)                                              \
    }
#define ENUM(type, member, count)                                                      \
    {                                                                                  \
        FIELD(PROTO_ENUM, type, member), .max = (count)-1                              \
    }
#define TABLE(fields)                                                                  \
    {                                                                                  \
        fields, sizeof(fields) / sizeof((fields)[0])                                   \
    }

/* The sums of all phases */
#define SUMS(member)                                                                   \
    PLAIN(U64, job, member.ms[JOB_PHASE_PRODUCTIVE]),                                  \
        PLAIN(U64, job, member.ms[JOB_PHASE_DETECT]),                                  \
        PLAIN(U64, job, member.ms[JOB_PHASE_STOP]),                                    \
        PLAIN(U64, job, member.ms[JOB_PHASE_FORM]),                                    \
        PLAIN(U64, job, member.ms[JOB_PHASE_START]),                                   \
        PLAIN(U64, job, member.ms[JOB_PHASE_FIRST_STEP]),                              \
        PLAIN(U64, job, member.ms[JOB_PHASE_REWORK]),                                  \
        PLAIN(U64, job, member.steps_again)

static const struct proto_field state_fields[] = {
    ENUM(job, membership.state, JOB_STATE_COUNT),
    ENUM(job, membership.stop.cause, JOB_CAUSE_COUNT),
    ENUM(job, membership.stop.reason, JOB_REASON_COUNT),
    PLAIN(U64, job, membership.epoch),
    PLAIN(U32, job, membership.restarts),
    PLAIN(BOOL, job, membership.stop.ending),
    PLAIN(BOOL, job, membership.stop.restart_spent),
    PLAIN(BOOL, job, membership.stop.too_young),
    PLAIN(BOOL, job, membership.short_lived),
    PLAIN(U32, job, membership.crash_loop),
    PLAIN(BOOL, job, membership.store_ready),
    PLAIN(I32, job, membership.stop.exit_code),
    PLAIN(U32, job, membership.stop.grace_ms),
    PLAIN(U32, job, membership.group_size),
    PLAIN(U32, job, membership.world_size),
    PLAIN(U32, job, membership.leader),
    PLAIN(U32, job, membership.stop.root.node),
    PLAIN(U64, job, membership.stop.root.identity),
    PLAIN(U64, job, membership.stop.root.at),
    PLAIN(TEXT, job, store_address),
    PLAIN(U32, job, store_port),
    PLAIN(TEXT, job, text),
#define STATE_FIELDS_ALWAYS 22 /* later ones keep 0 if the record is shorter */
    PLAIN(U64, job, membership.stop.root.erred_at),
    PLAIN(U64, job, membership.stop.blame_until),
    ENUM(job, membership.stop.root.origin, FAILURE_ORIGIN_COUNT),
    PLAIN(BOOL, job, membership.stop.root.final),
    PLAIN(BOOL, job, membership.stop.young),
    PLAIN(I32, job, membership.stop.root.exit_code),
    PLAIN(U32, job, membership.stop.failures),
    PLAIN(BOOL, job, membership.last_checkpoint.asked),
    PLAIN(I32, job, membership.last_checkpoint.exit_code),
    PLAIN(U32, job, membership.last_checkpoint.within_ms),
    PLAIN(BOOL, job, membership.stop.no_progress),
    PLAIN(U64, job, membership.progress.step),
    PLAIN(BOOL, job, membership.progress.is_new),
    PLAIN(U32, job, membership.progress.restarts),
    PLAIN(U64, job, stepped_ms),
    PLAIN(U64, job, stepped_wall_ms),
    PLAIN(BOOL, job, membership.time.over),
    ENUM(job, membership.time.phase, JOB_PHASE_COUNT),
    PLAIN(U64, job, membership.time.since),
    PLAIN(BOOL, job, membership.time.reports_steps),
    PLAIN(U64, job, membership.time.top_step),
    PLAIN(U64, job, membership.time.past_step),
    ENUM(job, membership.time.before, JOB_PHASE_COUNT),
    PLAIN(U64, job, membership.time.before_ms),
    SUMS(membership.time.all),
    SUMS(membership.time.last),
    PLAIN(U64, job, counts.epoch),
    PLAIN(U32, job, counts.restarts[JOB_RESTART_FAILURE]),
    PLAIN(U32, job, counts.restarts[JOB_RESTART_LOST]),
    PLAIN(U32, job, counts.restarts[JOB_RESTART_HANG]),
    PLAIN(U32, job, counts.restarts[JOB_RESTART_SCALE_UP]),
    PLAIN(U32, job, counts.restarts[JOB_RESTART_DRAIN]),
    PLAIN(U32, job, counts.hangs),
    PLAIN(U64, job, membership.time.all.unplaced),
    PLAIN(U64, job, membership.time.last.unplaced),
};
static const struct proto_table state_table = TABLE(state_fields);

static const struct proto_field owner_fields[] = {
    PLAIN(U32, job, owner.uid),
    PLAIN(TEXT, job, owner.key_file),
};
static const struct proto_table owner_table = TABLE(owner_fields);

static const struct proto_field node_fields[] = {
    PLAIN(TEXT, job_node, host), PLAIN(TEXT, job_node, address),
    PLAIN(TEXT, job_node, seen), PLAIN(TEXT, job_node, containment),
    PLAIN(U32, job_node, pid),
};
static const struct proto_table node_table = TABLE(node_fields);

static const struct proto_field place_fields[] = {
    PLAIN(ID, membership_node, incarnation), /* its digest */
    PLAIN(U64, membership_node, identity),
    ENUM(membership_node, state, MEMBERSHIP_NODE_STATE_COUNT),
    PLAIN(U32, membership_node, workers),
    PLAIN(U32, membership_node, wanted_slot),
    PLAIN(U32, membership_node, slot),
    PLAIN(U32, membership_node, group_rank),
    PLAIN(U32, membership_node, first_rank),
    PLAIN(U64, membership_node, joined),
    PLAIN(BOOL, membership_node, host),
    PLAIN(BOOL, membership_node, leaving),
};
static const struct proto_table place_table = TABLE(place_fields);

/* A journal of any version holds so many settings, and so many fields of a failure.
 * Later ones keep their default if the record is shorter; those of a failure follow the
 * text of other failures. */
#define CONFIG_FIELDS_ALWAYS 18
#define FAILURE_FIELDS_ALWAYS 15

/* -- writing ---------------------------------------------------------------------- */

/* The one being written. */
static struct {
    struct journal *journal;
    struct wire_out out;
    uint8_t data[JOURNAL_RECORD_MAX];
} rec;

static void record_put_field(struct wire_out *w, const struct proto_field *f,
                             const char *at)
{
    uint32_t u32 = 0;
    uint64_t u64;

    switch (f->kind) {
    case PROTO_U32:
    case PROTO_I32:
        memcpy(&u32, at, sizeof(u32));
        wire_put_u32(w, u32);
        break;
    case PROTO_U64:
        memcpy(&u64, at, sizeof(u64));
        wire_put_u64(w, u64);
        break;
    case PROTO_ID:
        wire_put_bytes(w, at, f->size);
        break;
    case PROTO_BOOL:
        wire_put_u8(w, *at != 0);
        break;
    case PROTO_ENUM:
        memcpy(&u32, at, sizeof(u32));
        wire_put_u8(w, (uint8_t)u32);
        break;
    case PROTO_WORD:
        memcpy(&u32, at, sizeof(u32));
        wire_put_text(w, f->names[u32]);
        break;
    case PROTO_TEXT:
    case PROTO_TAIL:
    case PROTO_NAME:
        wire_put_text(w, at);
        break;
    case PROTO_OBJECT:
        assert(false); /* no record contains one */
    }
}

static void record_put_fields(const struct proto_table *table, const void *base)
{
    for (unsigned i = 0; i < table->count; i++)
        record_put_field(&rec.out, &table->field[i],
                         (const char *)base + table->field[i].offset);
}

/* Every record begins with the instance of its job. False: nothing is kept. */
static bool record_begin(struct journal *j, const struct job *job)
{
    if (!j)
        return false;
    rec.journal = j;
    rec.out = (struct wire_out){ .start = rec.data, .size = sizeof(rec.data) };
    wire_put_bytes(&rec.out, job->membership.instance.byte,
                   sizeof(job->membership.instance.byte));
    return true;
}

static void record_append(enum record_type type)
{
    assert(!rec.out.bad);
    journal_append(rec.journal, type, rec.data, rec.out.used);
}

void job_records_put_job(struct journal *j, const struct job *job)
{
    if (!record_begin(j, job))
        return;
    wire_put_text(&rec.out, job->run_id);
    wire_put_u64(&rec.out, job->created_wall_ms);
    record_put_fields(&proto_job_config, &job->membership.config);
    record_append(RECORD_JOB);
    if (!*job->owner.key_file && job->owner.uid == PEER_UID_UNKNOWN)
        return; /* as without the record */
    record_begin(j, job);
    record_put_fields(&owner_table, job);
    record_append(RECORD_OWNER);
}

void job_records_put_state(struct journal *j, const struct job *job)
{
    if (!record_begin(j, job))
        return;
    record_put_fields(&state_table, job);
    wire_put_u64(&rec.out, membership_state_age(&job->membership, job->stepped_ms));
    record_append(RECORD_STATE);
}

void job_records_put_failure(struct journal *j, const struct job *job)
{
    struct proto_table first = { proto_failure.field, FAILURE_FIELDS_ALWAYS };
    struct proto_table later = { proto_failure.field + FAILURE_FIELDS_ALWAYS,
                                 proto_failure.count - FAILURE_FIELDS_ALWAYS };

    if (!record_begin(j, job))
        return;
    record_put_fields(&first, &job->failure);
    wire_put_text(&rec.out, job->afterwards);
    record_put_fields(&later, &job->failure);
    record_append(RECORD_FAILURE);
}

/* The default role is not written. */
void job_records_put_node(struct journal *j, const struct job *job, uint32_t index)
{
    const struct job_node *n = job->node[index];

    if (!record_begin(j, job))
        return;
    wire_put_u32(&rec.out, index);
    record_put_fields(&node_table, n);
    if (*n->role)
        wire_put_text(&rec.out, n->role);
    record_append(RECORD_NODE);
}

void job_records_put_place(struct journal *j, const struct job *job, uint32_t index)
{
    if (!record_begin(j, job))
        return;
    wire_put_u32(&rec.out, index);
    record_put_fields(&place_table, &job->membership.node[index]);
    record_append(RECORD_PLACE);
}

void job_records_put_drop(struct journal *j, const struct job *job, uint32_t index)
{
    if (!record_begin(j, job))
        return;
    wire_put_u32(&rec.out, index);
    record_append(RECORD_DROP);
}

/* Times are written as ages, because the clock may differ after a restart. */
void job_records_put_past(struct journal *j, const struct job *job, uint32_t index)
{
    const struct membership *m = &job->membership;
    const struct membership_past *past = &m->past[index];
    uint64_t now = m->clock.now - m->clock.stalled;

    if (!record_begin(j, job))
        return;
    wire_put_u64(&rec.out, past->identity);
    wire_put_u8(&rec.out, past->quarantined);
    wire_put_u32(&rec.out, past->count);
    for (uint32_t i = 0; i < past->count; i++)
        wire_put_u64(&rec.out, now - past->at[i]);
    record_append(RECORD_PAST);
}

void job_records_put_end(struct journal *j, const struct job *job)
{
    if (record_begin(j, job))
        record_append(RECORD_END);
}

void job_records_put_rendezvous(struct journal *j, const struct id128 *id)
{
    journal_append(j, RECORD_RENDEZVOUS, id->byte, sizeof(id->byte));
}

void job_records_put_all(struct journal *j, const struct job *job)
{
    const struct membership *m = &job->membership;

    job_records_put_job(j, job);
    job_records_put_state(j, job);
    if (job->failure.kind != FAILURE_NONE)
        job_records_put_failure(j, job);
    MEMBERSHIP_EACH(i, m) {
        job_records_put_node(j, job, i);
        job_records_put_place(j, job, i);
    }
    /* the PLACE record of a member contains it until the member is gone */
    for (uint32_t slot = 0; slot < m->config.max_nodes; slot++) {
        if (m->slot_identity[slot] == 0)
            continue;
        record_begin(j, job);
        wire_put_u32(&rec.out, slot);
        wire_put_u64(&rec.out, m->slot_identity[slot]);
        record_append(RECORD_SLOT);
    }
    for (uint32_t i = 0; i < m->pasts; i++)
        job_records_put_past(j, job, i);
}

/* -- reading ---------------------------------------------------------------------- */

/* While reading, nodes are in membership.node[] at their index; FREE: none is there. */
struct job_records_reader {
    struct job *jobs;
    uint64_t now_ms;
    job_records_digest_fn *digest;
    void *arg;
    struct id128 rendezvous;
    bool in_clear;
};

struct job_records_reader *
job_records_reader_create(uint64_t now_ms, job_records_digest_fn *digest, void *arg)
{
    struct job_records_reader *reader = xcalloc(1, sizeof(*reader));

    reader->now_ms = now_ms;
    reader->digest = digest;
    reader->arg = arg;
    return reader;
}

static void record_get_field(struct wire_in *in, const struct proto_field *f, char *at)
{
    char word[32];
    uint32_t u32;
    uint64_t u64;

    switch (f->kind) {
    case PROTO_U32:
    case PROTO_I32:
        u32 = wire_get_u32(in);
        memcpy(at, &u32, sizeof(u32));
        break;
    case PROTO_U64:
        u64 = wire_get_u64(in);
        memcpy(at, &u64, sizeof(u64));
        break;
    case PROTO_ID:
        wire_get_bytes(in, at, f->size);
        break;
    case PROTO_BOOL:
        *at = wire_get_u8(in) != 0;
        break;
    case PROTO_ENUM:
        u32 = wire_get_u8(in);
        if (u32 > f->max)
            in->bad = true;
        else
            memcpy(at, &u32, sizeof(u32));
        break;
    case PROTO_WORD:
        wire_get_text(in, word, sizeof(word));
        u32 = proto_word(f->names, (unsigned)f->max + 1, word);
        memcpy(at, &u32, sizeof(u32));
        break;
    case PROTO_TEXT:
    case PROTO_TAIL:
    case PROTO_NAME:
        wire_get_text(in, at, f->size);
        break;
    case PROTO_OBJECT:
        assert(false);
    }
}

/* The fields from `first` on. The record has those before `always`, and may end after
 * any later one. */
static void record_get_fields(struct wire_in *in, const struct proto_table *table,
                              unsigned first, unsigned always, void *base)
{
    for (unsigned i = first; i < table->count && (i < always || in->left > 0); i++)
        record_get_field(in, &table->field[i], (char *)base + table->field[i].offset);
}

static struct job **find_job(struct job_records_reader *reader,
                             const struct id128 *instance)
{
    struct job **at = &reader->jobs;

    while (*at && !id128_equal(&(*at)->membership.instance, instance))
        at = &(*at)->next;
    return at;
}

static int read_job(struct job_records_reader *reader, struct wire_in *in,
                    const struct id128 *instance, struct err *e)
{
    char run_id[RUN_ID_MAX + 1], why[ERROR_TEXT_MAX_BYTES + 1];
    struct job **at = find_job(reader, instance);
    struct job_config config = { 0 };
    uint64_t created_wall_ms;

    wire_get_text(in, run_id, sizeof(run_id));
    created_wall_ms = wire_get_u64(in);
    record_get_fields(in, &proto_job_config, 0, CONFIG_FIELDS_ALWAYS, &config);
    if (in->bad || *at)
        return err_set(e, "a job's record makes no sense");
    if (!job_config_is_valid(&config, why, sizeof(why)))
        return err_set(e, "a job's record: %s", why);
    *at = job_create(run_id, &config, instance, reader->now_ms);
    (*at)->created_wall_ms = created_wall_ms;
    return 0;
}

/* A record about a known job. */
struct record_read {
    struct wire_in in;
    struct job_records_reader *reader;
    struct job *job;
    uint32_t index; /* of the node that it is about */
};

static void read_state(struct record_read *r)
{
    record_get_fields(&r->in, &state_table, 0, STATE_FIELDS_ALWAYS, r->job);
    r->job->membership.waited_ms = r->in.left > 0 ? wire_get_u64(&r->in) : 0;
    if (r->job->membership.leader != MEMBERSHIP_NONE &&
        r->job->membership.leader >= r->job->membership.capacity)
        r->in.bad = true;
}

static void read_owner(struct record_read *r)
{
    record_get_fields(&r->in, &owner_table, 0, UINT_MAX, r->job);
}

static void read_failure(struct record_read *r)
{
    struct proto_table first = { proto_failure.field, FAILURE_FIELDS_ALWAYS };

    record_get_fields(&r->in, &first, 0, UINT_MAX, &r->job->failure);
    wire_get_text(&r->in, r->job->afterwards, sizeof(r->job->afterwards));
    record_get_fields(&r->in, &proto_failure, FAILURE_FIELDS_ALWAYS, 0,
                      &r->job->failure);
}

static void read_node(struct record_read *r)
{
    struct job_node *n = job_add_node(r->job, r->index);

    record_get_fields(&r->in, &node_table, 0, UINT_MAX, n);
    if (r->in.left > 0)
        wire_get_text(&r->in, n->role, sizeof(n->role));
    job_name_node(r->job, r->index, "");
}

static void read_place(struct record_read *r)
{
    struct membership_node *n = &r->job->membership.node[r->index];

    record_get_fields(&r->in, &place_table, 0, UINT_MAX, n);
    if (n->slot != MEMBERSHIP_NONE && n->slot >= r->job->membership.config.max_nodes)
        r->in.bad = true;
    else if (n->state == MEMBERSHIP_NODE_ACTIVE && n->slot != MEMBERSHIP_NONE)
        r->job->membership.slot_identity[n->slot] = n->identity;
}

static void read_place_in_clear(struct record_read *r)
{
    struct id128 *incarnation = &r->job->membership.node[r->index].incarnation;

    read_place(r);
    *incarnation = r->reader->digest(r->reader->arg, incarnation);
    r->reader->in_clear = true;
}

static void read_drop(struct record_read *r)
{
    r->job->membership.node[r->index].state = MEMBERSHIP_NODE_FREE;
    job_drop_node(r->job, r->index);
}

static void read_slot(struct record_read *r)
{
    uint32_t slot = wire_get_u32(&r->in);
    uint64_t identity = wire_get_u64(&r->in);

    if (slot >= r->job->membership.config.max_nodes)
        r->in.bad = true;
    else if (!r->in.bad)
        r->job->membership.slot_identity[slot] = identity;
}

static void read_past(struct record_read *r)
{
    struct membership_past past = { .identity = wire_get_u64(&r->in) };

    past.quarantined = wire_get_u8(&r->in) != 0;
    past.count = wire_get_u32(&r->in);
    if (past.count > QUARANTINE_MAX)
        r->in.bad = true;
    for (uint32_t i = 0; i < past.count && !r->in.bad; i++)
        past.at[i] = r->reader->now_ms - wire_get_u64(&r->in);
    if (!r->in.bad)
        membership_past_put(&r->job->membership, &past);
}

static const struct {
    void (*read)(struct record_read *r);
    bool of_node; /* begins with the index of a node */
} records[RECORD_TYPE_COUNT] = {
    [RECORD_STATE] = { read_state, false },
    [RECORD_FAILURE] = { read_failure, false },
    [RECORD_NODE] = { read_node, true },
    [RECORD_PLACE_IN_CLEAR] = { read_place_in_clear, true },
    [RECORD_PLACE] = { read_place, true },
    [RECORD_DROP] = { read_drop, true },
    [RECORD_SLOT] = { read_slot, false },
    [RECORD_PAST] = { read_past, false },
    [RECORD_OWNER] = { read_owner, false },
};

int job_records_read(void *arg, unsigned type, const void *data, size_t size,
                     struct err *e)
{
    struct job_records_reader *reader = arg;
    struct record_read r = { .in = { .next = data, .left = size }, .reader = reader };
    struct id128 instance;
    struct job **at;

    wire_get_bytes(&r.in, instance.byte, sizeof(instance.byte));
    if (type == RECORD_RENDEZVOUS && !r.in.bad) {
        reader->rendezvous = instance; /* the id is in its place */
        return 0;
    }
    if (type == RECORD_JOB)
        return read_job(reader, &r.in, &instance, e);
    at = find_job(reader, &instance);
    r.job = *at;
    if (!r.job || r.in.bad || type >= RECORD_TYPE_COUNT ||
        (type != RECORD_END && !records[type].read))
        return err_set(e, "record of type %u is about no job", type);
    if (type == RECORD_END) {
        *at = r.job->next;
        job_destroy(r.job);
        return 0;
    }
    if (records[type].of_node) {
        r.index = wire_get_u32(&r.in);
        if (r.in.bad || r.index >= r.job->membership.capacity)
            return err_set(e, "record of type %u is about no node", type);
    }
    records[type].read(&r);
    return r.in.bad ? err_set(e, "record of type %u is cut short", type) : 0;
}

struct saved_node {
    struct membership_node node;
    uint32_t index;
};

static int compare_joined(const void *a, const void *b)
{
    uint64_t x = ((const struct saved_node *)a)->node.joined;
    uint64_t y = ((const struct saved_node *)b)->node.joined;

    return x < y ? -1 : x > y;
}

/* Hand the nodes to the membership in the order in which they joined. */
static void restore_nodes(struct job *job, uint64_t now_ms)
{
    struct membership *membership = &job->membership;
    struct saved_node *saved = xcalloc(membership->capacity, sizeof(*saved));
    uint32_t count = 0;

    for (uint32_t i = 0; i < membership->capacity; i++)
        if (membership->node[i].state != MEMBERSHIP_NODE_FREE && job->node[i])
            saved[count++] = (struct saved_node){ membership->node[i], i };
    qsort(saved, count, sizeof(*saved), compare_joined);
    for (uint32_t i = 0; i < count; i++)
        membership_restore_node(membership, saved[i].index, &saved[i].node);
    free(saved);
    membership->time.since += now_ms - job->stepped_ms; /* another clock */
    membership_restored(membership, now_ms);
}

struct id128 job_records_reader_rendezvous(const struct job_records_reader *reader)
{
    return reader->rendezvous;
}

bool job_records_reader_is_in_clear(const struct job_records_reader *reader)
{
    return reader->in_clear;
}

struct job *job_records_reader_finish(struct job_records_reader *reader)
{
    struct job *jobs = reader->jobs;

    for (struct job *j = jobs; j; j = j->next)
        restore_nodes(j, reader->now_ms);
    free(reader);
    return jobs;
}
