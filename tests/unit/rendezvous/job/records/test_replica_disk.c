/* SPDX-License-Identifier: MIT */
/* takes: 12 s */
/*
 * Replicas whose processes die and whose machines lose power: each comes back as the
 * one that it was, with its vote and all that it has called kept.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/wire.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/records/journal.h"
#include "rendezvous/job/records/journal_format.h"
#include "rendezvous/job/records/replica.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/replica_world.h"

/* What a replica writes without a sync once an entry lasts. */
#define LASTING_SIZE (JOURNAL_BATCH_HEADER_SIZE + JOURNAL_RECORD_HEADER_SIZE + 8)

static void give_disks(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        member[i].disk = memdisk_create();
}

/* The machine loses power: what was not synced may be gone. */
static void crash(unsigned i)
{
    destroy(i);
    memdisk_crash(member[i].disk, chance + below(1000));
}

static uint8_t *copy_disk(unsigned i, size_t *size)
{
    const uint8_t *data = memdisk_get(member[i].disk, JOURNAL_NAME, size);

    return xmemdup(data, *size);
}

static void run(unsigned ms)
{
    while (ms-- > 0)
        step();
}

static void expect_records(const struct member *m, const char *text)
{
    size_t size;
    const uint8_t *records = replica_records(m->replica, &size);

    ck_assert_msg(size == strlen(text) &&
                      (size == 0 || memcmp(records, text, size) == 0),
                  "%.*s, and not %s", (int)size, (const char *)records, text);
}

NEEDS(replica_is_built, "there is no libraft");
FIXTURE(replicas_setup, replicas_teardown);

TEST(one_that_starts_again_is_the_same_one)
{
    give_disks(1);
    create(0, true);
    replica_tick(member[0].replica, world_ms);
    propose(&member[0], "one");
    propose(&member[0], "two");
    ck_assert(replica_is_settled(member[0].replica, world_ms));
    crash(0);
    chance = 7; /* the id of a new one would be another */
    create(0, false);
    ck_assert_uint_eq(replica_id(member[0].replica), 100);
    ck_assert_uint_gt(replica_last(member[0].replica), 2);
    ck_assert_ptr_nonnull(wait_for_leader(3 * ELECTION_MS));
    expect_records(&member[0], "onetwo");
}

/* Each prefix of the file is what a crash may leave, if nothing after it was synced. */
TEST(every_torn_tail_leaves_what_was_there_before)
{
    size_t size, lasted[8];
    uint8_t *all;

    give_disks(1);
    create(0, true);
    replica_tick(member[0].replica, world_ms);
    for (unsigned i = 0; i < 8; i++) {
        propose(&member[0], (char[]){ (char)('a' + i), '\0' });
        memdisk_get(member[0].disk, JOURNAL_NAME, &lasted[i]);
        lasted[i] -= LASTING_SIZE;
    }
    destroy(0);
    all = copy_disk(0, &size);
    for (size_t cut = 0; cut <= size; cut++) {
        char want[9] = "abcdefgh";
        unsigned n = 0;
        struct err e;

        memdisk_kill(member[0].disk);
        memdisk_put(member[0].disk, JOURNAL_NAME, all, cut);
        if (create_with_disk(0, false, &e) < 0) {
            ck_assert_uint_lt(cut, JOURNAL_FILE_HEADER_SIZE);
            ck_assert_ptr_nonnull(strstr(e.text, "its header"));
            continue;
        }
        while (n < 8 && lasted[n] <= cut)
            n++;
        want[n] = '\0';
        if (replica_last(member[0].replica) > 0)
            ck_assert_ptr_nonnull(wait_for_leader(3 * ELECTION_MS));
        lasting_size = 0;
        expect_records(&member[0], want);
        destroy(0);
    }
    free(all);
}

/* To vote for `candidate`, which has so many entries. */
static void ask_for_vote(unsigned i, uint64_t candidate, uint64_t term, uint64_t last)
{
    uint8_t data[128];
    struct wire_out w = { .start = data, .size = sizeof(data) };
    char address[16];

    snprintf(address, sizeof(address), "%u", (unsigned)candidate);
    for (unsigned k = 0; k < 3; k++)
        wire_put_u64(&w, 0);
    wire_put_u64(&w, candidate);
    wire_put_text(&w, address);
    wire_put_u8(&w, 3);
    wire_put_u64(&w, term);
    wire_put_u64(&w, candidate);
    wire_put_u64(&w, last);
    wire_put_u64(&w, last ? term - 1 : 0);
    wire_put_u8(&w, 1); /* though there is a leader */
    wire_put_u8(&w, 0);
    replica_receive(member[i].replica, data, w.used, world_ms);
}

/* Drops all messages; true if one of them grants it the vote of that term. */
static bool take_vote(uint64_t to, uint64_t term)
{
    struct parcel *p;
    bool granted = false;

    while ((p = parcels)) {
        struct wire_in in = { .next = p->data, .left = p->size };
        char address[16];

        parcels = p->next;
        for (unsigned k = 0; k < 4; k++)
            (void)wire_get_u64(&in);
        wire_get_text(&in, address, sizeof(address));
        if (p->to == to && wire_get_u8(&in) == 4 && wire_get_u64(&in) == term)
            granted |= wire_get_u8(&in) == 1;
        free(p->data);
        free(p);
    }
    return granted;
}

