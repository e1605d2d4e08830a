/* SPDX-License-Identifier: MIT */
/* When a replica tries to lead: in its time, or as soon as the leader's process is
 * gone. */
#ifdef CRUN_RAFT
#include "rendezvous/job/records/replica.h"

#include "rendezvous/job/records/replica_internal.h"

#define HURRY_MS 20  /* between two attempts to replace a leader that is gone */
#define HURRY_TURN 5 /* attempts before the next replica in line makes one, too */
#define HURRY_MAX 20

/* Its place among the voters that are left: they try in turn. */
static unsigned replica_place(const struct replica *r)
{
    const struct raft_configuration *c = &r->raft.configuration;
    unsigned place = 0;

    for (unsigned i = 0; i < c->n && c->servers[i].id != r->raft.id; i++)
        place += c->servers[i].role == RAFT_VOTER && c->servers[i].id != r->gone;
    return place;
}

static void replica_hurry(struct replica *r)
{
    r->hurry_ms = r->memory.now_ms + HURRY_MS;
    if (r->hurries > HURRY_MAX) /* it cannot win, and must not disturb one that can */
        r->gone = 0;
    if (replica_is_leader(r) || r->hurries++ < replica_place(r) * HURRY_TURN)
        return;
    raft_memory_skip(&r->memory, 2ull * r->config.election_ms);
    r->memory.tick(&r->memory.io);
}

void replica_tick(struct replica *r, uint64_t now_ms)
{
    replica_set_now(r, now_ms);
    if (r->gone && now_ms >= r->hurry_ms)
        replica_hurry(r);
    if (now_ms > r->tick_ms + r->config.election_ms) { /* it was stopped */
        r->pair_since_ms = now_ms;
        r->pair.silent_ms = now_ms + replica_alone_ms(r);
    }
    if (now_ms >= r->tick_ms) {
        r->tick_ms = now_ms + r->config.election_ms / TICKS_PER_ELECTION;
        r->memory.tick(&r->memory.io);
    }
    replica_settle(r);
}

uint64_t replica_next_tick(const struct replica *r)
{
    return r->gone && r->hurry_ms < r->tick_ms ? r->hurry_ms : r->tick_ms;
}

/* Its own vote, and that of this one, elect another leader; should it live, the others
 * hear from it and do not vote. */
void replica_note_gone(struct replica *r, uint64_t id, uint64_t now_ms)
{
    struct contact *c = replica_contact(r, id, false);

    if (id != 0 && c)
        c->proven_ms = 0;
    replica_set_now(r, now_ms);
    if (r->raft.state != RAFT_FOLLOWER || id == 0 || replica_leader(r) != id)
        return;
    r->raft.follower_state.current_leader.id = 0;
    r->gone = id;
    r->hurries = 0;
    replica_hurry(r);
    replica_settle(r);
}
#endif
