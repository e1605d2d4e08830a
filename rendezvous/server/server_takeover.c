/* SPDX-License-Identifier: MIT */
/*
 * The records of a rendezvous on other hosts: what happens when another one leads. The
 * consensus is the replica's (rendezvous/job/records), which nodes can be asked the
 * registry's.
 *
 * A server that stands by has an empty registry. It answers no HELLO before it leads.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/records/journal.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/server/limits.h"
#include "rendezvous/server/peer_list.h"
#include "rendezvous/server/replica_links.h"
#include "rendezvous/server/server_internal.h"
#include "rendezvous/server/server_keeping.h"
#include "rendezvous/wire/protocol/base64.h"

/* -- the other replicas ------------------------------------------------------------ */

static void on_replica_send(void *arg, uint64_t to, const char *address,
                            const void *data, size_t size)
{
    struct keeping *k = arg;
    struct net_addr addr;

    if (k->peers)
        keeping_peers_send(k, address, data, size);
    else if (place_address(address, &addr))
        replica_links_send(k->links, to, &addr, data, size);
}

static void on_link_lost(void *arg, uint64_t id, bool gone, const char *why)
{
    struct keeping *k = arg;

    k->server->touched = true;
    if (k->peers) {
        keeping_peers_lost(k, (unsigned)id - 1, gone, why);
        return;
    }
    if (id == k->leader)
        k->ended = id;
    if (gone && k->serves)
        registry_lose_keeper(k->server->registry, id, clock_ms());
    replica_note_gone(k->replica, id, clock_ms());
}

void server_on_replicate(void *arg, void *conn, const struct msg *m)
{
    struct server *s = arg;
    struct peer_conn *p = conn;
    ssize_t n;

    if (!s->keeping || p->part_size > REPLICA_MESSAGE_MAX)
        return;
    p->part = xrealloc(p->part, p->part_size + LOGS_PIECE_MAX);
    n = base64_decode(m->replicate.text, p->part + p->part_size, LOGS_PIECE_MAX);
    p->part_size += n > 0 ? (size_t)n : 0;
    if (!m->replicate.last)
        return;
    if (!s->keeping->peers || !keeping_peers_take(s->keeping, p->part, p->part_size))
        replica_receive(s->keeping->replica, p->part, p->part_size, clock_ms());
    free(p->part);
    p->part = NULL;
    p->part_size = 0;
}

/* -- the journal's keeper ---------------------------------------------------------- */

static void on_keep(void *arg, const void *records, size_t size)
{
    replica_propose(((struct keeping *)arg)->replica, records, size, clock_ms());
}

static bool on_has_kept(void *arg)
{
    return replica_is_settled(((struct keeping *)arg)->replica, clock_ms());
}

static void keeping_open_journal(struct keeping *k, bool has_all)
{
    struct journal_keeper keeper = { .keep = on_keep,
                                     .has_kept = on_has_kept,
                                     .arg = k };

    registry_keep(k->server->registry, &keeper, has_all);
}

static void on_compact_kept(void *arg, const void *records, size_t size)
{
    log_debug("the records of the rendezvous are %zu bytes now", size);
    replica_keep_compact(((struct keeping *)arg)->replica, records, size);
}

static void on_compact(void *arg, const void *records, size_t size)
{
    struct journal_keeper keeper = { .keep = on_compact_kept, .arg = arg };
    struct err e;

    if (registry_compact(records, size, clock_ms(), &keeper, &e) < 0)
        log_debug("the records of the rendezvous stay as long as they are: %s", e.text);
}

/* -- who leads --------------------------------------------------------------------- */

/* Another one leads. */
static void peer_conn_refer(struct peer_conn *p, const struct msg *hello)
{
    const struct keeping *k = p->server->keeping;
    struct msg m = { .type = MSG_KEEPERS };

    if (hello->hello.keepers) {
        keeping_describe(k, replica_leader(k->replica), &m.keepers);
        conn_send(p->conn, &m);
        conn_flush(p->conn);
    }
    conn_hang_up(p->conn);
}

/* No peer leads for long: crunctl need not wait. Agents do. */
static void server_refuse_visitors(struct server *s)
{
    struct msg m = { .type = MSG_REFUSED,
                     .refused = { .why = REFUSED_UNKNOWN,
                                  .retry = true,
                                  .text = "none of its --peers leads: too few of them "
                                          "reach each other" } };
    struct peer_conn *p;

    TAILQ_FOREACH(p, &s->conns[CLASS_UNIDENTIFIED], entry)
        if (p->held && p->held->hello.role == PEER_CTL) {
            m.sequence = p->held->sequence;
            conn_send(p->conn, &m);
            conn_flush(p->conn);
            conn_hang_up(p->conn);
            free(p->held);
            p->held = NULL;
        }
}

