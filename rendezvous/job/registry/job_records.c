/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/registry/job_records_internal.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "rendezvous/common/base/wire.h"
#include "rendezvous/common/base/witness_claims.h"
#include "rendezvous/job/records/journal.h"
#include "rendezvous/job/records/limits.h"
#include "rendezvous/wire/protocol/proto_fields.h"

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
    PLAIN(TEXT, job, free_ports),
    PLAIN(U64, job, membership.stop.root.heard_at),
};
const struct proto_table job_record_state = TABLE(state_fields);

static const struct proto_field owner_fields[] = {
    PLAIN(U32, job, owner.uid),
    PLAIN(TEXT, job, owner.key_file),
};
const struct proto_table job_record_owner = TABLE(owner_fields);

static const struct proto_field node_fields[] = {
    PLAIN(TEXT, job_node, host), PLAIN(TEXT, job_node, address),
    PLAIN(TEXT, job_node, seen), PLAIN(TEXT, job_node, containment),
    PLAIN(U32, job_node, pid),
};
const struct proto_table job_record_node = TABLE(node_fields);

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
const struct proto_table job_record_place = TABLE(place_fields);

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
    record_put_fields(&job_record_owner, job);
    record_append(RECORD_OWNER);
}

void job_records_put_state(struct journal *j, const struct job *job)
{
    if (!record_begin(j, job))
        return;
    record_put_fields(&job_record_state, job);
    wire_put_u64(&rec.out, membership_state_age(&job->membership, job->stepped_ms));
    if (job->membership.memory) {
        wire_put_u64(&rec.out, job->memory_epoch);
        wire_put_text(&rec.out, job->memory_set);
    }
    record_append(RECORD_STATE);
    if (!*job->ended_by)
        return;
    record_begin(j, job);
    wire_put_text(&rec.out, job->ended_by);
    record_append(RECORD_ENDED_BY);
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
    record_put_fields(&job_record_node, n);
    if (*n->role)
        wire_put_text(&rec.out, n->role);
    record_append(RECORD_NODE);
}

void job_records_put_place(struct journal *j, const struct job *job, uint32_t index)
{
    if (!record_begin(j, job))
        return;
    wire_put_u32(&rec.out, index);
    record_put_fields(&job_record_place, &job->membership.node[index]);
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

void job_records_put_rendezvous(struct journal *j, const struct id128 *id,
                                uint64_t last_event)
{
    uint8_t data[sizeof(*id) + sizeof(last_event)];
    struct wire_out out = { .start = data, .size = sizeof(data) };

    wire_put_bytes(&out, id->byte, sizeof(id->byte));
    wire_put_u64(&out, last_event);
    journal_append(j, RECORD_RENDEZVOUS, data, out.used);
}

void job_records_put_claim(struct journal *j, const struct pair_claim *c)
{
    uint8_t data[sizeof(*c)];
    struct wire_out out = { .start = data, .size = sizeof(data) };

    if (!j)
        return;
    wire_put_bytes(&out, c->job.byte, sizeof(c->job.byte));
    wire_put_u64(&out, c->pair);
    wire_put_u64(&out, c->holder);
    journal_append(j, RECORD_CLAIM, data, out.used);
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
    job_records_put_hosts(j, job);
}

void job_records_put_hosts(struct journal *j, const struct job *job)
{
    const struct membership *m = &job->membership;

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
