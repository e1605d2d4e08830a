/* SPDX-License-Identifier: MIT */
/* Two nodes keep the records: which one goes on when it has lost the other one. */
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/job/records/replica.h"
#include "rendezvous/server/replica_links.h"
#include "rendezvous/server/server_internal.h"
#include "rendezvous/server/server_keeping.h"
#include "rendezvous/server/witness.h"

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
    struct id128 id;
    enum witness_answer answer;

    if (k->gave_up)
        return;
    if (!k->witness)
        k->witness = witness_ask(k->server, k->witness_at, &k->witness_id, pair, k->id);
    answer = witness_answer(k->witness, &why, &id);
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

/* The founder of the job does without a crund that does not answer: before it has asked
 * another node to keep the records, which follows the same rule. */
static void keeping_meet_witness(struct keeping *k)
{
    bool is_founder = id128_is_zero(&k->witness_id);
    const char *why;
    enum witness_answer answer = witness_answer(k->meeting, &why, &k->witness_id);

    if (answer == WITNESS_WAITS)
        return;
    if (answer == WITNESS_FAILED)
        log_warn("%s %s: %s", k->witness_at,
                 is_founder ? "is no witness of this job"
                            : "is the witness, and cannot be asked from here",
                 why);
    if (answer == WITNESS_FAILED && is_founder)
        *k->witness_at = '\0';
    witness_forget(k->meeting);
    k->meeting = NULL;
}

/*
 * Of a pair, the leader goes on alone once the other one has been silent for long, or
 * its process is gone. The other one does only if the leader's process is gone, and had
 * not gone on alone before.
 */
void keeping_look_at_pair(struct keeping *k)
{
    uint64_t now = clock_ms();
    struct replica_pair p;
    bool gone, late;

    if (k->meeting)
        keeping_meet_witness(k);
    if (!replica_pair(k->replica, &p)) {
        witness_forget(k->witness); /* its answer is about that pair */
        k->witness = NULL;
        if (k->with && !k->serves && replica_links_is_gone(k->links, k->with))
            keeping_give_up(k, false);
        return;
    }
    k->with = p.with;
    keeping_watch(k, p.with);
    gone = replica_links_is_gone(k->links, p.with);
    late = gone || now >= p.silent_ms;
    if (*k->witness_at && (late || k->witness))
        keeping_ask_witness(k, p.id);
    else if (*k->witness_at)
        k->gave_up = false;
    else if (p.leads || k->alone ? late : gone && now < p.promised_ms)
        replica_go_on_alone(k->replica, now);
    else if (!p.leads && now >= p.promised_ms)
        keeping_give_up(k, false);
    else
        k->gave_up = false;
}