static void server_release_held(struct server *s, bool serve)
{
    struct peer_conn *p;

    TAILQ_FOREACH(p, &s->conns[CLASS_UNIDENTIFIED], entry)
        if (p->held && !serve)
            peer_conn_refer(p, p->held);
    while (serve) {
        TAILQ_FOREACH(p, &s->conns[CLASS_UNIDENTIFIED], entry)
            if (p->held)
                break;
        if (!p)
            return;
        peer_conn_release(p);
    }
}

static const char *on_knock_endpoints(void *arg)
{
    const struct keeping *k = arg;

    return k->serves ? k->told.endpoints : NULL;
}

static bool on_knock_keeps(void *arg, const struct net_addr *addr)
{
    const struct keeping *k = arg;
    struct replica_member m;
    struct net_addr at;

    for (unsigned i = 0; i < replica_count(k->replica); i++) {
        replica_show(k->replica, i, &m);
        if (!replica_links_is_gone(k->links, m.id) && place_address(m.address, &at) &&
            net_same_host(&at, addr))
            return true;
    }
    return false;
}

static void keeping_lead(struct keeping *k)
{
    struct knock_calls calls = { .endpoints = on_knock_endpoints,
                                 .keeps = on_knock_keeps,
                                 .arg = k };
    struct server *s = k->server;
    struct replica_member m;
    struct msg_keepers now;
    struct place own = { .host = "" };
    const uint8_t *records;
    size_t size;
    struct err e;

    records = replica_records(k->replica, &size);
    if (registry_take_over(s->registry, records, size, clock_ms(), clock_wall_ms(),
                           &e) < 0) {
        s->failed = true;
        s->config.fatal(s->config.arg, e.text);
        return;
    }
    keeping_open_journal(k, true);
    for (unsigned i = 0; !k->peers && i < replica_count(k->replica); i++) {
        struct place other;

        replica_show(k->replica, i, &m);
        if (place_parse(m.address, &other))
            registry_add_keeper(s->registry, other.node, other.host, m.id);
    }
    if (k->peers)
        log_info("this peer leads now");
    else
        registry_add_keeper(s->registry, k->former.node, k->former.host, k->leader);
    k->serves = k->heard = true; /* all have a whole lease */
    (void)keeping_find(k, k->id, &own);
    snprintf(k->lost, sizeof(k->lost), "%s",
             registry_keeper_stays(s->registry, k->leader) ? k->former.host : "");
    k->silent = k->ended != k->leader;
    keeping_describe(k, k->id, &now);
    registry_report_move(s->registry, own.host, &now);
    keeping_tell(k);
    if (!k->peers && replica_links_is_gone(k->links, k->leader))
        registry_lose_keeper(s->registry, k->leader, clock_ms());
    server_release_held(s, true);
    if (!k->knock)
        k->knock = knock_begin(s, &calls);
    if (s->config.moved)
        s->config.moved(s->config.arg, true);
}

/* Another one leads, or may: whoever is connected looks for it. */
void keeping_stand_down(struct keeping *k)
{
    struct server *s = k->server;
    struct peer_conn *p, *next;

    log_warn(k->peers ? "this peer leads no more"
                      : "this node can reach too few of the nodes that keep the "
                        "rendezvous' records: it hosts the rendezvous no more");
    k->serves = false;
    k->told = (struct msg_keepers){ .safe = false };
    k->asked = k->offered = 0;
    s->config.standby.instance = *server_instance(s);
    registry_stand_by(s->registry);
    for (int class = 0; class < CLASS_COUNT; class ++)
        for (p = TAILQ_FIRST(&s->conns[class]); p; p = next) {
            next = TAILQ_NEXT(p, entry);
            if (registry_phase(p->peer) != PROTO_REPLICA)
                peer_conn_destroy(p);
        }
    if (s->config.moved)
        s->config.moved(s->config.arg, false);
}

/* What was decided last has left: the nodes may end, and nothing follows. */
static bool keeping_is_over(const struct keeping *k)
{
    const struct job *job = k->peers ? NULL : registry_jobs(k->server->registry);

    return job && job->membership.state == JOB_DONE &&
           registry_is_saved(k->server->registry) &&
           registry_is_settled(k->server->registry) && STAILQ_EMPTY(&k->server->unsent);
}

/* A lease that has run while others could not hear this one says nothing of its node,
 * unless that is the one that this one has gone on without. */
static void keeping_note_heard(struct keeping *k)
{
    uint64_t now = clock_ms();
    bool heard = replica_is_heard(k->replica, now);
    struct replica_pair pair;

    if (heard && !k->heard)
        registry_renew_leases(k->server->registry,
                              replica_pair(k->replica, &pair) ? 0 : k->with, now);
    k->heard = heard;
}

