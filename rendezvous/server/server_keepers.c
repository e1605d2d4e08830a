/* SPDX-License-Identifier: MIT */
/* Which nodes keep the records of a rendezvous: the list's changes, and what nodes are
 * told. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/job/records/replica.h"
#include "rendezvous/server/replica_links.h"
#include "rendezvous/server/server_internal.h"
#include "rendezvous/server/server_keeping.h"
#include "rendezvous/wire/net/limits.h"
#include "rendezvous/wire/protocol/proto.h"

bool place_parse(const char *text, struct place *p)
{
    int used = 0;

    return sscanf(text, "%79s %" SCNu32 " %255s%n", p->at, &p->node, p->host, &used) ==
               3 &&
           text[used] == '\0';
}

void place_format(const struct net_addr *addr, uint32_t node, const char *host,
                  char text[REPLICA_ADDRESS_SIZE])
{
    char at[NET_TEXT_SIZE];

    snprintf(text, REPLICA_ADDRESS_SIZE, "%s %" PRIu32 " %s",
             net_format(addr, at, sizeof(at)), node, host);
}

bool place_address(const char *text, struct net_addr *addr)
{
    char host[HOST_NAME_MAX_BYTES + 1];
    struct place p;
    uint16_t port;
    struct err e;

    return place_parse(text, &p) &&
           net_split(p.at, -1, host, sizeof(host), &port, &e) == 0 &&
           net_parse_host(host, port, addr, &e) == 0;
}

bool keeping_find(const struct keeping *k, uint64_t id, struct place *p)
{
    struct replica_member m;

    for (unsigned i = 0; i < replica_count(k->replica); i++) {
        replica_show(k->replica, i, &m);
        if (m.id == id)
            return place_parse(m.address, p);
    }
    return false;
}

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
    struct msg_keep keep = { .election_ms = k->election_ms,
                             .alone = k->alone,
                             .witness_id = k->witness_id };

    snprintf(keep.witness, sizeof(keep.witness), "%s", k->witness_at);
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

bool keeping_misses(const struct keeping *k, const struct replica_member *m,
                    unsigned there)
{
    if (k->peers)
        return m->id != k->id && (!m->answers || keeping_peers_misses(k, m));
    return m->id != k->id && (!registry_keeper_stays(k->server->registry, m->id) ||
                              replica_links_is_gone(k->links, m->id) ||
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
 * node that knows no other one ends. It keeps its vote until those that are missed have
 * none. The other one of a pair can go on without a vote, so it gets its one last. */
static bool keeping_may_turn(const struct keeping *k, const struct replica_member *m,
                             unsigned there, unsigned voters)
{
    bool votes = there > 2;
    struct replica_pair pair;

    return m->id != k->id && m->votes != votes &&
           (votes ? m->follows && proto_keepers_are_several(k->told.endpoints) &&
                        STAILQ_EMPTY(&k->server->unsent) &&
                        (voters > 1 || !replica_pair(k->replica, &pair) ||
                         m->id != pair.with)
                  : there == replica_count(k->replica));
}

/* One that leaves is still there: it ends once it knows that it has no vote. */
static int keeping_let_go(struct keeping *k, const struct replica_member *m)
{
    bool votes = m->votes && m->follows && !replica_links_is_gone(k->links, m->id);

    return votes ? replica_set_vote(k->replica, m->id, false, clock_ms())
                 : replica_remove(k->replica, m->id, clock_ms());
}

/* One change of the list, if one is due. One that is missed stays until another one has
 * all records and a vote in its place: it may yet come back, and counts until then. */
static bool keeping_change_list(struct keeping *k)
{
    unsigned n = replica_count(k->replica), there = keeping_count(k), voters = 0;
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
        voters += m.votes;
        coming |= m.id != k->id && there > 2 && !m.votes && !m.follows &&
                  !keeping_misses(k, &m, there);
    }
    for (unsigned i = 0; i < n; i++) {
        replica_show(k->replica, i, &m);
        if (!keeping_misses(k, &m, there) &&
            (!m.keeps || keeping_may_turn(k, &m, there, voters)) &&
            replica_set_vote(k->replica, m.id, there > 2 && m.keeps, now) == 0)
            return true;
    }
    for (unsigned i = 0; i < n && !coming; i++) {
        replica_show(k->replica, i, &m);
        if (keeping_misses(k, &m, there) && keeping_let_go(k, &m) == 0)
            return true;
    }
    return false;
}

static void list_add(char *list, size_t size, const char *separator, const char *item)
{
    size_t used = strlen(list);

    snprintf(list + used, size - used, "%s%s", used ? separator : "", item);
}

void keeping_describe(const struct keeping *k, uint64_t leader, struct msg_keepers *to)
{
    unsigned voters = 0, there = 0;
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
            there += m.votes && !(k->serves && keeping_misses(k, &m, 0));
            list_add(to->endpoints, sizeof(to->endpoints), ",", p.at);
            if (!k->peers || (m.votes && !keeping_misses(k, &m, 0)))
                list_add(to->hosts, sizeof(to->hosts), ", ", p.host);
        }
    to->safe = k->peers || (there > 1 && 2 * (there - 1) > voters) ||
               (replica_pair(k->replica, &pair) && pair.known);
}

/* Not while it changes: a node that is told of fewer than those whose votes count takes
 * a host that steps down for the end. */
void keeping_tell(struct keeping *k)
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

void keeping_maintain(struct keeping *k)
{
    if (k->peers) {
        keeping_peers_change(k);
        keeping_tell(k);
        return;
    }
    if (k->asked && (clock_ms() - k->asked_ms > HELLO_DEADLINE_MS ||
                     !registry_awaits_keeper(k->server->registry, k->asked)))
        k->asked = 0;
    if (!k->meeting && !k->asked && !k->offered &&
        keeping_count(k) < k->server->config.replicas)
        keeping_ask(k);
    while (keeping_change_list(k))
        ;
    keeping_tell(k);
}
