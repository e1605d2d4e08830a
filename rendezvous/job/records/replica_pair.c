/* SPDX-License-Identifier: MIT */
#ifdef CRUN_RAFT
#include "rendezvous/job/records/replica.h"

#include <stdlib.h>

#include "rendezvous/job/records/replica_internal.h"

#define ALONE_ELECTIONS 3

uint64_t replica_alone_ms(const struct replica *r)
{
    return (uint64_t)ALONE_ELECTIONS * r->config.election_ms;
}

bool replica_has_all(const struct replica *r, uint64_t id, uint64_t now_ms)
{
    const struct contact *c = replica_contact((struct replica *)r, id, false);

    return c && c->matches >= raft_last_index((struct raft *)&r->raft) &&
           now_ms < c->proven_ms + r->config.election_ms;
}

/* A leader whose only other replica has no vote decides what that one has, too. Once it
 * votes, a majority does as much. */
void replica_look_at_pair(struct replica *r)
{
    const struct raft_configuration *c = &r->raft.configuration;
    const struct raft_server *other;

    if (!r->leads || r->raft.configuration_uncommitted_index != 0)
        return;
    if (r->pair.id) {
        other = replica_server(r, r->pair.with);
        if (!other || other->role == RAFT_VOTER)
            r->pair = (struct replica_pair){ .id = 0 };
        return;
    }
    if (c->n != 2)
        return;
    other = &c->servers[c->servers[0].id == r->raft.id];
    if (other->role == RAFT_VOTER || !replica_has_all(r, other->id, r->memory.now_ms))
        return;
    r->pair = (struct replica_pair){ .id = r->raft.id + ++r->pairs, .with = other->id };
    r->pair_since_ms = r->memory.now_ms;
}

/* The leader has sent it after it has heard what was sent at heard_ms: it does not go
 * on alone for a while after that. */
void replica_take_pair(struct replica *r, uint64_t from, uint64_t id, uint64_t heard_ms)
{
    struct replica_pair *p = &r->pair;
    uint64_t now = r->memory.now_ms, until = heard_ms + replica_alone_ms(r);

    if (r->raft.state != RAFT_FOLLOWER || replica_leader(r) != from)
        return;
    if (p->id != id || p->with != from)
        *p = (struct replica_pair){ .id = id, .with = from };
    p->silent_ms = now + replica_alone_ms(r);
    if (heard_ms <= now && until > p->promised_ms)
        p->promised_ms = until;
}

bool replica_pair(const struct replica *r, struct replica_pair *p)
{
    const struct contact *c = replica_contact((struct replica *)r, r->pair.with, false);
    const struct raft_server *own = replica_server(r, r->raft.id);

    *p = r->pair;
    p->leads = replica_leads(r);
    if (!p->id || !own)
        return false;
    if (!p->leads) {
        p->known = true;
        return r->raft.state == RAFT_FOLLOWER && own->role != RAFT_VOTER;
    }
    p->known = c && c->proven_ms > r->pair_since_ms;
    p->silent_ms = replica_alone_ms(r) + (c && c->heard_ms > r->pair_since_ms
                                              ? c->heard_ms
                                              : r->pair_since_ms);
    return true;
}

/* What the former leader sends means nothing from then on: it may be of a later term.
 */
void replica_go_on_alone(struct replica *r, uint64_t now_ms)
{
    struct raft_configuration *c = &r->raft.configuration;
    struct contact *with = replica_contact(r, r->pair.with, false);

    replica_set_now(r, now_ms);
    if (with)
        with->proven_ms = 0;
    if (!replica_leads(r)) {
        r->forsaken = r->pair.with;
        raft_configuration_close(c);
        raft_configuration_init(c);
        if (raft_configuration_add(c, r->raft.id, r->raft.address, RAFT_VOTER) != 0)
            abort();
        r->raft.configuration_uncommitted_index = 0;
        r->raft.current_term++;
        r->raft.follower_state.current_leader.id = 0;
        raft_memory_skip(&r->memory, 2ull * r->config.election_ms);
    }
    r->pair = (struct replica_pair){ .id = 0 };
    r->memory.tick(&r->memory.io);
    replica_settle(r);
}
#endif