const struct id128 *server_instance(const struct server *s)
{
    const struct job *job = registry_jobs(s->registry);

    return job && !s->config.peers ? &job->membership.instance
                                   : &s->config.standby.instance;
}

static void on_replica_changed(void *arg)
{
    ((struct keeping *)arg)->server->touched = true;
}

struct replica *keeping_make_replica(struct keeping *k, uint64_t id, const char *place,
                                     bool founds, struct err *e)
{
    struct id128 seed = id128_random();
    struct replica_config config = { .id = id,
                                     .address = place,
                                     .founds = founds,
                                     .election_ms = k->election_ms,
                                     .compact_after = k->peers ? PEERS_COMPACT_AFTER
                                                               : COMPACT_AFTER,
                                     .compact = on_compact,
                                     .send = on_replica_send,
                                     .changed = on_replica_changed,
                                     .arg = k };

    if (k->peers) {
        config.disk = k->server->disk;
        config.owner = keeping_peers_owner(k->peers);
    }
    memcpy(&config.seed, seed.byte, sizeof(config.seed));
    return replica_create(&config, clock_ms(), e);
}

static void keeping_look(struct keeping *k)
{
    uint64_t leader;

    if (k->peers && !keeping_peers_look(k))
        server_refuse_visitors(k->server);
    if (!k->peers)
        keeping_look_at_pair(k);
    if (k->server->failed)
        return;
    leader = replica_leader(k->replica);
    if (!replica_leads(k->replica)) {
        if (k->serves)
            keeping_stand_down(k);
        if (leader && leader != k->id) {
            k->leader = leader;
            if (keeping_find(k, leader, &k->former))
                server_release_held(k->server, false);
        }
        return;
    }
    if (!k->serves && k->peers && !keeping_peers_suffice(k)) {
        keeping_peers_change(k);
        return;
    }
    if (!k->serves)
        keeping_lead(k);
    if (k->server->failed)
        return;
    if (keeping_is_over(k)) {
        registry_keep(k->server->registry, NULL, false);
        k->heard = true;
        return;
    }
    keeping_note_heard(k);
    keeping_maintain(k);
}

static void on_keeping_timer(void *arg)
{
    struct keeping *k = arg;

    replica_tick(k->replica, clock_ms());
}

/* -- begin and end ------------------------------------------------------------------
 */

static int keeping_create(struct server *s, const struct server_standby *how,
                          const char *place, bool founds, struct err *e)
{
    struct keeping *k = xcalloc(1, sizeof(*k));

    k->server = s;
    k->id = how->id;
    k->election_ms = how->election_ms;
    k->serves = k->heard = founds;
    if (s->config.peers)
        k->peers = keeping_peers_create(s->config.peers);
    k->alone = how->alone;
    if (how->witness)
        snprintf(k->witness_at, sizeof(k->witness_at), "%s", how->witness);
    k->witness_id = how->witness_id;
    if (!*k->witness_at || witness_check(s, k->witness_at, !founds, e) == 0)
        k->replica = keeping_make_replica(k, k->id, place, founds, e);
    if (!k->replica) {
        free(k->peers);
        free(k);
        return -1;
    }
    k->id = replica_id(k->replica);
    k->links = replica_links_create(s, k->election_ms, on_link_lost, k);
    loop_timer_init(&k->timer, s->loop, on_keeping_timer, k);
    if (witness_is_crund(k->witness_at))
        k->meeting = witness_ask(s, k->witness_at, &k->witness_id, 0, 0);
    s->keeping = k;
    return 0;
}

int server_begin_standby(struct server *s, struct err *e)
{
    const struct server_standby *standby = &s->config.standby;
    char place[REPLICA_ADDRESS_SIZE];

    place_format(&s->address, standby->node, standby->host, place);
    return keeping_create(s, standby, place, false, e);
}

int server_begin_peers(struct server *s, struct err *e)
{
    struct server_standby how = { .election_ms = PEERS_ELECTION_MS };
    char place[REPLICA_ADDRESS_SIZE];
    struct id128 id = id128_random();

    memcpy(&how.id, id.byte, sizeof(how.id));
    peers_place(s->config.peers, s->config.peers->own, how.id, place);
    return keeping_create(s, &how, place, false, e);
}

static uint32_t election_ms_of(const struct job *job)
{
    const struct job_config *c = &job->membership.config;
    /* a host that is cut off steps down, then another one leads: before the fences */
    uint32_t ms = c->lease_ms / HEARTBEATS_PER_LEASE / (c->strict_fence ? 2 : 1);

    return ms < ELECTION_MS_MIN   ? ELECTION_MS_MIN
           : ms > ELECTION_MS_MAX ? ELECTION_MS_MAX
                                  : ms;
}

