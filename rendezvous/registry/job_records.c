/* SPDX-License-Identifier: MIT */
#include "rendezvous/registry/job_records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/wire.h"
#include "rendezvous/base/xalloc.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/journal/limits.h"
#include "rendezvous/protocol/proto.h"

/* Numbers on disk: never reused. */
enum record_type {
    RECORD_JOB = 1,
    RECORD_STATE,
    RECORD_FAILURE,
    RECORD_NODE,
    RECORD_PLACE,
    RECORD_DROP,
    RECORD_END,
    RECORD_SLOT,
    RECORD_PAST,
    RECORD_TYPE_COUNT
};

/*
 * One description of each record serves both directions: every field is passed to a
 * function that writes it, or reads it, as the stream says.
 */
struct stream {
    struct wire_out *out; /* one of the two */
    struct wire_in *in;
};

static void field_u8(struct stream *s, uint8_t *v)
{
    if (s->out)
        wire_put_u8(s->out, *v);
    else
        *v = wire_get_u8(s->in);
}

static void field_u32(struct stream *s, uint32_t *v)
{
    if (s->out)
        wire_put_u32(s->out, *v);
    else
        *v = wire_get_u32(s->in);
}

static void field_u64(struct stream *s, uint64_t *v)
{
    if (s->out)
        wire_put_u64(s->out, *v);
    else
        *v = wire_get_u64(s->in);
}

static void field_i32(struct stream *s, int32_t *v)
{
    uint32_t u = (uint32_t)*v;

    field_u32(s, &u);
    *v = (int32_t)u;
}

static void field_bool(struct stream *s, bool *v)
{
    uint8_t u = *v;

    field_u8(s, &u);
    *v = u != 0;
}

static void field_id(struct stream *s, struct id128 *id)
{
    if (s->out)
        wire_put_bytes(s->out, id->byte, sizeof(id->byte));
    else
        wire_get_bytes(s->in, id->byte, sizeof(id->byte));
}

static void field_text(struct stream *s, char *text, size_t size)
{
    if (s->out)
        wire_put_text(s->out, text);
    else
        wire_get_text(s->in, text, size);
}

/* An enum; a number that is not below count makes the record bad. */
#define FIELD_ENUM(s, lvalue, count)                                                   \
    do {                                                                               \
        uint8_t u = (uint8_t)(lvalue);                                                 \
        field_u8(s, &u);                                                               \
        if ((s)->in && u >= (count))                                                   \
            (s)->in->bad = true;                                                       \
        else                                                                           \
            (lvalue) = u;                                                              \
    } while (0)

#define FIELD_TEXT(s, array) field_text(s, array, sizeof(array))

/* In the journal as its name. */
static void field_scale(struct stream *s, enum job_scale *scale)
{
    char name[16];

    snprintf(name, sizeof(name), "%s", proto_scale_name(*scale));
    FIELD_TEXT(s, name);
    if (s->in)
        *scale = proto_scale(name);
}

static void describe_config(struct stream *s, struct job_config *c)
{
    field_u32(s, &c->min_nodes);
    field_u32(s, &c->max_nodes);
    field_u32(s, &c->max_restarts);
    field_u32(s, &c->lease_ms);
    field_u32(s, &c->join_timeout_ms);
    field_u32(s, &c->last_call_ms);
    field_u32(s, &c->shutdown_grace_ms);
    field_u32(s, &c->failure_grace_ms);
    field_u32(s, &c->restart_min_uptime_ms);
    field_u32(s, &c->restart_backoff_ms);
    field_u32(s, &c->quarantine);
    field_bool(s, &c->limit_spares);
    field_u32(s, &c->spares);
    field_bool(s, &c->strict_fence);
    field_scale(s, &c->scale);
    FIELD_TEXT(s, c->no_restart_on);
    FIELD_TEXT(s, c->program);
    FIELD_TEXT(s, c->arguments_hash);
    if (s->out || s->in->left > 0) /* a journal of a version without it ends here */
        field_bool(s, &c->preflight);
}

