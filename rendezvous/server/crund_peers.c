/* SPDX-License-Identifier: MIT */
/*
 * The records on the disks of several crunds (crund --peers). Each state directory has
 * an id of its own, so one that is new is another replica: it gets all records before
 * it votes, and takes the place of the one that was at its address. Twice a second each
 * of them says at the addresses of the others which one it is.
 *
 * The first of the list founds, alone, once all of them are new. It serves when all
 * have votes, and later leaders when a majority of the list has.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/wire.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/records/replica.h"
#include "rendezvous/server/limits.h"
#include "rendezvous/server/peer_list.h"
#include "rendezvous/server/replica_links.h"
#include "rendezvous/server/server_internal.h"
#include "rendezvous/server/server_keeping.h"

#define PEERS_BITS 3
#define PRESENCE 7 /* beside the numbers of the replicas' messages */

struct peer_state {
    uint64_t id, last; /* of its replica, and its last entry */
    uint64_t heard_ms;
    bool has_lost;
    char why[256]; /* it was not reached */
};

struct keeping_peers {
    const struct peers *all;
    char owner[sizeof(((struct peers *)0)->text) + NET_TEXT_SIZE + 8];
    struct peer_state state[PEERS_MAX + 1]; /* and of none */
    uint64_t announce_ms;
    uint64_t led_ms; /* another one, or this, was the leader last */
    bool said;       /* that none is */
};

struct keeping_peers *keeping_peers_create(const struct peers *all)
{
    struct keeping_peers *p = xcalloc(1, sizeof(*p));

    p->all = all;
    p->led_ms = clock_ms();
    snprintf(p->owner, sizeof(p->owner), "%s of %s", all->list[all->own].at, all->text);
    return p;
}

const char *keeping_peers_owner(const struct keeping_peers *p)
{
    return p->owner;
}

/* The list of replicas has no address twice: that of an earlier one differs. */
void peers_place(const struct peers *all, unsigned i, uint64_t id,
                 char text[REPLICA_ADDRESS_SIZE])
{
    snprintf(text, REPLICA_ADDRESS_SIZE, "%s %u %s", all->list[i].at,
             ((uint32_t)id << PEERS_BITS) | i, all->list[i].at);
}

/* Which one of the peers is there; their count: none. */
static unsigned peers_at(const struct peers *all, const char *place)
{
    struct place p;
    unsigned i = place_parse(place, &p) ? p.node & ((1u << PEERS_BITS) - 1)
                                        : all->count;

    return i < all->count ? i : all->count;
}

static bool peer_is_heard(const struct keeping_peers *p, unsigned i)
{
    return i != p->all->own && p->state[i].heard_ms &&
           clock_ms() - p->state[i].heard_ms < PEERS_HEARD_MS;
}

/* -- which ones are there -----------------------------------------------------------
 */

static void peers_send(struct keeping *k, unsigned to, const void *data, size_t size)
{
    if (to < k->peers->all->count)
        replica_links_send(k->links, to + 1, &k->peers->all->list[to].addr, data, size);
}

void keeping_peers_send(struct keeping *k, const char *place, const void *data,
                        size_t size)
{
    peers_send(k, peers_at(k->peers->all, place), data, size);
}

static void peers_announce(struct keeping *k)
{
    const struct peers *all = k->peers->all;
    uint8_t data[64 + NET_TEXT_SIZE];
    struct wire_out w = { .start = data, .size = sizeof(data) };

    for (unsigned i = 0; i < 3; i++)
        wire_put_u64(&w, 0);
    wire_put_u64(&w, k->id);
    wire_put_text(&w, all->list[all->own].at);
    wire_put_u8(&w, PRESENCE);
    wire_put_u64(&w, replica_last(k->replica));
    for (unsigned i = 0; i < all->count; i++)
        if (i != all->own)
            peers_send(k, i, data, w.used);
}

bool keeping_peers_take(struct keeping *k, const void *data, size_t size)
{
    const struct peers *all = k->peers->all;
    struct wire_in in = { .next = data, .left = size };
    struct peer_state now = { .heard_ms = clock_ms() }, *s;
    char at[NET_TEXT_SIZE];
    unsigned i = 0;

    for (unsigned n = 0; n < 3; n++)
        (void)wire_get_u64(&in);
    now.id = wire_get_u64(&in);
    wire_get_text(&in, at, sizeof(at));
    if (wire_get_u8(&in) != PRESENCE)
        return false;
    now.last = wire_get_u64(&in);
    while (i < all->count && strcmp(all->list[i].at, at) != 0)
        i++;
    if (in.bad || now.id == 0 || now.id == k->id || i == all->count || i == all->own)
        return true;
    s = &k->peers->state[i];
    if (*s->why)
        log_info("peer %s is there again", at);
    now.has_lost = replica_has_lost(k->replica, now.id, now.last);
    if (now.has_lost && !s->has_lost)
        log_warn("peer %s has lost records that it had, as with an old copy of its "
                 "state directory: it gets them before it votes again",
                 at);
    *s = now;
    return true;
}

void keeping_peers_lost(struct keeping *k, unsigned i, bool gone, const char *why)
{
    struct peer_state *s = &k->peers->state[i];

    why = *why ? why : "connection closed";
    if (strcmp(s->why, why) != 0)
        log_warn("peer %s: %s", k->peers->all->list[i].at, why);
    snprintf(s->why, sizeof(s->why), "%s", why);
    if (gone)
        replica_note_gone(k->replica, s->id, clock_ms());
}

/* -- the list -----------------------------------------------------------------------
 */

