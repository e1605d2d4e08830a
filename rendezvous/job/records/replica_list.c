/* SPDX-License-Identifier: MIT */
#ifdef CRUN_RAFT
#include "rendezvous/job/records/replica.h"

#include <stdio.h>

#include "rendezvous/job/records/replica_internal.h"

bool replica_is_changing(const struct replica *r)
{
    return r->raft.configuration_uncommitted_index != 0 ||
           r->raft.leader_state.promotee_id != 0;
}

bool replica_is_needed(const struct replica *r)
{
    const struct raft_server *own = replica_server(r, r->raft.id);

    return own &&
           (own->role == RAFT_VOTER || r->raft.configuration_uncommitted_index != 0);
}

unsigned replica_count(const struct replica *r)
{
    return r->raft.configuration.n;
}

void replica_show(const struct replica *r, unsigned at, struct replica_member *m)
{
    const struct raft_server *s = &r->raft.configuration.servers[at];
    const struct contact *k = replica_contact((struct replica *)r, s->id, false);

    m->id = s->id;
    m->votes = s->role == RAFT_VOTER;
    m->keeps = s->role != RAFT_SPARE;
    m->answers = k && !k->has_lost &&
                 r->memory.now_ms < k->heard_ms + r->config.election_ms;
    m->follows = m->answers && k->matches >= r->raft.last_applied;
    snprintf(m->address, sizeof(m->address), "%s", s->address);
}

bool replica_has_lost(struct replica *r, uint64_t id, uint64_t last)
{
    struct contact *k = replica_contact(r, id, false);

    if (!replica_leads(r) || !k)
        return false;
    k->has_lost |= k->matches > last;
    return k->has_lost;
}

static int replica_changed_list(struct replica *r, int status)
{
    replica_settle(r);
    return status == 0 ? 0 : -1;
}

/* A list counts from the moment on that the leader has added it. If those that are left
 * on it cannot make it last, none of them ever leads again. */
static bool replica_may_change(struct replica *r, uint64_t id, bool votes,
                               uint64_t now_ms)
{
    replica_set_now(r, now_ms);
    return replica_leads(r) && !replica_is_changing(r) &&
           now_ms < replica_proven_ms(r, id, votes, 0, now_ms) + r->config.election_ms;
}

int replica_add(struct replica *r, uint64_t id, const char *address, uint64_t now_ms)
{
    if (!replica_may_change(r, id, false, now_ms) || replica_count(r) >= REPLICAS_MAX)
        return -1;
    *replica_contact(r, id, true) = (struct contact){ .id = id };
    return replica_changed_list(r, raft_add(&r->raft, &r->change, id, address, NULL));
}

/* A replica that loses its vote still answers: those that are left must have answered
 * since then, or its vote may be the one that is missed. */
int replica_set_vote(struct replica *r, uint64_t id, bool votes, uint64_t now_ms)
{
    const struct raft_server *s = replica_server(r, id);
    struct contact *c = replica_contact(r, id, true);
    bool loses = s && s->role == RAFT_VOTER && !votes;

    if (!loses || !c->leaves_ms)
        c->leaves_ms = loses ? now_ms : 0;
    if (!replica_may_change(r, id, votes, now_ms) ||
        replica_proven_ms(r, id, votes, 0, now_ms) < c->leaves_ms)
        return -1;
    return replica_changed_list(
        r,
        raft_assign(&r->raft, &r->change, id, votes ? RAFT_VOTER : RAFT_STANDBY, NULL));
}

/* A voter that answers, be it late, may be needed: another one may have died a moment
 * ago. Unless those that are left can lose one. */
int replica_remove(struct replica *r, uint64_t id, uint64_t now_ms)
{
    const struct raft_server *s = replica_server(r, id);
    const struct contact *k = replica_contact(r, id, false);
    uint64_t heard_ms = k && k->heard_ms > r->since_ms ? k->heard_ms : r->since_ms;
    uint64_t proven_ms = replica_proven_ms(r, id, false, 1, now_ms);
    bool answers = now_ms < heard_ms + r->config.election_ms;

    if (!replica_may_change(r, id, false, now_ms) ||
        (r->pair.id && r->pair.with == id) ||
        (answers && s && s->role == RAFT_VOTER &&
         now_ms >= proven_ms + r->config.election_ms) ||
        (answers && s && s->role == RAFT_STANDBY && k && k->matches < r->confirmed))
        return -1;
    return replica_changed_list(r, raft_remove(&r->raft, &r->change, id, NULL));
}
#endif
