/* SPDX-License-Identifier: MIT */
/* What one of several replicas has called lasting is never forgotten. */
#include "rendezvous/job/records/replica.h"

#include <stdio.h>

#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/replica_world.h"

TEST(a_build_without_libraft_has_none)
{
    struct replica_config config = { .id = 1 };
    struct err e;

    if (!replica_is_built())
        ck_assert_ptr_null(replica_create(&config, 0, &e));
}

NEEDS(replica_is_built, "there is no libraft");
FIXTURE(replicas_setup, replicas_teardown);

TEST(the_founder_leads_at_once_and_alone)
{
    const uint8_t *records;
    size_t size;

    create(0, true);
    replica_tick(member[0].replica, world_ms);
    ck_assert(replica_is_settled(member[0].replica, world_ms));
    propose(&member[0], "one");
    ck_assert(replica_is_settled(member[0].replica, world_ms));
    records = replica_records(member[0].replica, &size);
    ck_assert_uint_eq(size, 3);
    ck_assert_int_eq(memcmp(records, "one", 3), 0);
}

TEST(nothing_lasts_before_a_majority_has_it)
{
    size_t size;

    make_voters(3);
    member[1].cut = member[2].cut = true;
    propose(&member[0], "one");
    ck_assert(!replica_is_settled(member[0].replica, world_ms));
    member[1].cut = false;
    ck_assert(wait_for_leader(100) == &member[0]);
    replica_records(member[1].replica, &size);
    step();
    for (unsigned i = 0; i < 100; i++)
        step();
    replica_records(member[1].replica, &size);
    ck_assert_uint_eq(size, 3);
}

TEST(what_does_not_last_yet_is_no_silence)
{
    make_voters(3);
    propose(&member[0], "one");
    ck_assert(replica_is_heard(member[0].replica, world_ms));
    member[0].cut = true;
    for (unsigned i = 0; i < ELECTION_MS; i++)
        step();
    ck_assert(!replica_is_heard(member[0].replica, world_ms));
}

TEST(another_one_leads_on_with_all_that_lasted)
{
    uint64_t died;

    make_voters(3);
    propose(&member[0], "one");
    ck_assert(wait_for_leader(100) == &member[0]);
    propose(&member[0], "two");
    ck_assert(wait_for_leader(100) == &member[0]);
    destroy(0);
    died = world_ms;
    ck_assert(wait_for_leader(5000) != NULL);
    ck_assert_uint_ge(world_ms - died, ELECTION_MS / 2);
    ck_assert_uint_eq(lasting_size, 6);
    propose(leader(), "three");
    ck_assert(wait_for_leader(100) != NULL);
    ck_assert_uint_eq(lasting_size, 11);
}

TEST(a_leader_whose_process_is_gone_is_replaced_at_once)
{
    make_voters(3);
    destroy(0);
    replica_note_gone(member[2].replica, 100, world_ms);
    replica_note_gone(member[1].replica, 100, world_ms);
    ck_assert(wait_for_leader(ELECTION_MS / 2) != NULL);
}

TEST(a_leader_that_lives_is_not_replaced_by_one_rumour)
{
    make_voters(3);
    replica_note_gone(member[1].replica, 100, world_ms);
    for (unsigned i = 0; i < 5 * ELECTION_MS; i++) {
        step();
        ck_assert(leader() == &member[0]);
    }
}

TEST(a_leader_that_is_cut_off_does_not_speak)
{
    make_voters(3);
    member[0].cut = true;
    for (unsigned i = 0; i < ELECTION_MS; i++)
        step();
    ck_assert(!replica_is_settled(member[0].replica, world_ms));
    ck_assert(wait_for_leader(5000) != NULL);
    ck_assert(!replica_leads(member[0].replica));
    member[0].cut = false;
    for (unsigned i = 0; i < 5 * ELECTION_MS; i++)
        step();
    ck_assert_uint_eq(replica_leader(member[0].replica), leader()->id);
}