/* The others reach this node as the first of them does, which may join before its own
 * one: until then the records are on no node. */
static void server_found_keeping(struct server *s)
{
    const struct job *job = registry_jobs(s->registry);
    const struct peer_conn *first = registry_ask_keeper(s->registry, NULL, NULL, 0);
    char place[REPLICA_ADDRESS_SIZE];
    struct id128 id = id128_random();
    struct net_addr own;
    uint32_t node = MEMBERSHIP_NONE;
    struct server_standby how = { .election_ms = election_ms_of(job),
                                  .witness = s->config.witness,
                                  .alone = s->config.alone };
    struct err e;

    MEMBERSHIP_EACH(i, &job->membership)
        if (job->membership.node[i].host)
            node = i;
    if (node == MEMBERSHIP_NONE || !first || !conn_local(first->conn, &own))
        return;
    net_set_port(&own, net_port(&s->address));
    place_format(&own, node, job->node[node]->host, place);
    memcpy(&how.id, id.byte, sizeof(how.id));
    if (keeping_create(s, &how, place, true, &e) < 0) {
        log_at(s->config.witness ? LOG_WARN : LOG_INFO,
               "no other node keeps the rendezvous' records: %s", e.text);
        s->config.replicas = 1;
        return;
    }
    registry_add_keeper(s->registry, node, job->node[node]->host, how.id);
    replica_tick(s->keeping->replica, clock_ms());
    keeping_open_journal(s->keeping, false);
}

void server_keep_on(struct server *s)
{
    const struct job *job = registry_jobs(s->registry);
    /* a third node may be about to join, as long as the job has not formed */
    unsigned others = s->config.replicas > 2 && job && !job->membership.epoch ? 2 : 1;

    if (!s->keeping && s->config.replicas > 1 && !s->config.standalone && s->listener &&
        registry_count_keepers(s->registry, others) == others)
        server_found_keeping(s);
    if (!s->keeping)
        return;
    keeping_look(s->keeping);
    if (s->failed)
        return;
    loop_timer_arm(&s->keeping->timer, replica_next_tick(s->keeping->replica));
}

void server_end_keeping(struct server *s)
{
    struct keeping *k = s->keeping;

    if (!k)
        return;
    s->keeping = NULL;
    registry_keep(s->registry, NULL, false);
    replica_links_destroy(k->links);
    witness_forget(k->witness);
    witness_forget(k->meeting);
    knock_end(k->knock);
    loop_timer_fini(&k->timer);
    replica_destroy(k->replica);
    free(k->peers);
    free(k);
}

bool server_serves(const struct server *s)
{
    return !s->keeping || s->keeping->serves;
}

bool server_stands_by(const struct server *s, const char **leader)
{
    *leader = s->keeping && s->keeping->peers ? keeping_peers_leader(s->keeping) : NULL;
    return !server_serves(s);
}

bool server_is_needed(const struct server *s)
{
    return s->keeping && replica_is_needed(s->keeping->replica);
}

bool server_is_kept(const struct server *s)
{
    const struct keeping *k = s->keeping;
    unsigned voters = 0, others = 0;
    struct replica_member m;
    struct replica_pair pair;
    bool of_two = k && replica_pair(k->replica, &pair);

    if (!k || !k->serves || replica_is_changing(k->replica) || (of_two && !pair.known))
        return false;
    for (unsigned i = 0; i < replica_count(k->replica); i++) {
        replica_show(k->replica, i, &m);
        if ((m.votes || of_two) && keeping_misses(k, &m, 0))
            return false; /* it may end, too */
        voters += m.votes;
        others += m.votes && m.follows && m.id != k->id;
    }
    return of_two || others > voters / 2;
}

bool server_may_decide(const struct server *s)
{
    return server_serves(s) && (!s->keeping || s->keeping->heard);
}

bool server_takes_hello(struct peer_conn *p, const struct msg *m)
{
    struct server *s = p->server;
    struct place leader; /* not there: its list has not come yet */

    if (server_serves(s) || m->hello.role == PEER_REPLICA)
        return true;
    if (replica_leader(s->keeping->replica) != s->keeping->id &&
        keeping_find(s->keeping, replica_leader(s->keeping->replica), &leader)) {
        peer_conn_refer(p, m);
        return false;
    }
    p->held = xmemdup(m, sizeof(*m));
    conn_set_deadline(p->conn, 0, NULL); /* its peer gives it up */
    conn_hold(p->conn);
    return false;
}
