/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/registry/job.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "rendezvous/common/base/hash.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/history/job_history.h"
#include "rendezvous/job/membership/memory_sets.h"
#include "rendezvous/job/registry/limits.h"

/* Spares that a job has room for. */
static uint32_t spares_max(const struct job_config *c)
{
    uint32_t most = c->max_nodes < 64 ? 64 : c->max_nodes;

    return c->limit_spares && c->spares > most ? c->spares : most;
}

struct job *job_create(const char *run_id, const struct job_config *config,
                       const struct id128 *instance, uint64_t now_ms)
{
    struct job *j = xcalloc(1, sizeof(*j));
    uint32_t capacity = config->max_nodes + spares_max(config);
    struct membership_memory memory = {
        .capacity = capacity,
        .node = xcalloc(capacity, sizeof(*memory.node)),
        .bucket = xcalloc(capacity, sizeof(*memory.bucket)),
        .slot_node = xcalloc(config->max_nodes, sizeof(*memory.slot_node)),
        .slot_identity = xcalloc(config->max_nodes, sizeof(*memory.slot_identity))
    };

    memcpy(memory.bucket_key, id128_random().byte, sizeof(memory.bucket_key));
    snprintf(j->run_id, sizeof(j->run_id), "%s", run_id);
    job_name(run_id, config->program, j->name, sizeof(j->name));
    j->owner.uid = PEER_UID_UNKNOWN;
    j->stepped_ms = now_ms;
    j->history = job_history_create();
    j->archive_ms = UINT64_MAX;
    j->reporter = MEMBERSHIP_NONE;
    j->node = xcalloc(capacity, sizeof(*j->node));
    j->name_hash = xcalloc(capacity, sizeof(*j->name_hash));
    j->seen_hash = xcalloc(capacity, sizeof(*j->seen_hash));
    membership_init(&j->membership, config, instance, &memory, now_ms);
    return j;
}

void job_destroy(struct job *j)
{
    if (!j)
        return;
    for (uint32_t i = 0; i < j->membership.capacity; i++)
        free(j->node[i]);
    free(j->node);
    free(j->name_hash);
    free(j->seen_hash);
    free(j->membership.node);
    free(j->membership.slot_node);
    free(j->membership.bucket);
    free(j->membership.slot_identity);
    job_history_destroy(j->history);
    memory_sets_destroy(j->memory);
    free(j);
}

struct job_node *job_add_node(struct job *j, uint32_t index)
{
    if (!j->node[index])
        j->node[index] = xcalloc(1, sizeof(struct job_node));
    return j->node[index];
}

void job_drop_node(struct job *j, uint32_t index)
{
    free(j->node[index]);
    j->node[index] = NULL;
    j->name_hash[index] = j->seen_hash[index] = 0;
}

/* Never 0, which means none. */
static uint32_t name_hash_of(const char *name)
{
    uint32_t hash = (uint32_t)hash_fnv1a(HASH_FNV1A_BASIS, name, strlen(name));

    return hash ? hash : 1;
}

_Static_assert(sizeof(wchar_t) == sizeof(uint32_t), "wmemchr looks for hashes");

/* The first node from `from` on with this hash, or the capacity. With 10,000 nodes
 * wmemchr looks at all of them in less than a microsecond. */
static uint32_t next_with_hash(const struct job *j, const uint32_t *hashes,
                               uint32_t from, uint32_t hash)
{
    const wchar_t *all = (const wchar_t *)hashes;
    const wchar_t *found = wmemchr(all + from, (wchar_t)hash,
                                   j->membership.capacity - from);

    return found ? (uint32_t)(found - all) : j->membership.capacity;
}

static bool name_is_taken(const struct job *j, uint32_t index, const char *name)
{
    uint32_t hash = name_hash_of(name), i = next_with_hash(j, j->name_hash, 0, hash);

    for (; i < j->membership.capacity; i = next_with_hash(j, j->name_hash, i + 1, hash))
        if (i != index && j->node[i]->peer && strcmp(j->node[i]->host, name) == 0)
            return true;
    return false;
}

void job_name_node(struct job *j, uint32_t index, const char *host)
{
    enum { NUMBER_LENGTH = sizeof(":4294967295") - 1 };
    struct job_node *n = j->node[index];

    if (*host && name_is_taken(j, index, host))
        snprintf(n->host, sizeof(n->host), "%.*s:%" PRIu32,
                 HOST_NAME_MAX_BYTES - NUMBER_LENGTH, host, index);
    else if (*host)
        snprintf(n->host, sizeof(n->host), "%s", host);
    j->name_hash[index] = name_hash_of(n->host);
}

void job_set_seen(struct job *j, uint32_t index, const char *address)
{
    struct job_node *n = j->node[index];

    snprintf(n->seen, sizeof(n->seen), "%s", address);
    j->seen_hash[index] = name_hash_of(n->seen);
}