static void describe_state(struct stream *s, struct job *j)
{
    struct membership *r = &j->round;

    FIELD_ENUM(s, r->state, JOB_STATE_COUNT);
    FIELD_ENUM(s, r->cause, JOB_CAUSE_COUNT);
    FIELD_ENUM(s, r->reason, JOB_REASON_COUNT);
    field_u64(s, &r->epoch);
    field_u32(s, &r->restarts);
    field_bool(s, &r->ending);
    field_bool(s, &r->restart_spent);
    field_bool(s, &r->too_young);
    field_bool(s, &r->short_lived);
    field_u32(s, &r->crash_loop);
    field_bool(s, &r->store_ready);
    field_i32(s, &r->exit_code);
    if (r->exit_code < 0 || r->exit_code > 255) /* what older versions let pass */
        r->exit_code = EXIT_FAILURE;
    field_u32(s, &r->grace_ms);
    field_u32(s, &r->group_size);
    field_u32(s, &r->world_size);
    field_u32(s, &r->leader);
    field_u32(s, &r->root_node);
    field_u64(s, &r->root_identity);
    field_u64(s, &r->root_at);
    FIELD_TEXT(s, j->store_address);
    field_u32(s, &j->store_port);
    FIELD_TEXT(s, j->text);
}

static void describe_failure(struct stream *s, struct failure *f)
{
    FIELD_ENUM(s, f->kind, FAILURE_KIND_COUNT);
    field_u32(s, &f->rank);
    field_u32(s, &f->local_rank);
    field_u32(s, &f->pid);
    field_i32(s, &f->code);
    field_bool(s, &f->core_dumped);
    field_bool(s, &f->out_of_memory);
    field_bool(s, &f->final);
    field_u64(s, &f->at_ms);
    field_u64(s, &f->wall_ms);
    field_u64(s, &f->ran_ms);
    FIELD_TEXT(s, f->host);
    FIELD_TEXT(s, f->what);
    FIELD_TEXT(s, f->said);
    FIELD_TEXT(s, f->log);
}

static void describe_node(struct stream *s, struct job_node *n)
{
    FIELD_TEXT(s, n->host);
    FIELD_TEXT(s, n->address);
    FIELD_TEXT(s, n->seen);
    FIELD_TEXT(s, n->containment);
    field_u32(s, &n->pid);
    /* only where it says something: readers and writers of before have none */
    if (s->in ? s->in->left > 0 : *n->role != '\0')
        FIELD_TEXT(s, n->role);
}

static void describe_place(struct stream *s, struct membership_node *n)
{
    field_id(s, &n->incarnation);
    field_u64(s, &n->identity);
    FIELD_ENUM(s, n->state, MEMBERSHIP_NODE_STATE_COUNT);
    field_u32(s, &n->workers);
    field_u32(s, &n->wanted_slot);
    field_u32(s, &n->slot);
    field_u32(s, &n->group_rank);
    field_u32(s, &n->first_rank);
    field_u64(s, &n->joined);
    field_bool(s, &n->host);
    field_bool(s, &n->leaving);
}

/* Times as ages: after a restart the clock may be another. */
static void describe_past(struct stream *s, struct membership_past *p, uint64_t now)
{
    field_u64(s, &p->identity);
    field_bool(s, &p->quarantined);
    field_u32(s, &p->count);
    if (p->count > QUARANTINE_MAX)
        s->in->bad = true;
    for (uint32_t i = 0; i < p->count && p->count <= QUARANTINE_MAX; i++) {
        uint64_t age = s->out ? now - p->at[i] : 0;

        field_u64(s, &age);
        p->at[i] = now - age;
    }
}

/* -- writing ---------------------------------------------------------------------- */

struct record {
    uint8_t data[JOURNAL_RECORD_MAX];
    struct wire_out out;
    struct stream s;
};

/* Every record begins with the instance of its job. */
static void record_begin(struct record *rec, const struct job *job)
{
    rec->out = (struct wire_out){ .start = rec->data, .size = sizeof(rec->data) };
    rec->s = (struct stream){ .out = &rec->out };
    wire_put_bytes(&rec->out, job->round.instance.byte,
                   sizeof(job->round.instance.byte));
}

static void record_write(struct journal *j, enum record_type type,
                         const struct record *rec)
{
    journal_append(j, type, rec->data, rec->out.used);
}

/* The descriptions take what they write as changeable, because they also read it. */
static struct job *changeable(const struct job *job)
{
    return (struct job *)(uintptr_t)job;
}

void record_job(struct journal *j, const struct job *job)
{
    struct record rec;

    record_begin(&rec, job);
    FIELD_TEXT(&rec.s, changeable(job)->run_id);
    field_u64(&rec.s, &changeable(job)->created_wall_ms);
    describe_config(&rec.s, &changeable(job)->config);
    record_write(j, RECORD_JOB, &rec);
}

