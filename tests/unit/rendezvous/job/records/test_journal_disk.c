/* SPDX-License-Identifier: MIT */
/*
 * The journal on a disk that is full, fails or loses its power, and its snapshots.
 */
#include "rendezvous/job/records/journal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/job/records/limits.h"
#include "tests/fakes/disk/memdisk.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/journal_world.h"

static void dump_much(void *arg, struct journal *j)
{
    dump_count(arg, j);
    for (int i = 0; i < 40; i++)
        journal_append(j, TYPE_PADDING, big, sizeof(big));
}

FIXTURE(setup, teardown);

TEST(after_a_failed_sync_nothing_is_taken_any_more)
{
    unsigned count;
    struct journal *j = must_open(&count);

    append_record(j, 0);
    must_commit(j);
    append_record(j, 1);
    memdisk_fail_next_sync(m);
    ck_assert_int_eq(journal_commit(j, &e), -1);
    ck_assert_str_eq(e.text, "journal: cannot sync: Input/output error");
    ck_assert_int_eq(journal_commit(j, &e), -1);
    ck_assert_int_eq(journal_snapshot(j, dump_count, &count, &e), -1);
    journal_close(j);
    memdisk_kill(m);
    expect_count(1);
}

/* Commit records until the room is gone; returns how many were taken. */
static unsigned commit_until_failure(struct journal *j, unsigned count)
{
    for (;; count++) {
        for (int k = 0; k < 4; k++)
            journal_append(j, TYPE_PADDING, big, 8000);
        append_record(j, count);
        if (journal_commit(j, &e) < 0)
            return count;
    }
}

TEST(a_full_disk_is_known_while_there_is_room_to_go_on)
{
    unsigned count, taken;
    struct journal *j = must_open(&count);

    memdisk_set_room(m, memdisk_used(m));
    ck_assert(!journal_is_full(j));
    while (!journal_is_full(j)) {
        for (int k = 0; k < 4; k++)
            journal_append(j, TYPE_PADDING, big, 8000);
        append_record(j, count++);
        must_commit(j);
    }
    taken = commit_until_failure(j, count);
    ck_assert_uint_ge((taken - count) * 32000, JOURNAL_RESERVE_BYTES - 40000);
    ck_assert_str_eq(e.text, "journal: cannot write: No space left on device");
    journal_close(j);
    memdisk_crash(m, 7);
    expect_count(taken);
}

TEST(a_full_disk_ends_when_there_is_room_again)
{
    unsigned count;
    struct journal *j;

    memdisk_set_room(m, 8192);
    j = must_open(&count);
    ck_assert(journal_is_full(j));
    append_record(j, 0);
    must_commit(j);
    ck_assert(journal_is_full(j));
    memdisk_set_room(m, SIZE_MAX);
    ck_assert(!journal_is_full(j));
    journal_close(j);
    expect_count(1);
}

TEST(a_journal_on_a_full_disk_opens)
{
    struct sample s = sample_make();
    unsigned count;
    struct journal *j;

    memdisk_set_room(m, 0);
    j = must_open(&count);
    ck_assert_uint_eq(count, s.counts[BATCHES]);
    ck_assert(journal_is_full(j));
    journal_close(j);
    free(s.data);
}

TEST(a_snapshot_stands_for_all_before_it)
{
    struct sample s = sample_make();
    unsigned count;
    struct journal *j = must_open(&count);
    size_t size;

    append_record(j, count++);
    ck_assert_int_eq(journal_snapshot(j, dump_much, &count, &e), 0);
    memdisk_get(m, JOURNAL_NAME, &size);
    ck_assert_uint_gt(size, 40u * sizeof(big));
    ck_assert_ptr_null(memdisk_get(m, JOURNAL_NEW_NAME, &size));
    ck_assert(!journal_is_full(j));
    append_record(j, count++);
    must_commit(j);
    journal_close(j);
    memdisk_crash(m, 3);
    expect_count(count);
    free(s.data);
}