TEST(a_change_that_did_not_last_is_taken_back_also_behind_a_snapshot)
{
    compact_size = 60;
    make_voters(3);
    for (unsigned i = 0; i < 200; i++) { /* their list is in the snapshot alone */
        propose(&member[0], "record");
        step();
    }
    for (unsigned i = 0; i < 100; i++)
        step();
    member[0].cut = true;
    ck_assert_int_eq(replica_add(member[0].replica, 103, "103", world_ms), 0);
    ck_assert_uint_eq(replica_count(member[0].replica), 4);
    for (unsigned i = 0; i < ELECTION_MS; i++)
        step();
    ck_assert(wait_for_leader(5000) != &member[0]);
    propose(leader(), "record");
    member[0].cut = false;
    for (unsigned i = 0; i < 5 * ELECTION_MS; i++)
        step();
    ck_assert_uint_eq(replica_leader(member[0].replica), leader()->id);
    ck_assert_uint_eq(replica_count(member[0].replica), 3);
}

TEST(a_leader_that_was_stopped_does_not_speak_when_it_continues)
{
    struct replica *stopped;

    make_voters(3);
    stopped = member[0].replica;
    member[0].replica = NULL;
    ck_assert(wait_for_leader(5000) != NULL);
    ck_assert(!replica_is_settled(stopped, world_ms));
    member[0].replica = stopped;
    step();
    ck_assert(leader() != &member[0]);
}

TEST(a_lost_one_is_taken_off_the_list)
{
    make_voters(3);
    destroy(2);
    while (replica_remove(member[0].replica, 102, world_ms) < 0)
        step();
    for (unsigned i = 0; i < 100; i++)
        step();
    ck_assert_uint_eq(replica_count(member[0].replica), 2);
    ck_assert_int_eq(replica_set_vote(member[0].replica, 101, false, world_ms), 0);
    for (unsigned i = 0; i < 100; i++)
        step();
    destroy(1); /* the vote of the leader is enough now */
    replica_go_on_alone(member[0].replica, world_ms);
    propose(&member[0], "one");
    ck_assert(wait_for_leader(100) == &member[0]);
}

/* Else the list of the leader is one that can decide nothing, and the list of the one
 * that it has taken off, older records: neither ever leads again. */
TEST(one_that_answers_is_not_taken_off)
{
    make_voters(3);
    destroy(2);
    for (unsigned i = 0; i < 2 * ELECTION_MS; i++, step())
        ck_assert_int_lt(replica_remove(member[0].replica, 101, world_ms), 0);
    ck_assert_int_lt(replica_set_vote(member[0].replica, 101, false, world_ms), 0);
    ck_assert_int_eq(replica_remove(member[0].replica, 102, world_ms), 0);
}

/* The third one is silent, and nobody knows it yet. */
TEST(one_that_leaves_keeps_its_vote_beside_a_silent_one)
{
    make_voters(3);
    member[1].cut = true;
    for (unsigned i = 0; i < 2 * ELECTION_MS; i++, step())
        ck_assert_int_lt(replica_set_vote(member[0].replica, 102, false, world_ms), 0);
    member[1].cut = false;
    for (unsigned i = 0; i < ELECTION_MS; i++, step())
        if (replica_set_vote(member[0].replica, 102, false, world_ms) == 0)
            return;
    ck_abort_msg("it keeps its vote");
}

/* Its node leaves while no other one can take its place. */
TEST(one_that_leaves_is_needed_until_it_knows_that_it_has_no_vote)
{
    make_voters(3);
    while (replica_set_vote(member[0].replica, 102, false, world_ms) < 0)
        step();
    while (replica_is_needed(member[2].replica))
        step();
    while (replica_remove(member[0].replica, 102, world_ms) < 0)
        step();
    destroy(2);
    destroy(1); /* and this one's vote would be needed */
    for (unsigned i = 0; i < 2 * ELECTION_MS; i++)
        step();
    ck_assert(leader() == NULL);
}

