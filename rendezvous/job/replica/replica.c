/* SPDX-License-Identifier: MIT */
#ifdef CRUN_RAFT
#include "rendezvous/job/replica/replica.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/wire.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/replica/raft_memory.h"
#include "rendezvous/job/replica/raft_message.h"

/*
 * Each call of the library may leave requests behind: replica_settle answers them, and
 * looks at what has changed, before anything else happens. So a new leader has added
 * its first entry before it counts a single answer, and never takes entries of an
 * earlier term for lasting because they are on a majority (Raft, figure 8).
 *
 * The versions of the library differ in when they call back. So no request of this file
 * has a callback: how far a replica is, what has been applied tells.
 */
#define TICKS_PER_ELECTION 5
#define STAMP_SIZE 24     /* of a message: its times, and the pair's number */
#define ALONE_ELECTIONS 3 /* of a pair: the silence after which one goes on alone */
#define HURRY_MS 20       /* between two attempts to replace a leader that is gone */
#define HURRY_TURN 5      /* attempts before the next replica in line makes one, too */
#define HURRY_MAX 20
#define TRAILING 64 /* proposals that are kept for a replica that lags a little */

struct contact {
    uint64_t id;
    uint64_t proven_ms; /* it has answered what was sent then */
    uint64_t heard_ms;  /* its last answer has come */
    uint64_t its_ms;    /* when it has sent that, by its clock */
    raft_index matches; /* so many entries, by an answer */
    uint64_t leaves_ms; /* since when it shall lose its vote; 0: it shall not */
};

/* The library has it until its entry is applied, or it leads no more. */
struct proposal {
    STAILQ_ENTRY(proposal) entry;
    raft_index index;
    struct raft_apply apply;
};

struct replica {
    struct replica_config config;
    struct raft raft;
    struct raft_memory memory;
    struct raft_fsm fsm;
    uint8_t *records;
    size_t size, room;
    STAILQ_HEAD(, proposal) proposals; /* that do not last yet */
    bool led, leads;      /* as of the last look; all earlier records last */
    raft_index first_own; /* its first entry as a leader */
    raft_index told;      /* whoever has this one knows the list; 0: it is not there */
    uint64_t since_ms;    /* when it began to lead */
    raft_index matched;   /* the last entry of the message that is answered */
    uint64_t asked_ms;    /* when its sender has sent that, by the sender's clock */
    uint64_t tick_ms;
    uint64_t gone; /* a leader whose process is gone; 0: none */
    uint64_t hurry_ms;
    unsigned hurries;
    /* Its pair: as a leader, since when the other one has all that lasts; else until
     * when the leader has promised not to go on alone, by this clock. */
    struct replica_pair pair;
    uint64_t pair_since_ms, pairs;
    uint64_t forsaken; /* a leader that this one has gone on without */
    struct contact contact[REPLICAS_MAX];
    struct raft_change change;
    struct raft_barrier barrier;
};

bool replica_is_built(void)
{
    return true;
}

/* -- the library's calls ---------------------------------------------------------- */

static int on_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
    struct replica *r = fsm->data;

    if (r->room - r->size < buf->len) {
        r->room = 2 * (r->size + buf->len);
        r->records = xrealloc(r->records, r->room);
    }
    if (buf->len > 0)
        memcpy(r->records + r->size, buf->base, buf->len);
    r->size += buf->len;
    *result = NULL;
    return 0;
}

void replica_keep_compact(struct replica *r, const void *records, size_t size)
{
    uint8_t *copy = xmemdup(records, size); /* it may be a part of them */

    free(r->records);
    r->records = copy;
    r->size = r->room = size;
}

static int on_snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n)
{
    struct replica *r = fsm->data;

    r->config.compact(r->config.arg, r->records, r->size);
    *bufs = raft_calloc(1, sizeof(**bufs));
    if (!*bufs || !((*bufs)->base = raft_malloc(r->size + 1)))
        abort();
    if (r->size > 0)
        memcpy((*bufs)->base, r->records, r->size);
    (*bufs)->len = r->size;
    *n = 1;
    return 0;
}

static int on_restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
    struct replica *r = fsm->data;
    void *result;

    r->size = 0;
    on_apply(fsm, buf, &result);
    raft_free(buf->base);
    return 0;
}

