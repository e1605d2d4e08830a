/* SPDX-License-Identifier: MIT */
/* takes: 25 s */
/* Of two replicas, only one may speak at a time, and it has all that was decided. */
#include "rendezvous/job/records/replica.h"

#include <stdio.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/replica_world.h"

NEEDS(replica_is_built, "there is no libraft");
FIXTURE(replicas_setup, replicas_teardown);

static void add_second(unsigned leads, unsigned i)
{
    char address[16];

    snprintf(address, sizeof(address), "%u", 100 + i);
    create(i, false);
    for (unsigned k = 0; k < 1000; k++, step())
        if (replica_add(member[leads].replica, 100 + i, address, world_ms) == 0)
            break;
    for (unsigned k = 0; k < 1000; k++, step())
        if (replica_set_vote(member[leads].replica, 100 + i, false, world_ms) == 0)
            break;
}

static bool is_pair(unsigned i)
{
    struct replica_pair p;

    return member[i].replica && replica_pair(member[i].replica, &p) && p.known;
}

static void make_pair(void)
{
    create(0, true);
    add_second(0, 1);
    for (unsigned k = 0; k < 3000 && !(is_pair(0) && is_pair(1)); k++)
        step();
    ck_assert(is_pair(0) && is_pair(1));
}

TEST(one_of_a_pair_decides_only_what_the_other_one_has)
{
    make_pair();
    propose(&member[0], "one");
    ck_assert(!replica_is_settled(member[0].replica, world_ms));
    ck_assert(wait_for_leader(100) == &member[0]);
    member[1].cut = true;
    propose(&member[0], "two");
    ck_assert(wait_for_leader(10 * ELECTION_MS) == NULL);
    ck_assert_uint_eq(lasting_size, 3);
    ck_assert(!replica_is_heard(member[0].replica, world_ms));
    replica_go_on_alone(member[0].replica, world_ms);
    ck_assert(replica_is_heard(member[0].replica, world_ms));
    step();
    ck_assert(leader() == &member[0]);
    ck_assert_uint_eq(lasting_size, 6);
    member[1].cut = false; /* it was not there in time, and is one of a pair again */
    for (unsigned k = 0; k < 3000 && !(is_pair(0) && is_pair(1)); k++)
        step();
    propose(&member[0], "three");
    ck_assert(!replica_is_settled(member[0].replica, world_ms));
    ck_assert(wait_for_leader(100) == &member[0]);
}

TEST(the_other_one_of_a_pair_has_all_that_was_decided)
{
    make_pair();
    propose(&member[0], "one");
    while (!replica_is_settled(member[0].replica, world_ms))
        step();
    check_speakers(); /* the second one does not know yet that it lasts */
    destroy(0);
    replica_go_on_alone(member[1].replica, world_ms);
    ck_assert(wait_for_leader(10) == &member[1]);
    ck_assert_uint_eq(lasting_size, 3);
    ck_assert_uint_eq(replica_count(member[1].replica), 1);
    add_second(1, 2);
    for (unsigned k = 0; k < 3000 && !is_pair(2); k++)
        step();
    propose(&member[1], "two");
    ck_assert(wait_for_leader(100) == &member[1]);
    destroy(1);
    replica_go_on_alone(member[2].replica, world_ms);
    ck_assert(wait_for_leader(10) == &member[2]);
    ck_assert_uint_eq(lasting_size, 6);
}

TEST(a_third_one_makes_a_majority_of_a_pair)
{
    struct replica_pair p;

    make_pair();
    for (unsigned k = 0; k < 1000; k++, step())
        if (replica_set_vote(member[0].replica, 101, true, world_ms) == 0)
            break;
    for (unsigned k = 0; k < 3000 && !all_vote(2); k++)
        step();
    add_voter(2);
    ck_assert(!replica_pair(member[0].replica, &p));
    ck_assert(!replica_pair(member[1].replica, &p));
    member[1].cut = true;
    propose(&member[0], "one");
    ck_assert(wait_for_leader(100) == &member[0]);
}

TEST(one_of_a_pair_is_not_removed_in_passing)
{
    make_pair();
    member[1].cut = true;
    for (unsigned k = 0; k < 10 * ELECTION_MS; k++, step())
        ck_assert_int_eq(replica_remove(member[0].replica, 101, world_ms), -1);
    replica_go_on_alone(member[0].replica, world_ms);
    ck_assert_int_eq(replica_remove(member[0].replica, 101, world_ms), 0);
}