TEST(a_snapshot_has_its_own_reserve)
{
    unsigned count;
    struct journal *j = must_open(&count);

    ck_assert_int_eq(journal_snapshot(j, dump_count, &count, &e), 0);
    memdisk_set_room(m, memdisk_used(m));
    ck_assert_uint_ge(commit_until_failure(j, 0) * 32000,
                      JOURNAL_RESERVE_BYTES - 40000);
    journal_close(j);
}

TEST(a_snapshot_is_wanted_when_the_tail_has_grown)
{
    unsigned count;
    struct journal *j = must_open(&count);
    size_t size, before;

    for (int life = 0; life < 2; life++) {
        memdisk_get(m, JOURNAL_NAME, &before);
        while (!journal_wants_snapshot(j)) {
            for (int k = 0; k < 16; k++)
                journal_append(j, TYPE_PADDING, big, sizeof(big));
            must_commit(j);
        }
        memdisk_get(m, JOURNAL_NAME, &size);
        ck_assert_uint_gt(size - before, JOURNAL_SNAPSHOT_BYTES - 64);
        ck_assert_uint_lt(size - before, JOURNAL_SNAPSHOT_BYTES + (3u << 20));
        ck_assert_int_eq(journal_snapshot(j, dump_count, &count, &e), 0);
        ck_assert(!journal_wants_snapshot(j));
    }
    journal_close(j);
}

TEST(a_snapshot_without_room_leaves_all_as_it_was)
{
    struct sample s = sample_make();
    unsigned count;
    struct journal *j = must_open(&count);
    size_t size;

    memdisk_set_room(m, memdisk_used(m) + 2 * sizeof(big));
    ck_assert_int_eq(journal_snapshot(j, dump_much, &count, &e), 1);
    ck_assert_str_eq(e.text,
                     "journal: no room for a snapshot: No space left on device");
    ck_assert_ptr_null(memdisk_get(m, JOURNAL_NEW_NAME, &size));
    ck_assert(!journal_wants_snapshot(j));
    append_record(j, count++);
    must_commit(j);
    journal_close(j);
    memdisk_crash(m, 5);
    expect_count(count);
    free(s.data);
}

TEST(a_snapshot_without_room_is_wanted_again_soon)
{
    unsigned count, commits = 0;
    struct journal *j = must_open(&count);

    while (!journal_wants_snapshot(j)) {
        journal_append(j, TYPE_PADDING, big, sizeof(big));
        must_commit(j);
    }
    memdisk_set_room(m, memdisk_used(m) + sizeof(big));
    ck_assert_int_eq(journal_snapshot(j, dump_much, &count, &e), 1);
    for (; !journal_wants_snapshot(j); commits++) {
        journal_append(j, TYPE_PADDING, big, 1000);
        must_commit(j);
    }
    ck_assert_uint_ge(commits, 100);
    ck_assert_uint_le(commits * 1000, JOURNAL_RESERVE_BYTES / 2);
    journal_close(j);
}

/* A disk that stays full: what the snapshots give back is enough to go on for ever. */
TEST(on_a_full_disk_snapshots_keep_it_going)
{
    unsigned count, snapshots = 0;
    struct journal *j = must_open(&count);

    memdisk_set_room(m, memdisk_used(m));
    for (uint64_t written = 0; written < 20 * JOURNAL_RESERVE_BYTES; written += 32000) {
        for (int k = 0; k < 4; k++)
            journal_append(j, TYPE_PADDING, big, 8000);
        append_record(j, count++);
        must_commit(j);
        if (journal_wants_snapshot(j)) {
            ck_assert_int_eq(journal_snapshot(j, dump_count, &count, &e), 0);
            snapshots++;
        }
    }
    ck_assert_uint_ge(snapshots, 5);
    ck_assert_uint_le(snapshots, 30);
    journal_close(j);
    memdisk_crash(m, 9);
    expect_count(count);
}