TEST_LOOP(a_vote_is_given_once, 0, 40)
{
    uint64_t term;

    chance = 1000 + (unsigned)_i;
    give_disks(3);
    make_voters(3);
    (void)take_vote(0, 0);
    term = replica_term(member[1].replica) + 5;
    if (_i % 2) { /* it has been in that term before, without a vote */
        ask_for_vote(1, 0xffff, term, 0);
        ck_assert(!take_vote(0xffff, term));
        crash(1);
        create(1, false);
        ck_assert_uint_eq(replica_term(member[1].replica), term);
    }
    ask_for_vote(1, 100, term, 1000);
    ck_assert(take_vote(100, term));
    crash(1);
    create(1, false);
    ck_assert_uint_eq(replica_term(member[1].replica), term);
    ask_for_vote(1, 102, term, 1000);
    ck_assert(!take_vote(102, term));
    ask_for_vote(1, 100, term, 1000);
    ck_assert(take_vote(100, term));
}

/* An answer to entries is sent only after they are on the disk. */
TEST_LOOP(what_lasts_survives_the_crash_of_all, 0, 20)
{
    char text[16];

    chance = 2000 + (unsigned)_i;
    give_disks(3);
    make_voters(3);
    for (unsigned n = 0; n < 5 + below(40); n++) {
        struct member *l = wait_for_leader(3000);

        ck_assert_ptr_nonnull(l);
        snprintf(text, sizeof(text), "%u ", n);
        propose(l, text);
        run(below(3));
    }
    for (unsigned i = 0; i < 3; i++)
        crash(i);
    for (unsigned i = 0; i < 3; i++)
        create(i, false);
    ck_assert_ptr_nonnull(wait_for_leader(5000)); /* check_speakers sees the rest */
    ck_assert(all_vote(3));
}

/* -- at random ----------------------------------------------------------------------
 */

static void disturb_disk(unsigned i)
{
    unsigned what = below(100);

    if (member[i].replica && replica_error(member[i].replica))
        destroy(i);
    if (!member[i].replica) {
        if (what < 30) {
            memdisk_crash(member[i].disk, chance);
            create(i, false);
        }
    } else if (what < 10) {
        crash(i);
    } else if (what < 20) { /* in the middle of what it does */
        memdisk_cut_power_after(member[i].disk, below(6));
    } else if (what < 25) {
        memdisk_fail_next_sync(member[i].disk);
    } else {
        member[i].cut = what < 40;
    }
}

static void run_disk_seed(uint64_t seed)
{
    char text[16];
    size_t before;

    replicas_setup();
    chance = seed;
    give_disks(3);
    make_voters(3);
    lost_in_100 = below(10);
    delay_max = 1 + below(30);
    for (unsigned turn = 0; turn < 60; turn++) {
        struct member *l = leader();

        snprintf(text, sizeof(text), "%u ", turn);
        if (l)
            propose(l, text);
        disturb_disk(below(3));
        run(below(ELECTION_MS));
    }
    lost_in_100 = 0;
    delay_max = 2;
    before = lasting_size;
    for (unsigned i = 0; i < 3; i++) {
        member[i].cut = false;
        crash(i);
        create(i, false);
    }
    ck_assert_msg(wait_for_leader(10000) != NULL, "seed %u", (unsigned)seed);
    ck_assert_uint_ge(lasting_size, before);
    replicas_teardown();
    memset(member, 0, sizeof(member));
}

TEST(under_crashes_and_bad_disks_nothing_is_forgotten)
{
    for (uint64_t seed = 1; seed <= 60; seed++)
        run_disk_seed(seed);
}

/* -- disks that are full, old, or another one's -------------------------------------
 */

TEST(a_full_disk_ends_the_replica_and_loses_nothing)
{
    char text[1200];
    unsigned n = 0;

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    give_disks(1);
    create(0, true);
    replica_tick(member[0].replica, world_ms);
    memdisk_set_room(member[0].disk, memdisk_used(member[0].disk) + 8000);
    while (!replica_error(member[0].replica) && n < 10000) {
        snprintf(text, 5, "%04u", n);
        text[4] = 'x';
        propose(&member[0], text);
        n += replica_is_settled(member[0].replica, world_ms);
    }
    ck_assert_uint_lt(n, 10000);
    ck_assert_uint_gt(n, 0);
    ck_assert(!replica_leads(member[0].replica));
    ck_assert_ptr_nonnull(strstr(replica_error(member[0].replica), "cannot write"));
    crash(0);
    memdisk_set_room(member[0].disk, SIZE_MAX);
    lasting_size = 0;
    compact_size = 1;
    create(0, false);
    ck_assert_ptr_nonnull(wait_for_leader(3 * ELECTION_MS));
    ck_assert_uint_gt(replica_last(member[0].replica), n);
}

