/* SPDX-License-Identifier: MIT */
/*
 * The records of a rendezvous on other hosts: which nodes keep them, and what happens
 * when another one leads. The consensus is the replica's (rendezvous/job/replica),
 * which nodes can be asked the registry's.
 *
 * A server that stands by has an empty registry. It answers no HELLO before it leads.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/journal/journal.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/job/replica/replica.h"
#include "rendezvous/server/limits.h"
#include "rendezvous/server/replica_links.h"
#include "rendezvous/server/server_internal.h"
#include "rendezvous/server/witness.h"
#include "rendezvous/wire/net/limits.h"
#include "rendezvous/wire/protocol/base64.h"
#include "rendezvous/wire/protocol/proto.h"

/* How a replica's address looks to the others, which only this file reads. */
struct place {
    char at[NET_TEXT_SIZE]; /* ADDRESS:PORT */
    uint32_t node;
    char host[HOST_NAME_MAX_BYTES + 1];
};

struct keeping {
    struct server *server;
    struct replica *replica;
    struct loop_timer timer;
    struct replica_links *links;
    uint64_t id;
    uint32_t election_ms;
    bool serves; /* the registry has the job */
    bool heard;  /* by a majority: only then what it decides may last */
    uint64_t asked, asked_ms;
    uint64_t offered; /* it has answered, and is not on the list yet; 0: none has */
    char offer[REPLICA_ADDRESS_SIZE];
    uint64_t added_ms;   /* the newest one of the list */
    uint64_t leader;     /* the last one that is not this; 0: none was */
    struct place former; /* its place */
    uint64_t with;       /* the other one of the pair; 0: none is */
    bool gave_up;
    uint64_t ended; /* a leader whose connection to this one has ended */
    char directory[WITNESS_MAX_BYTES + 1]; /* of the witness, or "" */
    bool alone, complained;
    struct witness *witness; /* that is asked, or NULL */
    char lost[HOST_NAME_MAX_BYTES + 1];
    bool silent; /* it has ended no connection */
    struct msg_keepers told;
    struct knock *knock; /* NULL: it has not moved */
};

static bool place_parse(const char *text, struct place *p)
{
    int used = 0;

    return sscanf(text, "%79s %" SCNu32 " %255s%n", p->at, &p->node, p->host, &used) ==
               3 &&
           text[used] == '\0';
}

static void place_format(const struct net_addr *addr, uint32_t node, const char *host,
                         char text[REPLICA_ADDRESS_SIZE])
{
    char at[NET_TEXT_SIZE];

    snprintf(text, REPLICA_ADDRESS_SIZE, "%s %" PRIu32 " %s",
             net_format(addr, at, sizeof(at)), node, host);
}

static bool place_address(const char *text, struct net_addr *addr)
{
    char host[HOST_NAME_MAX_BYTES + 1];
    struct place p;
    uint16_t port;
    struct err e;

    return place_parse(text, &p) &&
           net_split(p.at, -1, host, sizeof(host), &port, &e) == 0 &&
           net_parse_host(host, port, addr, &e) == 0;
}

/* The member's place; false: it is not on the list. */
static bool keeping_find(const struct keeping *k, uint64_t id, struct place *p)
{
    struct replica_member m;

    for (unsigned i = 0; i < replica_count(k->replica); i++) {
        replica_show(k->replica, i, &m);
        if (m.id == id)
            return place_parse(m.address, p);
    }
    return false;
}

/* -- the other replicas ------------------------------------------------------------ */

static void on_replica_send(void *arg, uint64_t to, const char *address,
                            const void *data, size_t size)
{
    struct keeping *k = arg;
    struct net_addr addr;

    if (place_address(address, &addr))
        replica_links_send(k->links, to, &addr, data, size);
}

