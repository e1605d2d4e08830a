/* SPDX-License-Identifier: MIT */
#include "tests/sim/view.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "rendezvous/job/registry/job.h"
#include "rendezvous/wire/protocol/proto.h"

static bool is_member(const struct membership_node *n)
{
    return n->state >= MEMBERSHIP_NODE_ACTIVE && n->state <= MEMBERSHIP_NODE_STOPPED;
}

static uint64_t sum_of_memory(const struct membership *r)
{
    uint64_t sum = 0;

    for (uint32_t slot = 0; slot < r->config.max_nodes; slot++)
        sum += r->slot_identity[slot] * (2 * slot + 1);
    for (uint32_t i = 0; i < r->pasts; i++)
        sum += r->past[i].identity *
               (r->past[i].count * 4 + r->past[i].quarantined + 1);
    return sum;
}

void view_take(struct view *v, const struct job *job)
{
    const struct membership *r = job ? &job->membership : NULL;

    v->exists = job != NULL;
    v->count = 0;
    if (!job)
        return;
    v->state = r->state;
    v->reason = r->stop.reason;
    v->exit_code = r->stop.exit_code;
    v->epoch = r->epoch;
    v->restarts = r->restarts;
    v->failures = r->state == JOB_RUNNING ? r->stop.failures : 0;
    v->store_ready = r->store_ready;
    v->group_size = r->group_size;
    v->world_size = r->world_size;
    v->crash_loop = r->crash_loop;
    v->memory = sum_of_memory(r);
    MEMBERSHIP_EACH(i, r) {
        const struct membership_node *n = &r->node[i];

        assert(v->count < VIEW_NODES_MAX);
        v->node[v->count++] = (struct view_node){
            .incarnation = n->incarnation,
            .state = n->state,
            .slot = n->slot,
            .group_rank = is_member(n) ? n->group_rank : 0,
            .first_rank = is_member(n) ? n->first_rank : 0,
            .leaving = n->leaving
        };
    }
}

static char *node_difference(const struct view_node *a, const struct view_node *b,
                             char *buf, size_t size)
{
    if (!id128_equal(&a->incarnation, &b->incarnation))
        snprintf(buf, size, "another node");
    else if (a->state != b->state)
        snprintf(buf, size, "node state %d, was %d", b->state, a->state);
    else if (a->slot != b->slot)
        snprintf(buf, size, "slot %d, was %d", (int)b->slot, (int)a->slot);
    else if (a->group_rank != b->group_rank || a->first_rank != b->first_rank)
        snprintf(buf, size, "ranks from %u, were from %u", b->first_rank,
                 a->first_rank);
    else if (a->leaving != b->leaving)
        snprintf(buf, size, "leaving %d, was %d", b->leaving, a->leaving);
    return buf;
}

char *view_difference(const struct view *a, const struct view *b, char *buf,
                      size_t size)
{
    buf[0] = '\0';
    if (a->exists != b->exists)
        snprintf(buf, size, "the job is %s", b->exists ? "back" : "gone");
    else if (!a->exists)
        return buf;
    else if (a->state != b->state)
        snprintf(buf, size, "state %s, was %s", proto_state_name(b->state),
                 proto_state_name(a->state));
    else if (a->epoch != b->epoch)
        snprintf(buf, size, "epoch %" PRIu64 ", was %" PRIu64, b->epoch, a->epoch);
    else if (a->restarts != b->restarts)
        snprintf(buf, size, "%u restarts, were %u", b->restarts, a->restarts);
    else if (a->failures != b->failures)
        snprintf(buf, size, "%u failures, were %u", b->failures, a->failures);
    else if (a->reason != b->reason || a->exit_code != b->exit_code)
        snprintf(buf, size, "result %s %d, was %s %d", proto_reason_name(b->reason),
                 b->exit_code, proto_reason_name(a->reason), a->exit_code);
    else if (a->state == JOB_RUNNING && a->store_ready != b->store_ready)
        snprintf(buf, size, "store ready %d, was %d", b->store_ready, a->store_ready);
    else if (a->state == JOB_RUNNING &&
             (a->group_size != b->group_size || a->world_size != b->world_size))
        snprintf(buf, size, "world of %u, was of %u", b->world_size, a->world_size);
    else if (a->crash_loop != b->crash_loop)
        snprintf(buf, size, "a crash loop of %u, was of %u", b->crash_loop,
                 a->crash_loop);
    else if (a->memory != b->memory)
        snprintf(buf, size, "who had which slot, or made what trouble");
    else if (a->count != b->count)
        snprintf(buf, size, "%u nodes, were %u", b->count, a->count);
    for (unsigned i = 0; i < a->count && !buf[0]; i++)
        node_difference(&a->node[i], &b->node[i], buf, size);
    return buf;
}