static bool replica_is_leader(const struct replica *r)
{
    return r->raft.state == RAFT_LEADER;
}

/* A new one has an empty place, else that of the one that was heard of least recently.
 */
static struct contact *contact_of(struct replica *r, uint64_t id, bool make)
{
    struct contact *c = &r->contact[0];

    for (unsigned i = 0; i < REPLICAS_MAX; i++)
        if (r->contact[i].id == id)
            return &r->contact[i];
        else if (c->id && (!r->contact[i].id || r->contact[i].proven_ms < c->proven_ms))
            c = &r->contact[i];
    if (!make)
        return NULL;
    *c = (struct contact){ .id = id };
    return c;
}

/*
 * Up to version 0.19 the library answers entries with its own last one, which another
 * leader may have sent: this leader would take that for its own. So the answer is at
 * most the last entry that is known to match. Version 0.22 may send a snapshot with the
 * term of an older one.
 */
static void on_send(void *arg, const struct raft_message *message)
{
    struct replica *r = arg;
    struct raft_message copy = *message, *m = &copy;
    const struct contact *c = contact_of(r, m->server_id, true);
    struct wire_out stamped = { .used = 0 };
    size_t size;
    uint8_t *data;

    if ((int)m->type == RAFT_MESSAGE_APPENDED &&
        m->append_entries_result.rejected == 0 &&
        m->append_entries_result.last_log_index > r->matched)
        m->append_entries_result.last_log_index = r->matched;
    if ((int)m->type == RAFT_MESSAGE_SNAPSHOT && r->memory.snapshot)
        m->install_snapshot.last_term = r->memory.snapshot->term;
    data = raft_message_encode(m, r->raft.id, r->raft.address, &size);
    stamped.start = xmalloc(stamped.size = size + STAMP_SIZE);
    wire_put_u64(&stamped, r->memory.now_ms);
    wire_put_u64(&stamped,
                 (int)m->type == RAFT_MESSAGE_APPENDED ? r->asked_ms : c->its_ms);
    wire_put_u64(&stamped,
                 replica_is_leader(r) && r->pair.with == c->id ? r->pair.id : 0);
    wire_put_bytes(&stamped, data, size);
    r->config.send(r->config.arg, m->server_id, m->server_address, stamped.start,
                   stamped.used);
    free(stamped.start);
    free(data);
}

/* -- after each call -------------------------------------------------------------- */

/* All entries before its own first one last when that does. */
static void replica_begin_to_lead(struct replica *r)
{
    for (unsigned i = 0; i < REPLICAS_MAX; i++)
        r->contact[i] = (struct contact){ .id = r->contact[i].id };
    r->pair = (struct replica_pair){ .id = 0 };
    r->first_own = r->told = 0;
    r->since_ms = r->memory.now_ms;
    if (raft_barrier(&r->raft, &r->barrier, NULL) == 0)
        r->first_own = raft_last_index(&r->raft);
}

static void replica_end_proposals(struct replica *r, raft_index last)
{
    struct proposal *p;

    while ((p = STAILQ_FIRST(&r->proposals)) && p->index <= last) {
        STAILQ_REMOVE_HEAD(&r->proposals, entry);
        free(p);
    }
}

static const struct raft_server *server_of(const struct replica *r, uint64_t id)
{
    const struct raft_configuration *c = &r->raft.configuration;

    for (unsigned i = 0; i < c->n; i++)
        if (c->servers[i].id == id)
            return &c->servers[i];
    return NULL;
}

/* It has all that this leader has, as of a moment ago. */
static bool replica_has_all(const struct replica *r, uint64_t id, uint64_t now_ms)
{
    const struct contact *c = contact_of((struct replica *)r, id, false);

    return c && c->matches >= raft_last_index((struct raft *)&r->raft) &&
           now_ms < c->proven_ms + r->config.election_ms;
}

/* A leader whose only other replica has no vote decides what that one has, too. Once it
 * votes, a majority does as much. */