/* What the first one has sent before it went on alone arrives after that. */
TEST(a_late_message_promises_nothing)
{
    struct replica_pair p;

    make_pair();
    member[0].slow = 2 * ELECTION_MS;
    for (unsigned k = 0; k < 2 * ELECTION_MS; k++)
        step();
    member[1].mute = true;
    while (replica_pair(member[0].replica, &p) && world_ms < p.silent_ms)
        step();
    replica_go_on_alone(member[0].replica, world_ms);
    for (unsigned k = 0; k < 2 * ELECTION_MS; k++, step())
        ck_assert(!replica_pair(member[1].replica, &p) || world_ms >= p.promised_ms);
}

/* Neither would be the leader of a later term then. */
TEST(one_that_went_on_alone_hears_nothing_of_the_other_one)
{
    make_pair();
    member[0].cut = true;
    for (unsigned k = 0; k < 2 * ELECTION_MS; k++)
        step();
    replica_go_on_alone(member[1].replica, world_ms);
    ck_assert(replica_is_settled(member[1].replica, world_ms));
    propose(&member[1], "one");
    check_speakers();
    member[0].cut = false;
    for (unsigned k = 0; k < 10 * ELECTION_MS; k++)
        step();
    ck_assert(replica_is_settled(member[1].replica, world_ms));
    ck_assert_uint_eq(lasting_size, 3);
}

/*
 * What their owners do. The first one goes on when the second one was silent; the
 * second one if it knows that the first one has died, and had not gone on before. Or
 * (claims) each of them, if it is the first of the two to claim the pair.
 */
static uint64_t claimed[64], claimed_by[64];
static unsigned claims;
static bool died; /* the first one */
static unsigned moves;

static bool claim(uint64_t pair, uint64_t id)
{
    for (unsigned i = 0; i < claims; i++)
        if (claimed[i] == pair)
            return claimed_by[i] == id;
    ck_assert_uint_lt(claims, 64);
    claimed[claims] = pair;
    claimed_by[claims++] = id;
    return true;
}

static void look_at_pair(unsigned i, bool by_claim, bool *over)
{
    struct replica_pair p;

    if (!member[i].replica || !replica_pair(member[i].replica, &p))
        return;
    if (by_claim  ? world_ms < p.silent_ms
        : p.leads ? world_ms < p.silent_ms
                  : !died || world_ms >= p.promised_ms)
        return;
    if (!by_claim || claim(p.id, member[i].id))
        replica_go_on_alone(member[i].replica, world_ms);
    else
        over[i] = true;
}

static void run_pair(uint64_t seed)
{
    struct replica *stopped[2] = { NULL, NULL };
    bool over[2] = { false, false }, by_claim = seed % 2;
    unsigned wakes[2] = { 0, 0 };
    char text[16];

    replicas_setup();
    claims = 0;
    died = false;
    chance = seed * 77777;
    make_pair();
    for (unsigned n = 0; n < 3000; n++) {
        unsigned i = below(2);

        if (below(200) == 0 && member[i].replica) {
            unsigned what = below(5);

            if (what == 0)
                member[i].cut = !member[i].cut;
            else if (what == 1)
                lost_in_100 = below(30), delay_max = 1 + below(2 * ELECTION_MS);
            else if (what == 2 && !stopped[i])
                stopped[i] = member[i].replica, wakes[i] = n + below(6 * ELECTION_MS);
            else if (what == 3)
                member[i].mute = !member[i].mute;
            else if (!by_claim && !stopped[0] && below(2) == 0)
                destroy(0), died = true;
        }
        for (i = 0; i < 2; i++) {
            if (stopped[i])
                member[i].replica = NULL;
            if (stopped[i] && n >= wakes[i]) {
                member[i].replica = stopped[i];
                stopped[i] = NULL;
            }
            if (over[i])
                destroy(i), over[i] = false;
            if (!stopped[i])
                look_at_pair(i, by_claim, over);
        }
        if (leader() && below(3) == 0) {
            snprintf(text, sizeof(text), "%u,", n);
            propose(leader(), text);
        }
        step();
    }
    for (unsigned i = 0; i < 2; i++)
        if (stopped[i])
            member[i].replica = stopped[i];
    moves += !by_claim && died && leader() == &member[1];
    replicas_teardown();
}

TEST(of_a_pair_only_one_ever_goes_on)
{
    for (uint64_t seed = 1; seed <= 200; seed++)
        run_pair(seed);
    ck_assert_uint_gt(moves, 10);
    replicas_setup();
}
