/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/membership/membership.h"

#include <assert.h>

#include "rendezvous/job/membership/membership_internal.h"
#include "rendezvous/job/membership/membership_quarantine.h"

/* A step: admit the event, advance the time, handle the event, settle the state. */
#define SCAN_MS_MIN 20
#define SCAN_MS_MAX 500
#define SCAN_MS_DISCONNECTED 50

static uint32_t membership_scan_ms(const struct membership *m)
{
    uint32_t ms = m->config.lease_ms / 30;

    if (ms > SCAN_MS_MAX)
        ms = SCAN_MS_MAX;
    if (m->tally.disconnected > 0 && ms > SCAN_MS_DISCONNECTED)
        ms = SCAN_MS_DISCONNECTED;
    return ms < SCAN_MS_MIN ? SCAN_MS_MIN : ms;
}

/* Time in which the owner did not run is not counted against any node. */
static void credit_stall(struct membership *m, uint64_t now)
{
    uint64_t gap = now > m->clock.now ? now - m->clock.now : 0;

    /* a longer gap must be credited: the shortest grace is two scans */
    if (gap > 2ull * membership_scan_ms(m) && m->tally.live > 0)
        m->clock.stalled += gap - membership_scan_ms(m);
    m->clock.now += gap;
}

enum membership_verdict membership_step(struct membership *m,
                                        const struct membership_event *ev, uint64_t now,
                                        const struct membership_sink *sink,
                                        uint32_t *node_out)
{
    struct step s = { .m = m,
                      .ev = ev,
                      .sink = sink,
                      .node_out = MEMBERSHIP_NONE,
                      .lost_member = MEMBERSHIP_NONE };
    membership_handler *fn = membership_handlers[m->state][ev->type];
    enum membership_verdict verdict;

    credit_stall(m, now);
    s.t = m->clock.now - m->clock.stalled;
    verdict = membership_admit(&s);
    if (verdict == MEMBERSHIP_OK)
        verdict = fn ? fn(&s) : MEMBERSHIP_IGNORED;
    membership_settle(&s);
    if (node_out)
        *node_out = s.node_out;
    return verdict;
}

uint64_t membership_next_tick(const struct membership *m)
{
    uint64_t next = m->clock.ticked_at + membership_scan_ms(m);
    uint64_t due = m->last_call_at;

    if (m->tally.live == 0 && m->state == JOB_DONE)
        return UINT64_MAX;
    if (m->state == JOB_FORMING && membership_backoff_ms(m) > 0)
        due = m->state_since + membership_backoff_ms(m);
    if (m->stop.blame_until > 0)
        due = m->stop.blame_until;
    due += due ? m->clock.stalled : 0;
    return due < next && due > m->clock.ticked_at ? due : next;
}

static uint64_t left_while_forming(const struct membership *m, uint64_t end,
                                   uint64_t now)
{
    end += m->clock.stalled;
    return m->state == JOB_FORMING && end > now ? end - now : 0;
}

uint64_t membership_backoff_left(const struct membership *m, uint64_t now)
{
    return left_while_forming(m, m->state_since + membership_backoff_ms(m), now);
}

uint64_t membership_time_left(const struct membership *m, uint64_t now)
{
    if (m->last_call_at)
        return left_while_forming(m, m->last_call_at, now);
    return left_while_forming(m, membership_join_deadline(m), now);
}

bool membership_gave_up(const struct membership *m)
{
    return m->stop.exit_code == EXIT_CODE_NOT_FORMED &&
           (m->stop.reason == JOB_REASON_NOT_FORMED ||
            m->stop.reason == JOB_REASON_LOST);
}

uint32_t membership_present(const struct membership *m)
{
    return m->tally.here + m->tally.away;
}

void membership_init(struct membership *m, const struct job_config *config,
                     const struct id128 *instance,
                     const struct membership_memory *memory, uint64_t now)
{
    *m = (struct membership){
        .config = *config,
        .reconnect_grace_ms = membership_reconnect_grace(config),
        .instance = *instance,
        .node = memory->node,
        .capacity = memory->capacity,
        .slot_node = memory->slot_node,
        .bucket = memory->bucket,
        .bucket_key = { memory->bucket_key[0], memory->bucket_key[1] },
        .slot_identity = memory->slot_identity,
        .leader = MEMBERSHIP_NONE,
        .stop.root.node = MEMBERSHIP_NONE,
        .conflict = MEMBERSHIP_NONE,
        .clock.now = now,
        .clock.ticked_at = now,
        .state_since = now,
    };
    time_spent_begin(&m->time, now);
    membership_table_init(m);
}