/* Its node is not part of the job any more, and its process ends soon. */
TEST(one_that_answers_is_taken_off_if_another_one_can_be_lost_then)
{
    make_voters(4);
    for (unsigned i = 0; i < ELECTION_MS; i++)
        step();
    ck_assert_int_eq(replica_remove(member[0].replica, 101, world_ms), 0);
    for (unsigned i = 0; i < 100; i++)
        step();
    ck_assert_uint_eq(replica_count(member[0].replica), 3);
    destroy(1);
    destroy(2);
    propose(&member[0], "one");
    ck_assert(wait_for_leader(1000) == &member[0]);
}

TEST(one_that_does_not_follow_stops_no_other_change)
{
    struct replica_member m;

    make_voters(3);
    while (replica_add(member[0].replica, 103, "103", world_ms) < 0)
        step();
    for (unsigned i = 0; i < 100; i++)
        step();
    replica_show(member[0].replica, 3, &m);
    ck_assert(!m.keeps && !m.follows);
    propose(&member[0], "one");
    ck_assert_int_eq(replica_set_vote(member[0].replica, 103, true, world_ms), 0);
    ck_assert(replica_is_changing(member[0].replica));
    for (unsigned i = 0; i < 3 * ELECTION_MS; i++)
        step();
    ck_assert_int_eq(replica_remove(member[0].replica, 103, world_ms), 0);
}

TEST(one_that_gets_records_follows_before_it_votes)
{
    struct replica_member m;

    make_voters(3);
    propose(&member[0], "one");
    create(3, false);
    while (replica_add(member[0].replica, 103, "103", world_ms) < 0)
        step();
    for (unsigned i = 0; i < 100; i++)
        step();
    ck_assert_int_eq(replica_set_vote(member[0].replica, 103, false, world_ms), 0);
    for (unsigned i = 0; i < ELECTION_MS; i++)
        step();
    replica_show(member[0].replica, 3, &m);
    ck_assert(m.follows && !m.votes && m.keeps);
    destroy(3);
    for (unsigned i = 0; i < 2 * ELECTION_MS; i++)
        step();
    replica_show(member[0].replica, 3, &m);
    ck_assert(!m.follows);
}

/* Its answers are too old to prove that no other one leads, but it lives. */
TEST(one_that_answers_late_is_not_taken_off)
{
    make_voters(3);
    member[1].slow = 2 * ELECTION_MS;
    for (unsigned i = 0; i < 3 * ELECTION_MS; i++)
        step();
    for (unsigned i = 0; i < 3 * ELECTION_MS; i++, step())
        ck_assert_int_lt(replica_remove(member[0].replica, 101, world_ms), 0);
    ck_assert(leader() == &member[0]);
}

/* Its last answer is recent, but proves no more that a list with it can decide. */
TEST(one_whose_process_is_gone_makes_no_majority)
{
    make_voters(3);
    member[1].cut = true;
    for (unsigned i = 0; i < 2 * ELECTION_MS; i++)
        step();
    destroy(2);
    replica_note_gone(member[0].replica, 102, world_ms);
    ck_assert_int_lt(replica_remove(member[0].replica, 101, world_ms), 0);
    member[1].cut = false;
    ck_assert(wait_for_leader(5000) != NULL);
}

/* So a new leader waits until it knows which ones answer. */
TEST(a_new_leader_takes_off_none_that_answers)
{
    struct member *m;

    make_voters(3);
    destroy(0);
    m = wait_for_leader(5000);
    ck_assert_ptr_nonnull(m);
    for (unsigned i = 0; i < 2 * ELECTION_MS; i++, step())
        ck_assert_int_lt(
            replica_remove(m->replica, m == &member[1] ? 102 : 101, world_ms), 0);
    ck_assert(leader() == m);
    ck_assert_int_eq(replica_remove(m->replica, 100, world_ms), 0);
}