static void on_link_lost(void *arg, uint64_t id, bool gone)
{
    struct keeping *k = arg;

    if (id == k->leader)
        k->ended = id;
    if (gone && k->serves)
        registry_lose_keeper(k->server->registry, id, clock_ms());
    replica_note_gone(k->replica, id, clock_ms());
    k->server->touched = true;
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

/* -- the list of those that keep them ---------------------------------------------- */

void server_on_keeping(void *arg, void *conn, const struct keeper_offer *offer)
{
    struct server *s = arg;
    struct keeping *k = s->keeping;
    struct net_addr addr;
    struct err e;

    if (!k || offer->id != k->asked)
        return;
    k->asked = 0;
    if (!offer->port || net_parse_host(offer->address, offer->port, &addr, &e) < 0)
        return;
    k->offered = offer->id;
    place_format(&addr, offer->node, offer->host, k->offer);
}

static void keeping_ask(struct keeping *k)
{
    char hosts[REPLICAS_MAX][NET_TEXT_SIZE];
    const char *taken[REPLICAS_MAX];
    unsigned n = replica_count(k->replica);
    struct replica_member m;
    struct net_addr addr;
    struct id128 id = id128_random();
    struct msg_keep keep = { .election_ms = k->election_ms, .alone = k->alone };

    snprintf(keep.witness, sizeof(keep.witness), "%s", k->directory);
    for (unsigned i = 0; i < n; i++) {
        replica_show(k->replica, i, &m);
        hosts[i][0] = '\0';
        if (place_address(m.address, &addr))
            net_format_host(&addr, hosts[i], sizeof(hosts[i]));
        taken[i] = hosts[i];
    }
    memcpy(&k->asked, id.byte, sizeof(k->asked));
    k->asked_ms = clock_ms();
    keep.id = k->asked;
    if (!registry_ask_keeper(k->server->registry, &keep, taken, n))
        k->asked = 0;
}

/* Its node is not there any more, or it was added and does not follow. */
static bool keeping_misses(const struct keeping *k, const struct replica_member *m,
                           unsigned there)
{
    return m->id != k->id && (!registry_has_keeper(k->server->registry, m->id) ||
                              (there > 2 && !m->votes && !m->follows &&
                               clock_ms() - k->added_ms > HELLO_DEADLINE_MS));
}

/* Of those on the list, whose nodes are there. */
static unsigned keeping_count(const struct keeping *k)
{
    unsigned there = 0;
    struct replica_member m;

    for (unsigned i = 0; i < replica_count(k->replica); i++) {
        replica_show(k->replica, i, &m);
        there += !keeping_misses(k, &m, 0);
    }
    return there;
}

/* Two of them are a pair, so a second one has no vote before there is a third. And none
 * before all nodes know of them: this host may step down as soon as others vote, and a
 * node that knows no other one ends. */
static bool keeping_may_turn(const struct keeping *k, const struct replica_member *m,
                             bool votes)
{
    return m->id != k->id && m->votes != votes &&
           (!votes || (m->follows && proto_keepers_are_several(k->told.endpoints) &&
                       STAILQ_EMPTY(&k->server->unsent)));
}

/* One change of the list, if one is due. One that is missed stays until another one has
 * all records and can take its place: it may yet come back. */
static bool keeping_change_list(struct keeping *k)
{
    unsigned n = replica_count(k->replica), there = keeping_count(k);
    bool coming = k->asked != 0;
    uint64_t now = clock_ms(), id = k->offered;
    struct replica_member m;

    if (id && n < REPLICAS_MAX) {
        if (replica_add(k->replica, id, k->offer, now) < 0)
            return false;
        k->offered = 0;
        k->added_ms = now;
        return true;
    }
    for (unsigned i = 0; i < n; i++) {
        replica_show(k->replica, i, &m);
        coming |= m.id != k->id && there > 2 && !m.votes && !m.follows &&
                  !keeping_misses(k, &m, there);
    }
    for (unsigned i = 0; i < n; i++) {
        replica_show(k->replica, i, &m);
        if (keeping_misses(k, &m, there)
                ? !coming && replica_remove(k->replica, m.id, now) == 0
                : (!m.keeps || keeping_may_turn(k, &m, there > 2)) &&
                      replica_set_vote(k->replica, m.id, there > 2 && m.keeps, now) ==
                          0)
            return true;
    }
    return false;
}

static void list_add(char *list, size_t size, const char *separator, const char *item)
{
    size_t used = strlen(list);

    snprintf(list + used, size - used, "%s%s", used ? separator : "", item);
}

/* The one that leads first. */
static void keeping_describe(const struct keeping *k, uint64_t leader,
                             struct msg_keepers *to)
{
    unsigned voters = 0;
    struct replica_member m;
    struct replica_pair pair;
    struct place p;

    *to = (struct msg_keepers){ .safe = false };
    snprintf(to->lost, sizeof(to->lost), "%s", k->lost);
    to->silent = k->silent;
    for (unsigned round = 0; round < 2; round++)
        for (unsigned i = 0; i < replica_count(k->replica); i++) {
            replica_show(k->replica, i, &m);
            if ((m.id == leader) != (round == 0) || !place_parse(m.address, &p))
                continue;
            voters += m.votes;
            list_add(to->endpoints, sizeof(to->endpoints), ",", p.at);
            list_add(to->hosts, sizeof(to->hosts), ", ", p.host);
        }
    to->safe = voters > 2 || (replica_pair(k->replica, &pair) && pair.known);
}

/* Not while it changes: a node that is told of fewer than those whose votes count takes
 * a host that steps down for the end. */
static void keeping_tell(struct keeping *k)
{
    struct msg_keepers now;

    if (replica_is_changing(k->replica))
        return;
    keeping_describe(k, k->id, &now);
    if (memcmp(&now, &k->told, sizeof(now)) == 0)
        return;
    k->told = now;
    registry_tell_keepers(k->server->registry, &now);
}

static void keeping_maintain(struct keeping *k)
{
    if (k->asked && (clock_ms() - k->asked_ms > HELLO_DEADLINE_MS ||
                     !registry_awaits_keeper(k->server->registry, k->asked)))
        k->asked = 0;
    if (!k->asked && !k->offered && keeping_count(k) < k->server->config.replicas)
        keeping_ask(k);
    while (keeping_change_list(k))
        ;
    keeping_tell(k);
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
        if (place_address(m.address, &at) && net_same_host(&at, addr))
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
    for (unsigned i = 0; i < replica_count(k->replica); i++) {
        struct place other;

        replica_show(k->replica, i, &m);
        if (place_parse(m.address, &other))
            registry_add_keeper(s->registry, other.node, other.host, m.id);
    }
    registry_add_keeper(s->registry, k->former.node, k->former.host, k->leader);
    k->serves = k->heard = true; /* all have a whole lease */
    (void)keeping_find(k, k->id, &own);
    snprintf(k->lost, sizeof(k->lost), "%s",
             *k->former.host ? k->former.host : "a-node");
    k->silent = k->ended != k->leader;
    keeping_describe(k, k->id, &now);
    registry_report_move(s->registry, own.host, &now);
    keeping_tell(k);
    if (replica_links_is_gone(k->links, k->leader))
        registry_lose_keeper(s->registry, k->leader, clock_ms());
    server_release_held(s, true);
    if (!k->knock)
        k->knock = knock_begin(s, &calls);
    if (s->config.moved)
        s->config.moved(s->config.arg, true);
}

/* Another one leads, or may: whoever is connected looks for it. */
static void keeping_stand_down(struct keeping *k)
{
    struct server *s = k->server;
    struct peer_conn *p, *next;

    log_warn("this node can reach too few of the nodes that keep the rendezvous' "
             "records: it hosts the rendezvous no more");
    k->serves = false;
    k->told = (struct msg_keepers){ .safe = false };
    k->asked = k->offered = 0;
    s->config.standby.instance = registry_jobs(s->registry)->membership.instance;
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
    const struct job *job = registry_jobs(k->server->registry);

    return job && job->membership.state == JOB_DONE &&
           registry_is_saved(k->server->registry) &&
           registry_is_settled(k->server->registry) && STAILQ_EMPTY(&k->server->unsent);
}

/* A lease that has run while others could not hear this one says nothing of its node.
 */
static void keeping_note_heard(struct keeping *k)
{
    uint64_t now = clock_ms();
    bool heard = replica_is_heard(k->replica, now);

    if (heard && !k->heard)
        registry_renew_leases(k->server->registry, now);
    k->heard = heard;
}

/* The kernel there tells as soon as its process is gone. */
static void keeping_watch(struct keeping *k, uint64_t id)
{
    struct replica_member m;
    struct net_addr addr;

    for (unsigned i = 0; i < replica_count(k->replica); i++) {
        replica_show(k->replica, i, &m);
        if (m.id == id && place_address(m.address, &addr))
            replica_links_watch(k->links, id, &addr);
    }
}

static const struct id128 *keeping_instance(const struct server *s)
{
    const struct job *job = registry_jobs(s->registry);

    return job ? &job->membership.instance : &s->config.standby.instance;
}

static void on_replica_changed(void *arg)
{
    ((struct keeping *)arg)->server->touched = true;
}

static struct replica *keeping_make_replica(struct keeping *k, uint64_t id,
                                            const char *place, bool founds,
                                            struct err *e)
{
    struct id128 seed = id128_random();
    struct replica_config config = { .id = id,
                                     .address = place,
                                     .founds = founds,
                                     .election_ms = k->election_ms,
                                     .compact_after = COMPACT_AFTER,
                                     .compact = on_compact,
                                     .send = on_replica_send,
                                     .changed = on_replica_changed,
                                     .arg = k };

    memcpy(&config.seed, seed.byte, sizeof(config.seed));
    return replica_create(&config, clock_ms(), e);
}

/* It does not go on without the other one of its pair. */
static void keeping_give_up(struct keeping *k, bool claimed)
{
    if (!k->gave_up && k->server->config.given_up)
        k->server->config.given_up(k->server->config.arg, claimed);
    k->gave_up = true;
}

/* What it has decided since then is void. Another replica, which no one knows, takes
 * the place of its own: that would lead. */
static void keeping_lose_claim(struct keeping *k)
{
    struct err e;

    if (k->serves) {
        keeping_stand_down(k);
        replica_destroy(k->replica);
        k->replica = keeping_make_replica(k, k->id + 1, "", false, &e);
        if (!k->replica)
            k->server->config.fatal(k->server->config.arg, e.text);
    }
    keeping_give_up(k, true);
}

static void keeping_ask_witness(struct keeping *k, uint64_t pair)
{
    const char *why;
    enum witness_answer answer;

    if (k->gave_up)
        return;
    if (!k->witness)
        k->witness = witness_ask(k->directory, keeping_instance(k->server), pair,
                                 k->id);
    answer = witness_answer(k->witness, &why);
    if (answer == WITNESS_WAITS)
        return;
    if (answer == WITNESS_FAILED && !k->complained)
        log_warn("the witness cannot be asked: %s; trying again", why);
    k->complained = answer == WITNESS_FAILED;
    witness_forget(k->witness);
    k->witness = NULL;
    if (answer == WITNESS_YES)
        replica_go_on_alone(k->replica, clock_ms());
    else if (answer == WITNESS_NO)
        keeping_lose_claim(k);
}

/*
 * Of a pair, the leader goes on alone once the other one has been silent for long, or
 * its process is gone. The other one does only if the leader's process is gone, and had
 * not gone on alone before.
 */
static void keeping_look_at_pair(struct keeping *k)
{
    uint64_t now = clock_ms();
    struct replica_pair p;
    bool gone, late;

    if (!replica_pair(k->replica, &p)) {
        if (k->with && !k->serves && replica_links_is_gone(k->links, k->with))
            keeping_give_up(k, false);
        return;
    }
    k->with = p.with;
    keeping_watch(k, p.with);
    gone = replica_links_is_gone(k->links, p.with);
    late = gone || now >= p.silent_ms;
    if (*k->directory && (late || k->witness))
        keeping_ask_witness(k, p.id);
    else if (*k->directory)
        k->gave_up = false;
    else if (p.leads || k->alone ? late : gone && now < p.promised_ms)
        replica_go_on_alone(k->replica, now);
    else if (!p.leads && now >= p.promised_ms)
        keeping_give_up(k, false);
    else
        k->gave_up = false;
}

static void keeping_look(struct keeping *k)
{
    uint64_t leader;

    keeping_look_at_pair(k);
    leader = replica_leader(k->replica);
    if (!replica_leads(k->replica)) {
        if (k->serves)
            keeping_stand_down(k);
        if (leader && leader != k->id) {
            k->leader = leader;
            (void)keeping_find(k, leader, &k->former);
            server_release_held(k->server, false);
        }
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
    k->alone = how->alone;
    if (how->witness)
        snprintf(k->directory, sizeof(k->directory), "%s", how->witness);
    if (!*k->directory ||
        witness_check(k->directory, keeping_instance(s), !founds, e) == 0)
        k->replica = keeping_make_replica(k, k->id, place, founds, e);
    if (!k->replica) {
        free(k);
        return -1;
    }
    k->links = replica_links_create(s, k->election_ms, on_link_lost, k);
    loop_timer_init(&k->timer, s->loop, on_keeping_timer, k);
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

static uint32_t election_ms_of(const struct job *job)
{
    const struct job_config *c = &job->membership.config;
    /* a host that is cut off steps down, then another one leads: before the fences */
    uint32_t ms = c->lease_ms / HEARTBEATS_PER_LEASE / (c->strict_fence ? 2 : 1);

    return ms < ELECTION_MS_MIN   ? ELECTION_MS_MIN
           : ms > ELECTION_MS_MAX ? ELECTION_MS_MAX
                                  : ms;
}

/* The others reach this node as the first of them does. */
static void server_found_keeping(struct server *s)
{
    const struct job *job = registry_jobs(s->registry);
    const struct peer_conn *first = registry_ask_keeper(s->registry, NULL, NULL, 0);
    char place[REPLICA_ADDRESS_SIZE];
    struct id128 id = id128_random();
    struct net_addr own;
    uint32_t node = 0;
    struct server_standby how = { .election_ms = election_ms_of(job),
                                  .witness = s->config.witness,
                                  .alone = s->config.alone };
    struct err e;

    if (!first || !conn_local(first->conn, &own))
        return;
    net_set_port(&own, net_port(&s->address));
    MEMBERSHIP_EACH(i, &job->membership)
        if (job->membership.node[i].host)
            node = i;
    place_format(&own, node, job->node[node] ? job->node[node]->host : "a-host", place);
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
    struct keeping *k = s->keeping;
    unsigned others = s->config.replicas > 2 ? 2 : 1;

    if (!k && s->config.replicas > 1 && !s->config.standalone && s->listener &&
        registry_count_keepers(s->registry, others) == others)
        server_found_keeping(s);
    if (!s->keeping)
        return;
    keeping_look(s->keeping);
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
    knock_end(k->knock);
    loop_timer_fini(&k->timer);
    replica_destroy(k->replica);
    free(k);
}

bool server_serves(const struct server *s)
{
    return !s->keeping || s->keeping->serves;
}

bool server_may_decide(const struct server *s)
{
    return server_serves(s) && (!s->keeping || s->keeping->heard);
}

bool server_takes_hello(struct peer_conn *p, const struct msg *m)
{
    struct server *s = p->server;

    if (server_serves(s) || m->hello.role == PEER_REPLICA)
        return true;
    if (replica_leader(s->keeping->replica)) {
        peer_conn_refer(p, m);
        return false;
    }
    p->held = xmemdup(m, sizeof(*m));
    conn_set_deadline(p->conn, 0, NULL); /* its peer gives it up */
    conn_hold(p->conn);
    return false;
}
