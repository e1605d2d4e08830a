/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/registry/job_records_internal.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/wire.h"
#include "rendezvous/common/base/witness_claims.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/records/limits.h"

/* While reading, nodes are in membership.node[] at their index; FREE: none is there. */
struct job_records_reader {
    struct job *jobs;
    uint64_t now_ms;
    struct id128 rendezvous;
    uint64_t last_event;
    struct claims claims;
};

struct job_records_reader *job_records_reader_create(uint64_t now_ms)
{
    struct job_records_reader *reader = xcalloc(1, sizeof(*reader));

    reader->now_ms = now_ms;
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

static int read_claim(struct job_records_reader *reader, struct wire_in *in,
                      const struct id128 *instance, struct err *e)
{
    struct pair_claim c = { .job = *instance, .pair = wire_get_u64(in) };
    bool is_new;

    c.self = wire_get_u64(in);
    return in->bad || !witness_claims_take(&reader->claims, &c, &is_new)
               ? err_set(e, "a claim's record makes no sense")
               : 0;
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
    record_get_fields(&r->in, &job_record_state, 0, STATE_FIELDS_ALWAYS, r->job);
    r->job->membership.waited_ms = r->in.left > 0 ? wire_get_u64(&r->in) : 0;
    if (r->in.left > 0) {
        r->job->membership.memory = true;
        r->job->memory_epoch = wire_get_u64(&r->in);
        wire_get_text(&r->in, r->job->memory_set, sizeof(r->job->memory_set));
    }
    if (r->job->membership.leader != MEMBERSHIP_NONE &&
        r->job->membership.leader >= r->job->membership.capacity)
        r->in.bad = true;
}

static void read_owner(struct record_read *r)
{
    record_get_fields(&r->in, &job_record_owner, 0, UINT_MAX, r->job);
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

    record_get_fields(&r->in, &job_record_node, 0, UINT_MAX, n);
    if (r->in.left > 0)
        wire_get_text(&r->in, n->role, sizeof(n->role));
    job_name_node(r->job, r->index, "");
}

static void read_place(struct record_read *r)
{
    struct membership_node *n = &r->job->membership.node[r->index];

    record_get_fields(&r->in, &job_record_place, 0, UINT_MAX, n);
    if (n->slot != MEMBERSHIP_NONE && n->slot >= r->job->membership.config.max_nodes)
        r->in.bad = true;
    else if (n->state == MEMBERSHIP_NODE_ACTIVE && n->slot != MEMBERSHIP_NONE)
        r->job->membership.slot_identity[n->slot] = n->identity;
}

static void read_ended_by(struct record_read *r)
{
    wire_get_text(&r->in, r->job->ended_by, sizeof(r->job->ended_by));
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
    [RECORD_PLACE] = { read_place, true },
    [RECORD_DROP] = { read_drop, true },
    [RECORD_SLOT] = { read_slot, false },
    [RECORD_PAST] = { read_past, false },
    [RECORD_OWNER] = { read_owner, false },
    [RECORD_ENDED_BY] = { read_ended_by, false },
};

int job_records_read(void *arg, unsigned type, const void *data, size_t size,
                     struct err *e)
{
    struct job_records_reader *reader = arg;
    struct record_read r = { .in = { .next = data, .left = size }, .reader = reader };
    struct id128 instance;
    struct job **at;

    if (type >= JOURNAL_REPLICA_TYPES)
        return err_set(e, "it is that of a crund with --peers");
    wire_get_bytes(&r.in, instance.byte, sizeof(instance.byte));
    if (type == RECORD_RENDEZVOUS && !r.in.bad) {
        reader->rendezvous = instance; /* the id is in its place */
        reader->last_event = r.in.left > 0 ? wire_get_u64(&r.in) : 0;
        return 0;
    }
    if (type == RECORD_CLAIM)
        return read_claim(reader, &r.in, &instance, e);
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

struct id128 job_records_reader_rendezvous(const struct job_records_reader *reader,
                                           uint64_t *last_event)
{
    *last_event = reader->last_event;
    return reader->rendezvous;
}

void job_records_reader_move_claims(struct job_records_reader *reader,
                                    struct claims *to)
{
    *to = reader->claims;
    reader->claims = (struct claims){ .list = NULL };
}

struct job *job_records_reader_finish(struct job_records_reader *reader)
{
    struct job *jobs = reader->jobs;

    for (struct job *j = jobs; j; j = j->next)
        restore_nodes(j, reader->now_ms);
    witness_claims_free(&reader->claims);
    free(reader);
    return jobs;
}

/* As it was read: times are those of the clock that they were written by. */
static void dump_job(struct journal *to, struct job *job, uint64_t now_ms)
{
    struct membership *m = &job->membership;

    m->state_since = job->stepped_ms; /* it has waited for waited_ms then */
    m->clock.now = now_ms;            /* of which the times of troubles are ages */
    m->clock.stalled = 0;
    job_records_put_job(to, job);
    job_records_put_state(to, job);
    if (job->failure.kind != FAILURE_NONE)
        job_records_put_failure(to, job);
    for (uint32_t i = 0; i < m->capacity; i++)
        if (m->node[i].state != MEMBERSHIP_NODE_FREE && job->node[i]) {
            job_records_put_node(to, job, i);
            job_records_put_place(to, job, i);
        }
    job_records_put_hosts(to, job);
}

void job_records_reader_dump(struct job_records_reader *reader, struct journal *to)
{
    struct job *job;

    job_records_put_rendezvous(to, &reader->rendezvous, reader->last_event);
    while ((job = reader->jobs)) {
        dump_job(to, job, reader->now_ms);
        reader->jobs = job->next;
        job_destroy(job);
    }
    witness_claims_free(&reader->claims);
    free(reader);
}
