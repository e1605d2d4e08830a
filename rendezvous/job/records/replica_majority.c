/* SPDX-License-Identifier: MIT */
/* Whether a majority has heard from the leader, and what lasts because of that. */
#ifdef CRUN_RAFT
#include "rendezvous/job/records/replica.h"

#include "rendezvous/job/records/replica_internal.h"

uint64_t replica_proven_ms(const struct replica *r, uint64_t changed, bool votes,
                           unsigned more, uint64_t now_ms)
{
    const struct raft_configuration *c = &r->raft.configuration;
    uint64_t proven[REPLICA_SERVERS_MAX];
    unsigned n = 0;

    for (unsigned i = 0; i < c->n && n < REPLICA_SERVERS_MAX; i++) {
        uint64_t id = c->servers[i].id;
        const struct contact *k = replica_contact((struct replica *)r, id, false);
        uint64_t at = id == r->raft.id || id == changed ? now_ms : k ? k->proven_ms : 0;
        unsigned to = n;

        if (id == changed ? !votes : c->servers[i].role != RAFT_VOTER)
            continue;
        for (; to > 0 && proven[to - 1] < at; to--)
            proven[to] = proven[to - 1];
        proven[to] = at;
        n++;
    }
    return n > n / 2 + more ? proven[n / 2 + more] : 0;
}

bool replica_is_heard(const struct replica *r, uint64_t now_ms)
{
    uint64_t proven_ms = replica_proven_ms(r, 0, false, 0, now_ms);
    const struct contact *c = replica_contact((struct replica *)r, r->pair.with, false);

    if (r->pair.id)
        proven_ms = c ? c->proven_ms : 0;
    return replica_leads(r) && now_ms < proven_ms + r->config.election_ms;
}

bool replica_is_settled(const struct replica *r, uint64_t now_ms)
{
    return STAILQ_EMPTY(&r->proposals) && replica_is_heard(r, now_ms) &&
           (!r->pair.id || replica_has_all(r, r->pair.with, now_ms));
}
#endif