TEST(the_records_of_a_long_job_come_back_from_a_snapshot)
{
    char text[8];

    give_disks(4);
    make_voters(3);
    compact_size = 4;
    for (unsigned i = 0; i < 5 * COMPACT_AFTER; i++) {
        snprintf(text, sizeof(text), "%03u ", i);
        propose(&member[0], text);
        run(5);
    }
    add_voter(3); /* gets the snapshot */
    ck_assert_uint_gt(snapshots_delivered, 0);
    for (unsigned i = 0; i < 4; i++)
        crash(i);
    for (unsigned i = 0; i < 4; i++)
        create(i, false);
    ck_assert_ptr_nonnull(wait_for_leader(5000));
    run(2 * ELECTION_MS);
    for (unsigned i = 0; i < 4; i++) {
        size_t size;
        const uint8_t *records = replica_records(member[i].replica, &size);

        ck_assert_uint_ge(size, 4);
        ck_assert_int_eq(memcmp(records + size - 4, "099 ", 4), 0);
        ck_assert_uint_lt(size, 4u * 4 * COMPACT_AFTER);
    }
}

TEST(an_old_disk_put_back_is_noticed)
{
    size_t size;
    uint8_t *old;

    give_disks(3);
    make_voters(3);
    old = copy_disk(1, &size);
    propose(&member[0], "one");
    run(50);
    ck_assert(
        !replica_has_lost(member[0].replica, 101, replica_last(member[1].replica)));
    destroy(1);
    memdisk_kill(member[1].disk);
    memdisk_put(member[1].disk, JOURNAL_NAME, old, size);
    free(old);
    create(1, false);
    run(50);
    ck_assert(
        replica_has_lost(member[0].replica, 101, replica_last(member[1].replica)));
    for (unsigned k = 0; k < 1000; k++, step()) /* off the list, and on it again */
        if (replica_remove(member[0].replica, 101, world_ms) == 0)
            break;
    for (unsigned k = 0; k < 100; k++, step())
        if (replica_add(member[0].replica, 101, "101", world_ms) == 0)
            break;
    for (unsigned k = 0; k < 2000 && !all_vote(3); k++) {
        if (replica_count(member[0].replica) == 3)
            (void)replica_set_vote(member[0].replica, 101, true, world_ms);
        step();
    }
    expect_records(&member[1], "one");
    ck_assert(all_vote(3));
}

/* An old copy and one that lags have made a majority: the third one knows better. What
 * lasted last is known as well, after the end of its process. */
TEST_LOOP(entries_that_lasted_are_not_given_up_in_silence, 0, 2)
{
    size_t size;
    uint8_t *old;

    give_disks(3);
    make_voters(3);
    old = copy_disk(1, &size);
    destroy(2);
    propose(&member[0], "one");
    run(50);
    destroy(1);
    if (_i == 0)
        destroy(0); /* else it is cut off */
    member[0].cut = true;
    memdisk_kill(member[1].disk);
    memdisk_put(member[1].disk, JOURNAL_NAME, old, size);
    free(old);
    create(1, false);
    create(2, false);
    for (unsigned k = 0; k < 5000 && !(leader() && leader() != &member[0]); k++) {
        lasting_size = 0;
        step();
    }
    ck_assert(leader() && leader() != &member[0]);
    member[0].cut = false;
    if (_i == 0)
        create(0, false);
    for (unsigned k = 0; k < 5000 && !replica_error(member[0].replica); k++)
        step();
    ck_assert_ptr_nonnull(replica_error(member[0].replica));
    ck_assert_ptr_nonnull(strstr(replica_error(member[0].replica), "had acknowledged"));
    destroy(0);
    memdisk_kill(member[0].disk);
    create(0, false); /* it still has them */
    ck_assert_uint_gt(replica_last(member[0].replica), 4);
}

TEST(the_disk_of_another_one_is_refused)
{
    static const char job[] = "0123456789abcdef";
    struct journal *j;
    struct err e;

    give_disks(2);
    create(0, true);
    destroy(0);
    memdisk_destroy(member[1].disk);
    member[1].disk = member[0].disk;
    ck_assert_int_lt(create_with_disk(1, false, &e), 0);
    member[1].disk = NULL;
    ck_assert_ptr_nonnull(strstr(e.text, "it is that of 100, and this is 101"));
    member[1].disk = memdisk_create();
    j = journal_create_kept(&(struct journal_keeper){ 0 });
    journal_close(j);
    {
        uint64_t cut;

        j = journal_open(memdisk_disk(member[1].disk), NULL, NULL, &cut, &e);
        ck_assert_ptr_nonnull(j);
        journal_append(j, 1, job, sizeof(job));
        ck_assert_int_eq(journal_commit(j, &e), 0);
        journal_close(j);
    }
    ck_assert_int_lt(create_with_disk(1, false, &e), 0);
    ck_assert_ptr_nonnull(strstr(e.text, "a crund without --peers"));
}