static void replica_look_at_pair(struct replica *r)
{
    const struct raft_configuration *c = &r->raft.configuration;
    const struct raft_server *other;

    if (!r->leads || r->raft.configuration_uncommitted_index != 0)
        return;
    if (r->pair.id) {
        other = server_of(r, r->pair.with);
        if (!other || other->role == RAFT_VOTER)
            r->pair = (struct replica_pair){ .id = 0 };
        return;
    }
    if (c->n != 2)
        return;
    other = &c->servers[c->servers[0].id == r->raft.id];
    if (other->role == RAFT_VOTER || !replica_has_all(r, other->id, r->memory.now_ms))
        return;
    r->pair = (struct replica_pair){ .id = r->config.id + ++r->pairs,
                                     .with = other->id };
    r->pair_since_ms = r->memory.now_ms;
}

/* An entry after a change of the list that lasts: the others learn at once that it
 * does, one that has lost its vote too. */
static void replica_tell_list(struct replica *r)
{
    if (replica_is_changing(r))
        r->told = 0;
    else if (r->leads && r->told == 0) {
        r->told = raft_last_index(&r->raft) + 1;
        replica_propose(r, "", 0, r->memory.now_ms);
    }
}

static void replica_settle(struct replica *r)
{
    do {
        if (replica_is_leader(r) && !r->led) {
            r->led = true;
            replica_begin_to_lead(r);
        } else if (!replica_is_leader(r)) {
            r->led = false;
            replica_end_proposals(r, UINT64_MAX);
        }
    } while (raft_memory_answer(&r->memory));
    replica_end_proposals(r, r->raft.last_applied);
    r->leads = r->led && r->first_own && r->raft.last_applied >= r->first_own;
    replica_tell_list(r);
    replica_look_at_pair(r);
    if (replica_leader(r) && replica_leader(r) != r->gone)
        r->gone = 0;
    r->config.changed(r->config.arg);
}

static uint64_t replica_alone_ms(const struct replica *r)
{
    return (uint64_t)ALONE_ELECTIONS * r->config.election_ms;
}

static void replica_set_now(struct replica *r, uint64_t now_ms)
{
    if (now_ms > r->memory.now_ms)
        r->memory.now_ms = now_ms;
}

/* -- time ------------------------------------------------------------------------- */

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
    struct contact *c = contact_of(r, id, false);

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

/* -- messages --------------------------------------------------------------------- */

/* False: it was overtaken by a later one, which the library does not always notice. */
static bool take_answer(struct replica *r, const struct raft_message *m,
                        uint64_t its_ms, uint64_t asked_ms)
{
    const struct raft_append_entries_result *a = &m->append_entries_result;
    struct contact *c = contact_of(r, m->server_id, false);

    if (!c || a->term != r->raft.current_term || !replica_is_leader(r))
        return true;
    c->heard_ms = r->memory.now_ms;
    c->its_ms = its_ms;
    if (asked_ms > c->proven_ms && asked_ms <= r->memory.now_ms)
        c->proven_ms = asked_ms;
    if (a->rejected > 0)
        return a->rejected > c->matches && a->last_log_index >= c->matches;
    if (a->last_log_index > c->matches)
        c->matches = a->last_log_index;
    return true;
}

/* Version 0.22 would take back what lasts, if this message was overtaken. */
static void take_entries(struct replica *r, struct raft_append_entries *a)
{
    r->matched = a->prev_log_index + a->n_entries;
    if (r->matched < r->raft.commit_index && a->leader_commit > r->raft.commit_index)
        a->leader_commit = r->raft.commit_index;
}

/* False: it was overtaken, and the library would forget what came since. */
static bool take_snapshot(struct replica *r, struct raft_install_snapshot *s)
{
    r->matched = s->last_index;
    if (s->last_index > r->raft.last_applied)
        return true;
    raft_configuration_close(&s->conf);
    raft_free(s->data.base);
    return false;
}

/* The leader has sent it after it has heard what was sent at heard_ms: it does not go
 * on alone for a while after that. */
static void take_pair(struct replica *r, uint64_t from, uint64_t id, uint64_t heard_ms)
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