void record_state(struct journal *j, const struct job *job)
{
    struct record rec;

    record_begin(&rec, job);
    describe_state(&rec.s, changeable(job));
    record_write(j, RECORD_STATE, &rec);
}

void record_failure(struct journal *j, const struct job *job)
{
    struct record rec;

    record_begin(&rec, job);
    describe_failure(&rec.s, &changeable(job)->failure);
    FIELD_TEXT(&rec.s, changeable(job)->afterwards);
    record_write(j, RECORD_FAILURE, &rec);
}

void record_node(struct journal *j, const struct job *job, uint32_t index)
{
    struct record rec;

    record_begin(&rec, job);
    wire_put_u32(&rec.out, index);
    describe_node(&rec.s, job->node[index]);
    record_write(j, RECORD_NODE, &rec);
}

void record_place(struct journal *j, const struct job *job, uint32_t index)
{
    struct record rec;

    record_begin(&rec, job);
    wire_put_u32(&rec.out, index);
    describe_place(&rec.s, &changeable(job)->round.node[index]);
    record_write(j, RECORD_PLACE, &rec);
}

void record_drop(struct journal *j, const struct job *job, uint32_t index)
{
    struct record rec;

    record_begin(&rec, job);
    wire_put_u32(&rec.out, index);
    record_write(j, RECORD_DROP, &rec);
}

/* Who had a slot last is known from the PLACE of each member, as long as it is there.
 */
static void record_slot(struct journal *j, const struct job *job, uint32_t slot)
{
    struct record rec;

    record_begin(&rec, job);
    wire_put_u32(&rec.out, slot);
    wire_put_u64(&rec.out, job->round.slot_identity[slot]);
    record_write(j, RECORD_SLOT, &rec);
}

void record_past(struct journal *j, const struct job *job, uint32_t index)
{
    const struct membership *r = &job->round;
    struct membership_past past = r->past[index];
    struct record rec;

    record_begin(&rec, job);
    describe_past(&rec.s, &past, r->last_now - r->stalled);
    record_write(j, RECORD_PAST, &rec);
}

void record_end(struct journal *j, const struct job *job)
{
    struct record rec;

    record_begin(&rec, job);
    record_write(j, RECORD_END, &rec);
}

void record_all(struct journal *j, const struct job *job)
{
    const struct membership *r = &job->round;

    record_job(j, job);
    record_state(j, job);
    if (job->failure.kind != FAILURE_NONE)
        record_failure(j, job);
    for (uint32_t i = r->first; i != MEMBERSHIP_NONE; i = r->node[i].next) {
        record_node(j, job, i);
        record_place(j, job, i);
    }
    for (uint32_t slot = 0; slot < r->config.max_nodes; slot++)
        if (r->slot_identity[slot] != 0)
            record_slot(j, job, slot);
    for (uint32_t i = 0; i < r->pasts; i++)
        record_past(j, job, i);
}

/* -- reading ---------------------------------------------------------------------- */

/* While reading, nodes live in round.node[] at their index; state FREE means none. */
struct record_reader {
    struct job *jobs;
    uint64_t now_ms;
};

struct record_reader *record_reader_create(uint64_t now_ms)
{
    struct record_reader *reader = xcalloc(1, sizeof(*reader));

    reader->now_ms = now_ms;
    return reader;
}

static struct job **find(struct record_reader *reader, const struct id128 *instance)
{
    struct job **at = &reader->jobs;

    while (*at && !id128_equal(&(*at)->round.instance, instance))
        at = &(*at)->next;
    return at;
}

static int read_job(struct record_reader *reader, struct stream *s,
                    const struct id128 *instance, struct err *e)
{
    char run_id[RUN_ID_MAX + 1], why[128];
    struct job_config config = { 0 }; /* a field's old value is read before it is set */
    struct job **at = find(reader, instance);
    uint64_t created_wall_ms = 0;

    FIELD_TEXT(s, run_id);
    field_u64(s, &created_wall_ms);
    describe_config(s, &config);
    if (s->in->bad || *at)
        return err_set(e, "a job's record makes no sense");
    if (!job_config_is_valid(&config, why, sizeof(why)))
        return err_set(e, "a job's record: %s", why);
    *at = job_create(run_id, &config, instance, reader->now_ms);
    (*at)->created_wall_ms = created_wall_ms;
    return 0;
}

