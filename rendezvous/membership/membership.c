/* SPDX-License-Identifier: MIT */
#include "rendezvous/membership/membership.h"

#include <assert.h>
#include <string.h>

#include "rendezvous/membership/membership_blame.h"
#include "rendezvous/membership/membership_internal.h"

/* A step: who may speak, what time it is, the event, and what has become of it. */
#define SCAN_MS_MIN 20
#define SCAN_MS_MAX 500
#define SCAN_MS_DISCONNECTED 50

/* Who may speak, and about which epoch. */
static const struct {
    bool from_node; /* the node must be who it says it is */
    bool of_epoch;  /* the event is about one epoch and means nothing in another */
    bool is_sign;   /* of life */
} rules[MEMBERSHIP_EV_COUNT] = {
    [MEMBERSHIP_EV_RESUME] = { true, false, true },
    [MEMBERSHIP_EV_DISCONNECT] = { true, false, false },
    [MEMBERSHIP_EV_HEARTBEAT] = { true, false, true },
    [MEMBERSHIP_EV_STORE_READY] = { true, true, true },
    [MEMBERSHIP_EV_FAILED] = { true, true, true },
    [MEMBERSHIP_EV_FINISHED] = { true, true, true },
    [MEMBERSHIP_EV_STOPPED] = { true, true, true },
    [MEMBERSHIP_EV_CHECKPOINTED] = { true, true, true },
    [MEMBERSHIP_EV_LEAVE] = { true, false, true },
    [MEMBERSHIP_EV_DRAIN] = { true, false, false },
    [MEMBERSHIP_EV_BYE] = { true, false, true },
};

static enum membership_verdict admit(struct step *s)
{
    const struct membership_event *ev = s->ev;
    struct membership *r = s->r;

    if (!rules[ev->type].from_node)
        return MEMBERSHIP_OK;
    if (ev->node >= r->used || r->node[ev->node].state == MEMBERSHIP_NODE_FREE ||
        !id128_equal(&r->node[ev->node].incarnation, &ev->incarnation))
        return MEMBERSHIP_FENCED;
    s->node = &r->node[ev->node];
    if (rules[ev->type].is_sign && s->node->connected)
        membership_hear(s, s->node);
    if (rules[ev->type].of_epoch && ev->epoch != r->epoch)
        return MEMBERSHIP_STALE;
    return MEMBERSHIP_OK;
}

static uint32_t scan_ms(const struct membership *r)
{
    uint32_t ms = r->config.lease_ms / 30;

    if (ms > SCAN_MS_MAX)
        ms = SCAN_MS_MAX;
    if (r->tally.disconnected > 0 && ms > SCAN_MS_DISCONNECTED)
        ms = SCAN_MS_DISCONNECTED;
    return ms < SCAN_MS_MIN ? SCAN_MS_MIN : ms;
}

/* Time in which we should have been stepped and were not counts for nobody. */
static void credit_stall(struct membership *r, uint64_t now)
{
    uint64_t gap = now > r->last_now ? now - r->last_now : 0;

    /* no longer gap may go uncredited: the shortest grace is two scans */
    if (gap > 2ull * scan_ms(r) && r->tally.live > 0)
        r->stalled += gap - scan_ms(r);
    r->last_now += gap;
}

enum membership_verdict membership_step(struct membership *r,
                                        const struct membership_event *ev, uint64_t now,
                                        const struct membership_sink *sink,
                                        uint32_t *node_out)
{
    struct step s = { .r = r,
                      .ev = ev,
                      .sink = sink,
                      .node_out = MEMBERSHIP_NONE,
                      .lost_member = MEMBERSHIP_NONE };
    membership_handler *fn = round_handlers[r->state][ev->type];
    enum membership_verdict verdict;

    credit_stall(r, now);
    s.t = r->last_now - r->stalled;
    verdict = admit(&s);
    if (verdict == MEMBERSHIP_OK)
        verdict = fn ? fn(&s) : MEMBERSHIP_IGNORED;
    membership_settle(&s);
    if (node_out)
        *node_out = s.node_out;
    return verdict;
}