void replica_receive(struct replica *r, const void *data, size_t size, uint64_t now_ms)
{
    char address[REPLICA_ADDRESS_SIZE];
    struct wire_in in = { .next = data, .left = size }, head;
    uint64_t its_ms = wire_get_u64(&in), own_ms = wire_get_u64(&in);
    uint64_t pair = wire_get_u64(&in), from;
    struct raft_message m;
    bool good = true;

    head = in;
    from = wire_get_u64(&head);
    if (head.bad || (r->forsaken && from == r->forsaken) ||
        raft_message_decode(in.next, in.left, &m, address) < 0)
        return;
    replica_set_now(r, now_ms);
    if ((int)m.type == RAFT_MESSAGE_APPENDED)
        good = take_answer(r, &m, its_ms, own_ms);
    else
        r->asked_ms = its_ms;
    if ((int)m.type == RAFT_MESSAGE_APPEND)
        take_entries(r, &m.append_entries);
    else if ((int)m.type == RAFT_MESSAGE_SNAPSHOT)
        good = take_snapshot(r, &m.install_snapshot);
    if (good)
        r->memory.receive(&r->memory.io, &m);
    if ((int)m.type == RAFT_MESSAGE_APPEND || (int)m.type == RAFT_MESSAGE_SNAPSHOT)
        take_pair(r, from, pair, own_ms);
    replica_settle(r);
}

/* -- leading ---------------------------------------------------------------------- */

bool replica_leads(const struct replica *r)
{
    return replica_is_leader(r) && r->leads;
}

uint64_t replica_leader(const struct replica *r)
{
    if (replica_is_leader(r))
        return r->raft.id;
    return r->raft.state == RAFT_FOLLOWER ? r->raft.follower_state.current_leader.id
                                          : 0;
}

uint64_t replica_term(const struct replica *r)
{
    return r->raft.current_term;
}

void replica_propose(struct replica *r, const void *data, size_t size, uint64_t now_ms)
{
    struct proposal *p = xcalloc(1, sizeof(*p));
    struct raft_buffer buf = { .base = raft_malloc(size), .len = size };

    if (!buf.base)
        abort();
    memcpy(buf.base, data, size);
    replica_set_now(r, now_ms);
    if (raft_apply(&r->raft, &p->apply, &buf, 1, NULL) == 0) {
        p->index = raft_last_index(&r->raft);
        STAILQ_INSERT_TAIL(&r->proposals, p, entry);
    } else { /* it leads no more, or cannot: what follows shall not last either */
        raft_free(buf.base);
        free(p);
        r->first_own = 0;
    }
    replica_settle(r);
}

/* When the k-th newest of the voters' proofs was, where k makes a majority, and `more`
 * besides. The voters are those of the list once `changed` votes or not; 0: of the list
 * as it is. One that is to vote, the library waits for itself. */