static void read_about_node(struct stream *s, unsigned type, struct job *job,
                            uint32_t index)
{
    struct membership_node *n = &job->round.node[index];

    if (type == RECORD_NODE) {
        describe_node(s, job_add_node(job, index));
        job_name_node(job, index, "");
    } else if (type == RECORD_PLACE) {
        describe_place(s, n);
        if (n->slot != MEMBERSHIP_NONE && n->slot >= job->round.config.max_nodes)
            s->in->bad = true;
        else if (n->state == MEMBERSHIP_NODE_ACTIVE && n->slot != MEMBERSHIP_NONE)
            job->round.slot_identity[n->slot] = n->identity;
    } else if (type == RECORD_DROP) {
        n->state = MEMBERSHIP_NODE_FREE;
        job_drop_node(job, index);
    }
}

static void read_slot(struct stream *s, struct job *job)
{
    uint32_t slot = 0;
    uint64_t identity = 0;

    field_u32(s, &slot);
    field_u64(s, &identity);
    if (slot >= job->round.config.max_nodes)
        s->in->bad = true;
    else if (!s->in->bad)
        job->round.slot_identity[slot] = identity;
}

static void read_past(struct stream *s, struct job *job, uint64_t now)
{
    struct membership_past past = { 0 };

    describe_past(s, &past, now);
    if (!s->in->bad)
        membership_past_put(&job->round, &past);
}

int record_read(void *arg, unsigned type, const void *data, size_t size, struct err *e)
{
    struct record_reader *reader = arg;
    struct wire_in in = { .next = data, .left = size };
    struct stream s = { .in = &in };
    struct id128 instance;
    struct job **at, *job;
    uint32_t index = 0;

    field_id(&s, &instance);
    if (type == RECORD_JOB)
        return read_job(reader, &s, &instance, e);
    at = find(reader, &instance);
    job = *at;
    if (!job || in.bad || type >= RECORD_TYPE_COUNT)
        return err_set(e, "record of type %u is about no job", type);
    if (type >= RECORD_NODE && type <= RECORD_DROP) {
        field_u32(&s, &index);
        if (in.bad || index >= job->round.capacity)
            return err_set(e, "record of type %u is about no node", type);
        read_about_node(&s, type, job, index);
    } else if (type == RECORD_STATE) {
        describe_state(&s, job);
        if (job->round.leader != MEMBERSHIP_NONE &&
            job->round.leader >= job->round.capacity)
            in.bad = true;
    } else if (type == RECORD_FAILURE) {
        describe_failure(&s, &job->failure);
        FIELD_TEXT(&s, job->afterwards);
    } else if (type == RECORD_SLOT)
        read_slot(&s, job);
    else if (type == RECORD_PAST)
        read_past(&s, job, reader->now_ms);
    else if (type == RECORD_END) {
        *at = job->next;
        job_destroy(job);
    }
    return in.bad ? err_set(e, "record of type %u is cut short", type) : 0;
}

struct saved {
    struct membership_node node;
    uint32_t index;
};

static int compare_joined(const void *a, const void *b)
{
    uint64_t x = ((const struct saved *)a)->node.joined;
    uint64_t y = ((const struct saved *)b)->node.joined;

    return x < y ? -1 : x > y;
}

/* Hand the nodes to the round in the order in which they joined. */
static void restore_nodes(struct job *job, uint64_t now_ms)
{
    struct membership *r = &job->round;
    struct saved *saved = xcalloc(r->capacity, sizeof(*saved));
    uint32_t count = 0;

    for (uint32_t i = 0; i < r->capacity; i++)
        if (r->node[i].state != MEMBERSHIP_NODE_FREE && job->node[i])
            saved[count++] = (struct saved){ r->node[i], i };
    qsort(saved, count, sizeof(*saved), compare_joined);
    for (uint32_t i = 0; i < count; i++)
        membership_restore_node(r, saved[i].index, &saved[i].node);
    free(saved);
    membership_restored(r, now_ms);
}

struct job *record_reader_finish(struct record_reader *reader)
{
    struct job *jobs = reader->jobs;

    for (struct job *j = jobs; j; j = j->next)
        restore_nodes(j, reader->now_ms);
    free(reader);
    return jobs;
}