TEST(garbage_changes_nothing)
{
    uint8_t data[200];

    make_voters(3);
    for (unsigned i = 0; i < 20000; i++) {
        size_t size = below(sizeof(data));

        for (size_t k = 0; k < size; k++)
            data[k] = (uint8_t)below(256);
        if (size > 18 && below(2)) { /* a good beginning: from 104, address "" */
            memset(data + 8, 0, 11);
            data[8] = 104;
            data[18] = (uint8_t)below(8);
        }
        replica_receive(member[1].replica, data, size < 19 ? size : 19 + below(60),
                        world_ms);
    }
    ck_assert_uint_eq(replica_count(member[1].replica), 3);
}

static void expect_last_record(struct member *m, const char *text)
{
    size_t size;
    const uint8_t *records = replica_records(m->replica, &size);

    ck_assert_uint_ge(size, strlen(text));
    ck_assert_int_eq(memcmp(records + size - strlen(text), text, strlen(text)), 0);
    /* what was compact, and what came since */
    ck_assert_uint_le(size, compact_size + (COMPACT_AFTER + 1) * 6);
}

TEST(records_of_a_long_job_stay_few_and_a_late_one_gets_them)
{
    char text[16];

    compact_size = 60;
    make_voters(3);
    for (unsigned i = 0; i < 5000; i++) {
        snprintf(text, sizeof(text), "%05u,", i);
        propose(&member[0], text);
        step();
    }
    ck_assert(wait_for_leader(100) == &member[0]);
    ck_assert_uint_eq(snapshots_delivered, 0);
    for (unsigned i = 0; i < 100; i++)
        step();
    for (unsigned i = 0; i < 3; i++)
        expect_last_record(&member[i], "04999,");
    add_voter(3);
    ck_assert_uint_ge(snapshots_delivered, 1);
    expect_last_record(&member[3], "04999,");
    destroy(0); /* a majority of four needs the late one */
    ck_assert(wait_for_leader(5000) != NULL);
    propose(leader(), "last,");
    ck_assert(wait_for_leader(100) != NULL);
    expect_last_record(leader(), "last,");
}

static void disturb(unsigned i)
{
    static struct replica *stopped[COUNT];

    switch (below(4)) {
    case 0:
        member[i].cut = !member[i].cut;
        break;
    case 1:
        for (unsigned k = 0; k < COUNT; k++)
            if (member[k].replica && leader())
                replica_note_gone(member[i].replica, leader()->id, world_ms);
        break;
    case 2: /* stopped for a while */
        stopped[i] = member[i].replica;
        member[i].replica = NULL;
        for (unsigned n = below(3 * ELECTION_MS); n > 0; n--)
            step();
        member[i].replica = stopped[i];
        break;
    default:
        lost_in_100 = below(30);
        delay_max = 1 + below(ELECTION_MS);
        break;
    }
}

static void run_seed(uint64_t seed)
{
    char text[16];

    replicas_setup();
    chance = seed * 77777;
    make_voters(seed % 2 ? 3 : 5);
    for (unsigned i = 0; i < 6000; i++) {
        if (below(300) == 0)
            disturb(below(seed % 2 ? 3 : 5));
        if (leader() && below(3) == 0) {
            snprintf(text, sizeof(text), "%u,", i);
            propose(leader(), text);
        }
        step();
    }
    for (unsigned i = 0; i < COUNT; i++)
        member[i].cut = false;
    lost_in_100 = 0;
    delay_max = 2;
    ck_assert_msg(wait_for_leader(20 * ELECTION_MS) != NULL,
                  "seed %u: nobody leads in the end", (unsigned)seed);
    replicas_teardown();
}

TEST(under_loss_cuts_and_stops_nothing_is_forgotten)
{
    for (uint64_t seed = 1; seed <= 30; seed++)
        run_seed(seed);
    replicas_setup();
}