static uint64_t replica_proven_ms(const struct replica *r, uint64_t changed, bool votes,
                                  unsigned more, uint64_t now_ms)
{
    const struct raft_configuration *c = &r->raft.configuration;
    uint64_t proven[REPLICA_SERVERS_MAX];
    unsigned n = 0;

    for (unsigned i = 0; i < c->n && n < REPLICA_SERVERS_MAX; i++) {
        uint64_t id = c->servers[i].id;
        const struct contact *k = contact_of((struct replica *)r, id, false);
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
    const struct contact *c = contact_of((struct replica *)r, r->pair.with, false);

    if (r->pair.id)
        proven_ms = c ? c->proven_ms : 0;
    return replica_leads(r) && now_ms < proven_ms + r->config.election_ms;
}

bool replica_is_settled(const struct replica *r, uint64_t now_ms)
{
    return STAILQ_EMPTY(&r->proposals) && replica_is_heard(r, now_ms) &&
           (!r->pair.id || replica_has_all(r, r->pair.with, now_ms));
}

const uint8_t *replica_records(const struct replica *r, size_t *size)
{
    *size = r->size;
    return r->records;
}

/* -- a pair ----------------------------------------------------------------------- */

bool replica_pair(const struct replica *r, struct replica_pair *p)
{
    const struct contact *c = contact_of((struct replica *)r, r->pair.with, false);
    const struct raft_server *own = server_of(r, r->raft.id);

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
    struct contact *with = contact_of(r, r->pair.with, false);

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

/* -- the list --------------------------------------------------------------------- */

bool replica_is_changing(const struct replica *r)
{
    return r->raft.configuration_uncommitted_index != 0 ||
           r->raft.leader_state.promotee_id != 0;
}

bool replica_is_needed(const struct replica *r)
{
    const struct raft_server *own = server_of(r, r->raft.id);

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
    const struct contact *k = contact_of((struct replica *)r, s->id, false);

    m->id = s->id;
    m->votes = s->role == RAFT_VOTER;
    m->keeps = s->role != RAFT_SPARE;
    m->follows = k && k->matches >= r->raft.last_applied &&
                 r->memory.now_ms < k->heard_ms + r->config.election_ms;
    snprintf(m->address, sizeof(m->address), "%s", s->address);
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
    return replica_changed_list(r, raft_add(&r->raft, &r->change, id, address, NULL));
}

/* Whoever loses its vote answers: those that are left must have answered since then, or
 * its vote may be the one that is missed. */
int replica_set_vote(struct replica *r, uint64_t id, bool votes, uint64_t now_ms)
{
    const struct raft_server *s = server_of(r, id);
    struct contact *c = contact_of(r, id, true);
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
    const struct raft_server *s = server_of(r, id);
    const struct contact *k = contact_of(r, id, false);
    uint64_t heard_ms = k && k->heard_ms > r->since_ms ? k->heard_ms : r->since_ms;
    uint64_t proven_ms = replica_proven_ms(r, id, false, 1, now_ms);
    bool answers = now_ms < heard_ms + r->config.election_ms;

    if (!replica_may_change(r, id, false, now_ms) ||
        (r->pair.id && r->pair.with == id) ||
        (answers && s && s->role == RAFT_VOTER &&
         now_ms >= proven_ms + r->config.election_ms) ||
        (answers && s && s->role == RAFT_STANDBY && k && k->matches < r->told))
        return -1;
    return replica_changed_list(r, raft_remove(&r->raft, &r->change, id, NULL));
}

/* -- life ------------------------------------------------------------------------- */

static int replica_found(struct replica *r)
{
    struct raft_configuration alone;
    int rv;

    raft_configuration_init(&alone);
    rv = raft_configuration_add(&alone, r->config.id, r->config.address, RAFT_VOTER);
    if (rv == 0)
        rv = raft_bootstrap(&r->raft, &alone);
    raft_configuration_close(&alone);
    return rv;
}

struct replica *replica_create(const struct replica_config *config, uint64_t now_ms,
                               struct err *e)
{
    struct replica *r = xcalloc(1, sizeof(*r));
    int rv;

    r->config = *config;
    r->fsm = (struct raft_fsm){ .version = 1,
                                .data = r,
                                .apply = on_apply,
                                .snapshot = on_snapshot,
                                .restore = on_restore };
    STAILQ_INIT(&r->proposals);
    raft_memory_init(&r->memory, config->seed, on_send, r);
    r->memory.now_ms = now_ms;
    rv = raft_init(&r->raft, &r->memory.io, &r->fsm, config->id, config->address);
    if (rv != 0) {
        free(r);
        err_set(e, "libraft: %s", raft_strerror(rv));
        return NULL;
    }
    raft_set_election_timeout(&r->raft, config->election_ms);
    raft_set_heartbeat_timeout(&r->raft, config->election_ms / TICKS_PER_ELECTION);
    raft_set_snapshot_threshold(&r->raft, config->compact_after);
    raft_set_snapshot_trailing(&r->raft, TRAILING);
    /* one that does not follow becomes no voter: it stops no other change */
    raft_set_max_catch_up_round_duration(&r->raft, config->election_ms);
    raft_set_pre_vote(&r->raft, true);
#ifdef RAFT_VERSION_NUMBER
    raft_set_capacity_threshold(&r->raft, 0); /* there is no disk that could be full */
#endif
    if (config->founds)
        rv = replica_found(r);
    if (rv == 0)
        rv = raft_start(&r->raft);
    if (rv != 0) {
        err_set(e, "libraft: %s", raft_strerror(rv));
        replica_destroy(r);
        return NULL;
    }
    r->tick_ms = now_ms;
    return r;
}

static void on_closed(struct raft *raft)
{
}

void replica_destroy(struct replica *r)
{
    if (!r)
        return;
    raft_close(&r->raft, on_closed);
    replica_end_proposals(r, UINT64_MAX);
    raft_memory_fini(&r->memory);
    free(r->records);
    free(r);
}

#endif