TEST(a_reserve_that_did_not_do_for_a_snapshot_is_kept)
{
    unsigned count, taken;
    struct journal *j = must_open(&count);

    memdisk_set_room(m, memdisk_used(m));
    while (!journal_wants_snapshot(j)) {
        journal_append(j, TYPE_PADDING, big, 8000);
        append_record(j, count++);
        must_commit(j);
    }
    ck_assert_int_eq(journal_snapshot(j, dump_much, &count, &e), 1);
    ck_assert(!journal_wants_snapshot(j));
    taken = commit_until_failure(j, count);
    ck_assert_uint_ge((taken - count) * 32000, JOURNAL_RESERVE_BYTES / 2 - 80000);
    journal_close(j);
    expect_count(taken);
}

TEST(a_snapshot_left_unfinished_is_removed)
{
    struct sample s = sample_make();
    size_t size;

    memdisk_put(m, JOURNAL_NEW_NAME, s.data, s.ends[2]);
    expect_count(s.counts[BATCHES]);
    ck_assert_ptr_null(memdisk_get(m, JOURNAL_NEW_NAME, &size));
    free(s.data);
}

/* A crash at every operation of opening, committing and taking a snapshot. */
TEST(a_crash_at_any_point_loses_nothing_acknowledged)
{
    unsigned first = memdisk_operations(m);
    unsigned operations = 0;
    bool through = false;

    for (unsigned at = 0; !through; at++) {
        for (uint64_t seed = 0; seed < 30; seed++) {
            unsigned count, acknowledged = 0;
            struct journal *j;

            teardown();
            setup();
            first = memdisk_operations(m);
            memdisk_cut_power_after(m, at);
            j = try_open(&count);
            for (int step = 0; j && step < 6; step++) {
                append_record(j, count++);
                append_record(j, count++);
                if (step == 3 ? journal_snapshot(j, dump_count, &count, &e) != 0
                              : journal_commit(j, &e) != 0)
                    break;
                acknowledged = count;
            }
            through = acknowledged == 12;
            operations = memdisk_operations(m) - first;
            journal_close(j);
            memdisk_crash(m, seed * 1000 + at);
            j = must_open(&count);
            ck_assert_uint_ge(count, acknowledged);
            ck_assert_uint_le(count, acknowledged + 2);
            ck_assert_uint_eq(count % 2, 0);
            journal_close(j);
        }
    }
    ck_assert_uint_gt(operations, 15);
}

/* One life: work until the power fails. Returns what was acknowledged. */
static unsigned live(struct journal *j, unsigned count, uint64_t *rng)
{
    unsigned acknowledged = count;

    for (;;) {
        unsigned records = 1 +
                           (unsigned)((*rng = *rng * 6364136223846793005ull + 1) >> 62);

        for (unsigned k = 0; k < records; k++)
            append_record(j, count++);
        if (*rng >> 40 & 1)
            journal_append(j, TYPE_PADDING, big, *rng >> 50);
        if (journal_commit(j, &e) < 0)
            return acknowledged;
        acknowledged = count;
        if ((*rng >> 48) % 8 == 0 && journal_snapshot(j, dump_count, &count, &e) != 0)
            return acknowledged;
    }
}

TEST(many_lives_that_end_badly_lose_nothing_acknowledged)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        uint64_t rng = seed * 77 + 1;
        unsigned known = 0;

        teardown();
        setup();
        for (int life = 0; life < 25; life++) {
            unsigned count;
            struct journal *j;

            memdisk_set_chunk(m, life % 3 ? SIZE_MAX : 100);
            memdisk_cut_power_after(m, (unsigned)(rng >> 33) % 23);
            j = try_open(&count);
            if (j) {
                ck_assert_msg(count >= known, "seed %" PRIu64 " life %d: %u of %u",
                              seed, life, count, known);
                known = live(j, count, &rng);
            } else {
                ck_assert_msg(strstr(e.text, "damaged") == NULL, "%s", e.text);
                rng = rng * 6364136223846793005ull + 1;
            }
            journal_close(j);
            if (rng >> 60 == 0)
                memdisk_kill(m);
            else
                memdisk_crash(m, rng);
        }
    }
}
