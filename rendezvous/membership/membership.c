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
} rules[ROUND_EV_COUNT] = {
    [ROUND_EV_RESUME] = { true, false, true },
    [ROUND_EV_DISCONNECT] = { true, false, false },
    [ROUND_EV_HEARTBEAT] = { true, false, true },
    [ROUND_EV_STORE_READY] = { true, true, true },
    [ROUND_EV_FAILED] = { true, true, true },
    [ROUND_EV_FINISHED] = { true, true, true },
    [ROUND_EV_STOPPED] = { true, true, true },
    [ROUND_EV_CHECKPOINTED] = { true, true, true },
    [ROUND_EV_LEAVE] = { true, false, true },
    [ROUND_EV_DRAIN] = { true, false, false },
    [ROUND_EV_BYE] = { true, false, true },
};

static enum round_verdict admit(struct step *s)
{
    const struct round_event *ev = s->ev;
    struct round *r = s->r;

    if (!rules[ev->type].from_node)
        return ROUND_OK;
    if (ev->node >= r->used || r->node[ev->node].state == ROUND_NODE_FREE ||
        !id128_equal(&r->node[ev->node].incarnation, &ev->incarnation))
        return ROUND_FENCED;
    s->node = &r->node[ev->node];
    if (rules[ev->type].is_sign && s->node->connected)
        round_hear(s, s->node);
    if (rules[ev->type].of_epoch && ev->epoch != r->epoch)
        return ROUND_STALE;
    return ROUND_OK;
}

static uint32_t scan_ms(const struct round *r)
{
    uint32_t ms = r->config.lease_ms / 30;

    if (ms > SCAN_MS_MAX)
        ms = SCAN_MS_MAX;
    if (r->tally.disconnected > 0 && ms > SCAN_MS_DISCONNECTED)
        ms = SCAN_MS_DISCONNECTED;
    return ms < SCAN_MS_MIN ? SCAN_MS_MIN : ms;
}

/* Time in which we should have been stepped and were not counts for nobody. */
static void credit_stall(struct round *r, uint64_t now)
{
    uint64_t gap = now > r->last_now ? now - r->last_now : 0;

    /* no longer gap may go uncredited: the shortest grace is two scans */
    if (gap > 2ull * scan_ms(r) && r->tally.live > 0)
        r->stalled += gap - scan_ms(r);
    r->last_now += gap;
}

enum round_verdict round_step(struct round *r, const struct round_event *ev,
                              uint64_t now, const struct round_sink *sink,
                              uint32_t *node_out)
{
    struct step s = { .r = r,
                      .ev = ev,
                      .sink = sink,
                      .node_out = ROUND_NONE,
                      .lost_member = ROUND_NONE };
    round_handler *fn = round_handlers[r->state][ev->type];
    enum round_verdict verdict;

    credit_stall(r, now);
    s.t = r->last_now - r->stalled;
    verdict = admit(&s);
    if (verdict == ROUND_OK)
        verdict = fn ? fn(&s) : ROUND_IGNORED;
    round_settle(&s);
    if (node_out)
        *node_out = s.node_out;
    return verdict;
}

uint64_t round_next_tick(const struct round *r)
{
    uint64_t next = r->ticked_at + scan_ms(r);
    uint64_t due = r->last_call_at;

    if (r->tally.live == 0 && r->state == ROUND_DONE)
        return UINT64_MAX;
    if (r->state == ROUND_FORMING && round_backoff_ms(r) > 0)
        due = r->state_since + round_backoff_ms(r);
    due += due ? r->stalled : 0;
    return due < next && due > r->ticked_at ? due : next;
}

uint32_t round_backoff_ms(const struct round *r)
{
    uint64_t wait = RESTART_BACKOFF_FIRST_MS;

    if (r->cause != ROUND_CAUSE_FAILURE || r->crash_loop <= RESTARTS_AT_ONCE)
        return 0;
    for (uint32_t i = RESTARTS_AT_ONCE + 1;
         i < r->crash_loop && wait < r->config.backoff_ms; i++)
        wait *= 2;
    return wait < r->config.backoff_ms ? (uint32_t)wait : r->config.backoff_ms;
}

static uint64_t left(const struct round *r, uint64_t end, uint64_t now)
{
    end += r->stalled;
    return r->state == ROUND_FORMING && end > now ? end - now : 0;
}

uint64_t round_backoff_left(const struct round *r, uint64_t now)
{
    return left(r, r->state_since + round_backoff_ms(r), now);
}

uint64_t round_time_left(const struct round *r, uint64_t now)
{
    if (r->last_call_at)
        return left(r, r->last_call_at, now);
    return left(r, r->state_since + round_backoff_ms(r) + r->config.join_timeout_ms,
                now);
}

uint32_t round_present(const struct round *r)
{
    return r->tally.here + r->tally.away;
}

void round_init(struct round *r, const struct round_config *config,
                const struct id128 *instance, const struct round_memory *memory,
                uint64_t now)
{
    *r = (struct round){
        .config = *config,
        .instance = *instance,
        .node = memory->node,
        .capacity = memory->capacity,
        .slot_node = memory->slot_node,
        .bucket = memory->bucket,
        .slot_identity = memory->slot_identity,
        .leader = ROUND_NONE,
        .root_node = ROUND_NONE,
        .conflict = ROUND_NONE,
        .last_now = now,
        .ticked_at = now,
        .state_since = now,
    };
    round_table_init(r);
}

void round_restore_node(struct round *r, uint32_t index, const struct round_node *saved)
{
    struct round_node n = *saved;

    n.connected = n.started = n.checkpointed = false;
    n.quarantined = round_past_is_quarantined(r, n.identity);
    round_table_put(r, index, &n);
}

/* Ranks are saved: members that have gone since the start are missing in the slots. */
static void restore_places(struct round *r)
{
    for (uint32_t i = r->first; i != ROUND_NONE; i = r->node[i].next) {
        struct round_node *n = &r->node[i];

        if (round_is_member(n) && n->slot < r->config.max_nodes)
            r->slot_node[n->slot] = i;
        else
            n->group_rank = ROUND_NONE;
    }
}

void round_restored(struct round *r, uint64_t now)
{
    r->last_now = r->ticked_at = now;
    r->stalled = 0;
    r->state_since = now;
    r->last_call_at = r->checkpoint_at = r->formed_at = 0;
    r->root_heard_at = 0; /* what fell silent before what is not known any more */
    for (uint32_t i = r->first; i != ROUND_NONE; i = r->node[i].next) {
        r->node[i].heard_at = r->node[i].gone_at = now;
        r->node[i].deadline = now + r->config.lease_ms;
    }
    round_table_rebuild(r);
    if (r->state == ROUND_RUNNING || r->state == ROUND_STOPPING)
        restore_places(r);
}

void round_sane(const struct round *r)
{
    round_table_sane(r);
    assert(r->state < ROUND_STATE_COUNT);
    assert(r->restarts <= r->config.max_restarts);
    assert(r->state != ROUND_RUNNING || (r->epoch > 0 && r->tally.active > 0));
    assert(r->state != ROUND_STOPPING || r->tally.active + r->tally.finished > 0);
    assert(r->state != ROUND_FORMING || r->tally.active + r->tally.finished == 0);
    assert(r->state != ROUND_DONE || (r->reason != ROUND_REASON_NONE && r->ending));
}