uint32_t job_next_seen_at(const struct job *j, const char *address, uint32_t after)
{
    uint32_t hash = name_hash_of(address), i = after + 1; /* NONE + 1 is 0 */

    for (i = next_with_hash(j, j->seen_hash, i, hash); i < j->membership.capacity;
         i = next_with_hash(j, j->seen_hash, i + 1, hash))
        if (strcmp(j->node[i]->seen, address) == 0)
            return i;
    return MEMBERSHIP_NONE;
}

static bool node_is_spare(const struct membership *membership,
                          const struct membership_node *n)
{
    return n->state == MEMBERSHIP_NODE_WAITING &&
           (membership->state == JOB_RUNNING || membership->state == JOB_STOPPING);
}

enum node_state job_node_state(const struct job *j, uint32_t index)
{
    const struct membership *membership = &j->membership;
    const struct membership_node *n = &membership->node[index];

    if (n->leaving)
        return NODE_LEAVING;
    if (n->quarantined && n->state == MEMBERSHIP_NODE_WAITING)
        return NODE_QUARANTINED;
    if (node_is_spare(membership, n))
        return NODE_SPARE;
    switch (n->state) {
    case MEMBERSHIP_NODE_WAITING:
        return NODE_WAITING;
    case MEMBERSHIP_NODE_FINISHED:
        return NODE_FINISHED;
    case MEMBERSHIP_NODE_STOPPED:
        return NODE_STOPPED;
    case MEMBERSHIP_NODE_DISMISSED:
        return NODE_DONE;
    default:
        return membership->state == JOB_STOPPING ? NODE_STOPPING
               : n->started                      ? NODE_RUNNING
                                                 : NODE_STARTING;
    }
}

/* -- what is counted for the metrics ---------------------------------------------- */

const char *const job_restart_names[JOB_RESTART_COUNT] = {
    [JOB_RESTART_FAILURE] = "failure", [JOB_RESTART_LOST] = "lost",
    [JOB_RESTART_HANG] = "hang",       [JOB_RESTART_SCALE_UP] = "scale-up",
    [JOB_RESTART_DRAIN] = "drain",
};

void job_count_stop(struct job *j)
{
    static const enum job_restart restarts[JOB_CAUSE_COUNT] = {
        [JOB_CAUSE_LOST] = JOB_RESTART_LOST,
        [JOB_CAUSE_SCALE_UP] = JOB_RESTART_SCALE_UP,
        [JOB_CAUSE_DRAIN] = JOB_RESTART_DRAIN,
    };
    const struct membership *m = &j->membership;
    bool ends = m->state == JOB_DONE && m->stop.reason == JOB_REASON_FAILURE;
    bool hung = m->stop.cause == JOB_CAUSE_FAILURE && j->failure.kind == FAILURE_HANG;

    if (m->epoch == j->counts.epoch || (m->state != JOB_FORMING && !ends))
        return;
    j->counts.epoch = m->epoch;
    j->counts.hangs += hung;
    if (!ends)
        j->counts.restarts[hung ? JOB_RESTART_HANG : restarts[m->stop.cause]]++;
}

void job_note_step(struct job *j, uint32_t index, const struct msg_heartbeat *progress,
                   uint64_t now_ms)
{
    if (progress->step != j->node[index]->progress.step)
        j->counts.moved_ms = now_ms;
}

static void forget_steps(struct msg_heartbeat *progress)
{
    progress->step = 0;
    progress->steps_per_s[0] = progress->loss[0] = '\0';
}

void job_take_progress(struct job *j, uint32_t index, uint64_t epoch,
                       const struct msg_heartbeat *progress)
{
    struct msg_heartbeat *p = &j->node[index]->progress;

    *p = *progress;
    if (j->membership.state == JOB_RUNNING && epoch != j->membership.epoch)
        forget_steps(p);
}

void job_forget_steps(struct job *j)
{
    const struct membership *m = &j->membership;

    MEMBERSHIP_EACH(i, m)
        forget_steps(&j->node[i]->progress);
}

/* All of them, less the time of which the job may still say that it was lost. */
static struct time_spent_sums settled_time(const struct job *j, uint64_t now_ms)
{
    const struct time_spent *t = &j->membership.time;
    struct time_spent_sums sums = time_spent_all(t, now_ms);
    uint64_t open = now_ms - t->since, still = now_ms - j->counts.moved_ms;

    if (!t->over && t->reports_steps && t->phase == JOB_PHASE_PRODUCTIVE)
        sums.ms[JOB_PHASE_PRODUCTIVE] -= still < open ? still : open;
    return sums;
}

const struct time_spent_sums *job_report_time(struct job *j, uint64_t now_ms)
{
    struct time_spent_sums now = settled_time(j, now_ms), *told = &j->counts.told;

    for (unsigned i = 0; i < JOB_PHASE_COUNT; i++)
        if (now.ms[i] > told->ms[i])
            told->ms[i] = now.ms[i];
    told->steps_again = now.steps_again;
    told->unplaced = now.unplaced;
    return told;
}

bool job_can_spare(const struct job_config *config)
{
    return config->min_nodes < config->max_nodes || config->spares > 0;
}