static bool peers_find(const struct keeping *k, uint64_t id, struct replica_member *m)
{
    for (unsigned i = 0; i < replica_count(k->replica); i++) {
        replica_show(k->replica, i, m);
        if (m->id == id)
            return true;
    }
    return false;
}

bool keeping_peers_misses(const struct keeping *k, const struct replica_member *m)
{
    unsigned i = peers_at(k->peers->all, m->address);

    return (k->peers->state[i].id && k->peers->state[i].id != m->id) ||
           replica_links_is_gone(k->links, i + 1);
}

/* One step of the replica at that address towards its vote. False: none is due. */
static bool peers_bring_in(struct keeping *k, unsigned i)
{
    uint64_t id = k->peers->state[i].id, now = clock_ms();
    char place[REPLICA_ADDRESS_SIZE];
    struct replica_member m;

    if (!peer_is_heard(k->peers, i))
        return false;
    peers_place(k->peers->all, i, id, place);
    if (!peers_find(k, id, &m))
        return replica_add(k->replica, id, place, now) == 0;
    if (k->peers->state[i].has_lost)
        return false;
    if (!m.keeps)
        return replica_set_vote(k->replica, id, false, now) == 0;
    return !m.votes && m.follows && replica_set_vote(k->replica, id, true, now) == 0;
}

/* Another one is at its address now, and votes; or it must begin anew. */
static bool peers_is_replaced(const struct keeping *k, const struct replica_member *m)
{
    const struct peers *all = k->peers->all;
    unsigned i = peers_at(all, m->address);
    const struct peer_state *s = &k->peers->state[i];
    struct replica_member other;

    if (m->id == k->id || i == all->count)
        return false;
    if (i == all->own)
        return true;
    return s->id == m->id ? s->has_lost : peers_find(k, s->id, &other) && other.votes;
}

void keeping_peers_change(struct keeping *k)
{
    struct replica_member m;

    for (unsigned i = 0; i < k->peers->all->count; i++)
        if (peers_bring_in(k, i))
            return;
    for (unsigned i = 0; i < replica_count(k->replica); i++) {
        replica_show(k->replica, i, &m);
        if (peers_is_replaced(k, &m) &&
            replica_remove(k->replica, m.id, clock_ms()) == 0)
            return;
    }
}

/* The first time all of them: a majority of two would outlive the loss of none. */
bool keeping_peers_suffice(const struct keeping *k)
{
    unsigned voters = 0;
    struct replica_member m;
    size_t size;

    for (unsigned i = 0; i < replica_count(k->replica); i++) {
        replica_show(k->replica, i, &m);
        voters += m.votes;
    }
    (void)replica_records(k->replica, &size);
    return size > 0 ? voters > k->peers->all->count / 2
                    : voters == k->peers->all->count;
}

/* -- from turn to turn ---------------------------------------------------------------
 */

static void peers_found(struct keeping *k)
{
    const struct peers *all = k->peers->all;
    char place[REPLICA_ADDRESS_SIZE];
    struct err e;

    if (all->own != 0 || replica_last(k->replica) > 0)
        return;
    for (unsigned i = 1; i < all->count; i++)
        if (!peer_is_heard(k->peers, i) || k->peers->state[i].last > 0)
            return;
    log_info("all peers are new: this one is the first to lead");
    peers_place(all, 0, k->id, place);
    replica_destroy(k->replica);
    k->replica = keeping_make_replica(k, k->id, place, true, &e);
    if (k->replica)
        return;
    k->server->failed = true;
    k->server->config.fatal(k->server->config.arg, e.text);
}

/* Why none leads. */
static void peers_say(struct keeping *k)
{
    const struct keeping_peers *p = k->peers;
    unsigned there = 1, blank = replica_last(k->replica) == 0;
    char missing[sizeof(p->all->text)] = "";

    for (unsigned i = 0; i < p->all->count; i++) {
        bool is_heard = peer_is_heard(p, i);

        there += is_heard;
        blank += is_heard && p->state[i].last == 0;
        if (!is_heard && i != p->all->own)
            snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing),
                     "%s%s", *missing ? ", " : "", p->all->list[i].at);
    }
    if (blank == there)
        log_warn("the first start waits for all peers: %s", missing);
    else if (blank > 0 && *missing == '\0')
        log_warn("%u of %u peers have new state directories: too many to go on "
                 "without the others",
                 blank, p->all->count);
    else
        log_warn("no peer leads: this one reaches %u of %u%s%s", there, p->all->count,
                 *missing ? ", not " : "", missing);
}

const char *keeping_peers_leader(const struct keeping *k)
{
    struct replica_member m;
    unsigned i = peers_find(k, replica_leader(k->replica), &m)
                     ? peers_at(k->peers->all, m.address)
                     : k->peers->all->count;

    return i < k->peers->all->count ? k->peers->all->list[i].at : NULL;
}

bool keeping_peers_look(struct keeping *k)
{
    struct keeping_peers *p = k->peers;
    const char *error = replica_error(k->replica);
    uint64_t now = clock_ms();

    if (error) {
        k->server->failed = true;
        k->server->config.fatal(k->server->config.arg, error);
        return true;
    }
    if (now >= p->announce_ms) {
        p->announce_ms = now + PEERS_ANNOUNCE_MS;
        peers_announce(k);
        peers_found(k);
    }
    if (k->serves || (replica_leader(k->replica) && !replica_leads(k->replica))) {
        p->led_ms = now;
        p->said = false;
    } else if (!p->said && now - p->led_ms > PEERS_LEADERLESS_MS) {
        p->said = true;
        peers_say(k);
    }
    return !p->said;
}