uint64_t membership_next_tick(const struct membership *r)
{
    uint64_t next = r->ticked_at + scan_ms(r);
    uint64_t due = r->last_call_at;

    if (r->tally.live == 0 && r->state == JOB_DONE)
        return UINT64_MAX;
    if (r->state == JOB_FORMING && membership_backoff_ms(r) > 0)
        due = r->state_since + membership_backoff_ms(r);
    due += due ? r->stalled : 0;
    return due < next && due > r->ticked_at ? due : next;
}

uint32_t membership_backoff_ms(const struct membership *r)
{
    uint64_t wait = RESTART_BACKOFF_FIRST_MS;

    if (r->cause != JOB_CAUSE_FAILURE || r->crash_loop <= RESTARTS_AT_ONCE)
        return 0;
    for (uint32_t i = RESTARTS_AT_ONCE + 1;
         i < r->crash_loop && wait < r->config.backoff_ms; i++)
        wait *= 2;
    return wait < r->config.backoff_ms ? (uint32_t)wait : r->config.backoff_ms;
}

static uint64_t left(const struct membership *r, uint64_t end, uint64_t now)
{
    end += r->stalled;
    return r->state == JOB_FORMING && end > now ? end - now : 0;
}

uint64_t membership_backoff_left(const struct membership *r, uint64_t now)
{
    return left(r, r->state_since + membership_backoff_ms(r), now);
}

uint64_t membership_time_left(const struct membership *r, uint64_t now)
{
    if (r->last_call_at)
        return left(r, r->last_call_at, now);
    return left(
        r, r->state_since + membership_backoff_ms(r) + r->config.join_timeout_ms, now);
}

uint32_t membership_present(const struct membership *r)
{
    return r->tally.here + r->tally.away;
}

void membership_init(struct membership *r, const struct membership_config *config,
                     const struct id128 *instance,
                     const struct membership_memory *memory, uint64_t now)
{
    *r = (struct membership){
        .config = *config,
        .instance = *instance,
        .node = memory->node,
        .capacity = memory->capacity,
        .slot_node = memory->slot_node,
        .bucket = memory->bucket,
        .slot_identity = memory->slot_identity,
        .leader = MEMBERSHIP_NONE,
        .root_node = MEMBERSHIP_NONE,
        .conflict = MEMBERSHIP_NONE,
        .last_now = now,
        .ticked_at = now,
        .state_since = now,
    };
    membership_table_init(r);
}

void membership_restore_node(struct membership *r, uint32_t index,
                             const struct membership_node *saved)
{
    struct membership_node n = *saved;

    n.connected = n.started = n.checkpointed = false;
    n.quarantined = membership_past_is_quarantined(r, n.identity);
    membership_table_put(r, index, &n);
}

/* Ranks are saved: members that have gone since the start are missing in the slots. */
static void restore_places(struct membership *r)
{
    for (uint32_t i = r->first; i != MEMBERSHIP_NONE; i = r->node[i].next) {
        struct membership_node *n = &r->node[i];

        if (membership_is_member(n) && n->slot < r->config.max_nodes)
            r->slot_node[n->slot] = i;
        else
            n->group_rank = MEMBERSHIP_NONE;
    }
}

void membership_restored(struct membership *r, uint64_t now)
{
    r->last_now = r->ticked_at = now;
    r->stalled = 0;
    r->state_since = now;
    r->last_call_at = r->checkpoint_at = r->formed_at = 0;
    r->root_heard_at = 0; /* what fell silent before what is not known any more */
    for (uint32_t i = r->first; i != MEMBERSHIP_NONE; i = r->node[i].next) {
        r->node[i].heard_at = r->node[i].gone_at = now;
        r->node[i].deadline = now + r->config.lease_ms;
    }
    membership_table_rebuild(r);
    if (r->state == JOB_RUNNING || r->state == JOB_STOPPING)
        restore_places(r);
}

void membership_sane(const struct membership *r)
{
    membership_table_sane(r);
    assert(r->state < JOB_STATE_COUNT);
    assert(r->restarts <= r->config.max_restarts);
    assert(r->state != JOB_RUNNING || (r->epoch > 0 && r->tally.active > 0));
    assert(r->state != JOB_STOPPING || r->tally.active + r->tally.finished > 0);
    assert(r->state != JOB_FORMING || r->tally.active + r->tally.finished == 0);
    assert(r->state != JOB_DONE || (r->reason != JOB_REASON_NONE && r->ending));
}