void membership_restore_node(struct membership *m, uint32_t index,
                             const struct membership_node *saved)
{
    struct membership_node n = *saved;

    n.connected = n.started = n.checkpointed = false;
    n.quarantined = membership_past_is_quarantined(m, n.identity);
    membership_table_put(m, index, &n);
}

/* Ranks are saved; members that have left since then are missing in the slots. */
static void restore_slots(struct membership *m)
{
    MEMBERSHIP_EACH(i, m) {
        struct membership_node *n = &m->node[i];

        if (membership_is_member(n) && n->slot < m->config.max_nodes)
            m->slot_node[n->slot] = i;
        else
            n->group_rank = MEMBERSHIP_NONE;
    }
}

/* A ledger of an older version is empty. */
static void restore_time(struct membership *m, uint64_t now)
{
    if (m->state == JOB_DONE)
        time_spent_ended(&m->time, now);
    else if (m->state == JOB_RUNNING && m->time.phase == JOB_PHASE_FORM) {
        time_spent_formed(&m->time, now);
        time_spent_started(&m->time, now);
    }
}

void membership_restored(struct membership *m, uint64_t now)
{
    restore_time(m, now);
    m->clock.now = m->clock.ticked_at = now;
    m->clock.stalled = 0;
    m->state_since = now;
    m->last_call_at = m->checkpoint.until = m->formed_at = 0;
    /* The order of failures and silences is lost: a node that does not come back may
     * have caused them. No node could report a cause. */
    if (m->stop.root.heard_at > 0)
        m->stop.root.heard_at = now;
    if (m->stop.blame_until > 0)
        m->stop.blame_until = membership_blame_end(m, now);
    MEMBERSHIP_EACH(i, m) {
        m->node[i].heard_at = m->node[i].gone_at = now;
        m->node[i].deadline = now + m->config.lease_ms;
    }
    membership_table_rebuild(m);
    if (m->state == JOB_STOPPING && m->tally.active + m->tally.finished == 0)
        m->stop.unknown_until = now +
                                m->config.lease_ms; /* only such a stop waits on */
    if (m->state == JOB_RUNNING || m->state == JOB_STOPPING)
        restore_slots(m);
}

/* However late it is, each node has a lease to come back. */
void membership_add_away(struct membership *m, uint64_t ms)
{
    uint64_t wait = membership_backoff_ms(m) + (uint64_t)m->config.join_timeout_ms;
    uint64_t most = wait > m->config.lease_ms ? wait - m->config.lease_ms : 0;

    time_spent_add_away(&m->time, ms);
    if (m->state != JOB_FORMING)
        m->waited_ms = 0;
    else if (m->waited_ms > most || ms > most - m->waited_ms)
        m->waited_ms = most;
    else
        m->waited_ms += ms;
}

void membership_renew_leases(struct membership *m, uint64_t now)
{
    credit_stall(m, now);
    MEMBERSHIP_EACH(i, m)
        m->node[i].deadline = m->clock.now - m->clock.stalled + m->config.lease_ms;
}

uint64_t membership_state_age(const struct membership *m, uint64_t now)
{
    return now - m->clock.stalled - m->state_since + m->waited_ms;
}

void membership_sane(const struct membership *m)
{
    membership_table_sane(m);
    assert(m->state < JOB_STATE_COUNT);
    assert(m->restarts <= m->config.max_restarts);
    assert(m->state != JOB_RUNNING || (m->epoch > 0 && m->tally.active > 0));
    assert(m->state != JOB_STOPPING || m->tally.active + m->tally.finished > 0 ||
           m->stop.unknown_until > 0);
    assert(m->state == JOB_RUNNING || m->stop.blame_until == 0);
    assert(m->state != JOB_FORMING || m->tally.active + m->tally.finished == 0);
    assert(m->state != JOB_DONE ||
           (m->stop.reason != JOB_REASON_NONE && m->stop.ending));
}
