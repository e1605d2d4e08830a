/* SPDX-License-Identifier: MIT */
/*
 * The journal on a disk that forgets. Record i is a function of i, so that whoever
 * reads a journal can tell whether every record is right and in its place. A snapshot
 * is one record that says how many it stands for, with some padding after it.
 */
#include "rendezvous/journal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/limits.h"
#include "rendezvous/base/xalloc.h"
#include "rendezvous/journal_format.h"
#include "tests/helpers/check_main.h"
#include "tests/helpers/memdisk.h"

#define TYPE_SNAPSHOT 1000
#define TYPE_PADDING 1001
#define BATCHES 6

static uint8_t big[JOURNAL_RECORD_MAX];

static size_t record_make(unsigned i, uint8_t data[64])
{
    size_t size = (i * 7) % 41;

    for (size_t k = 0; k < size; k++)
        data[k] = (uint8_t)(i * 31 + k);
    return size;
}

static void append_record(struct journal *j, unsigned i)
{
    uint8_t data[64];
    size_t size = record_make(i, data);

    journal_append(j, i % 5, data, size);
}

/* Counts what it is given; anything out of its place is refused as "wrong". */
static int count_record(void *arg, unsigned type, const void *data, size_t size,
                        struct err *e)
{
    unsigned *count = arg;
    uint8_t want[64];

    if (type == TYPE_PADDING)
        return 0;
    if (type == TYPE_SNAPSHOT && size == sizeof(*count)) {
        memcpy(count, data, size);
        return 0;
    }
    if (type != *count % 5 || size != record_make(*count, want) ||
        memcmp(data, want, size) != 0)
        return err_set(e, "wrong record %u", *count);
    (*count)++;
    return 0;
}

static void dump_count(void *arg, struct journal *j)
{
    journal_append(j, TYPE_SNAPSHOT, arg, sizeof(unsigned));
    for (int i = 0; i < 3; i++)
        journal_append(j, TYPE_PADDING, big, 700);
}

static void dump_much(void *arg, struct journal *j)
{
    dump_count(arg, j);
    for (int i = 0; i < 40; i++)
        journal_append(j, TYPE_PADDING, big, sizeof(big));
}

static struct memdisk *m;
static struct err e;
static uint64_t cut;

static void setup(void)
{
    m = memdisk_create();
}

static void teardown(void)
{
    memdisk_destroy(m);
}

static struct journal *try_open(unsigned *count)
{
    *count = 0;
    e.text[0] = '\0';
    return journal_open(memdisk_disk(m), count_record, count, &cut, &e);
}

static struct journal *must_open(unsigned *count)
{
    struct journal *j = try_open(count);

    ck_assert_msg(j != NULL, "%s", e.text);
    return j;
}

static void must_commit(struct journal *j)
{
    ck_assert_msg(journal_commit(j, &e) == 0, "%s", e.text);
}

/* A journal of BATCHES batches; ends[i] and counts[i] are what stands after i of them.
 */
struct sample {
    uint8_t *data;
    size_t size;
    size_t ends[BATCHES + 1];
    unsigned counts[BATCHES + 1];
};

static void sample_mark(struct sample *s, int i, unsigned count)
{
    ck_assert_ptr_nonnull(memdisk_get(m, JOURNAL_NAME, &s->ends[i]));
    s->counts[i] = count;
}

static uint8_t *copy_journal(size_t *size)
{
    const uint8_t *data = memdisk_get(m, JOURNAL_NAME, size);

    ck_assert_ptr_nonnull(data);
    return xmemdup(data, *size);
}

static struct sample sample_make(void)
{
    struct sample s = { 0 };
    unsigned count;
    struct journal *j = must_open(&count);

    sample_mark(&s, 0, 0);
    for (int i = 1; i <= BATCHES; i++) {
        for (int k = 0; k < i; k++)
            append_record(j, count++);
        must_commit(j);
        sample_mark(&s, i, count);
    }
    journal_close(j);
    s.data = copy_journal(&s.size);
    return s;
}

static int batch_of(const struct sample *s, size_t at)
{
    int i = 0;

    while (at >= s->ends[i])
        i++;
    return i;
}

static void expect_refused(const char *text)
{
    unsigned count;
    struct journal *j = try_open(&count);

    ck_assert_msg(j == NULL, "opened, expected: %s", text);
    ck_assert_msg(strstr(e.text, text) != NULL, "'%s' is not in: %s", text, e.text);
}

static void expect_count(unsigned want)
{
    unsigned count;
    struct journal *j = must_open(&count);

    ck_assert_uint_eq(count, want);
    journal_close(j);
}

START_TEST(what_was_committed_is_read_again_in_order)
{
    struct sample s = sample_make();
    unsigned count;
    struct journal *j = must_open(&count);

    ck_assert_uint_eq(count, s.counts[BATCHES]);
    ck_assert_uint_eq(cut, 0);
    append_record(j, count++);
    must_commit(j);
    journal_close(j);
    expect_count(count);
    free(s.data);
}
END_TEST

START_TEST(the_largest_record_and_a_large_batch_fit)
{
    unsigned count;
    struct journal *j = must_open(&count);

    for (int i = 0; i < 40; i++)
        journal_append(j, TYPE_PADDING, big, sizeof(big));
    append_record(j, 0);
    must_commit(j);
    journal_close(j);
    expect_count(1);
}
END_TEST

START_TEST(what_was_not_committed_is_not_there)
{
    unsigned count;
    struct journal *j = must_open(&count);

    ck_assert(!journal_pending(j));
    append_record(j, 0);
    ck_assert(journal_pending(j));
    journal_close(j);
    expect_count(0);
}
END_TEST

START_TEST(a_commit_of_nothing_touches_no_disk)
{
    unsigned count;
    struct journal *j = must_open(&count);
    unsigned before = memdisk_operations(m);

    must_commit(j);
    ck_assert_uint_eq(memdisk_operations(m), before);
    journal_close(j);
}
END_TEST

START_TEST(short_reads_and_writes_are_carried_on)
{
    memdisk_set_chunk(m, 3);
    free(sample_make().data);
    memdisk_crash(m, 1);
    memdisk_set_chunk(m, 3);
    expect_count(BATCHES * (BATCHES + 1) / 2);
}
END_TEST

START_TEST(every_prefix_gives_exactly_its_whole_batches)
{
    struct sample s = sample_make();

    for (size_t size = 0; size <= s.size; size++) {
        memdisk_put(m, JOURNAL_NAME, s.data, size);
        if (size < s.ends[0]) {
            expect_refused("its header");
            continue;
        }
        int whole = batch_of(&s, size == s.size ? size - 1 : size) - (size != s.size);
        unsigned count;
        struct journal *j = must_open(&count);

        ck_assert_uint_eq(count, s.counts[whole]);
        ck_assert_uint_le(cut, size - s.ends[whole]);
        ck_assert(cut > 0 || size == s.ends[whole]);
        append_record(j, count);
        must_commit(j);
        journal_close(j);
        expect_count(count + 1);
        ck_assert_uint_eq(cut, 0);
    }
    free(s.data);
}
END_TEST

START_TEST(every_flipped_bit_is_refused_or_costs_the_last_batch)
{
    struct sample s = sample_make();

    for (size_t bit = 0; bit < 8 * s.size; bit++) {
        size_t at = bit / 8;
        int batch = batch_of(&s, at);
        char offset[32];

        s.data[at] ^= (uint8_t)(1u << bit % 8);
        memdisk_put(m, JOURNAL_NAME, s.data, s.size);
        s.data[at] ^= (uint8_t)(1u << bit % 8);
        if (batch == BATCHES) {
            expect_count(s.counts[BATCHES - 1]);
            ck_assert_uint_gt(cut, 0);
        } else if (batch > 0) {
            snprintf(offset, sizeof(offset), "damaged at byte %zu (batch %d of",
                     s.ends[batch - 1], batch);
            expect_refused(offset);
        } else {
            expect_refused("journal: ");
        }
    }
    free(s.data);
}
END_TEST

START_TEST(damage_names_the_batch_and_how_many_follow)
{
    struct sample s = sample_make();

    s.data[s.ends[1] + 5] ^= 1;
    memdisk_put(m, JOURNAL_NAME, s.data, s.size);
    expect_refused("(batch 2 of at least 6): refusing to start; move the file away");
    free(s.data);
}
END_TEST

/* Damage that is farther from the next whole batch than one read reaches. */
START_TEST(a_whole_batch_far_behind_the_damage_is_found)
{
    unsigned count;
    struct journal *j = must_open(&count);
    uint8_t *data;
    size_t size;

    for (int i = 0; i < 17; i++) {
        for (int k = 0; k < i % 9; k++)
            journal_append(j, TYPE_PADDING, big, sizeof(big) - (size_t)i);
        append_record(j, count++);
        must_commit(j);
    }
    journal_close(j);
    data = copy_journal(&size);
    data[40] ^= 1;
    memdisk_put(m, JOURNAL_NAME, data, size);
    expect_refused("damaged at byte 32 (batch 1 of at least 17)");
    memset(data + 32, 0xcc, size - 40 - 32);
    memdisk_put(m, JOURNAL_NAME, data, size);
    expect_count(0);
    ck_assert_uint_eq(cut, size - 32);
    free(data);
}
END_TEST

/* The search for a whole batch goes by chunks: a header on their border counts too. */
START_TEST(a_whole_batch_on_the_border_of_two_reads_is_found)
{
    size_t before = 256u * 1024 - (size_t)_i; /* what batch 1 takes */
    size_t records = before - JOURNAL_BATCH_HEADER_SIZE -
                     5u * JOURNAL_RECORD_HEADER_SIZE;
    unsigned count;
    struct journal *j = must_open(&count);
    uint8_t *data;
    size_t size;

    for (int i = 0; i < 5; i++)
        journal_append(j, TYPE_PADDING, big,
                       i < 4 ? records / 5 : records - 4 * (records / 5));
    must_commit(j);
    append_record(j, 0);
    must_commit(j);
    journal_close(j);
    data = copy_journal(&size);
    data[100] ^= 1;
    memdisk_put(m, JOURNAL_NAME, data, size);
    expect_refused("damaged at byte 32 (batch 1 of at least 2)");
    free(data);
}
END_TEST

/* What is made of batches that are each whole, but not in their order. */
static const struct {
    const char *name;
    int order[BATCHES]; /* ends with 0 */
    const char *refused;
} orders[] = {
    { "one missing", { 1, 2, 4, 5 }, "(batch 3 of at least 4, out of its place)" },
    { "the first missing", { 2, 3 }, "(batch 1 of at least 2, out of its place)" },
    { "one twice", { 1, 2, 2, 3 }, "(batch 3 of at least 3, out of its place)" },
    { "two exchanged", { 1, 3, 2, 4 }, "(batch 2 of at least 3, out of its place)" },
    { "as they were", { 1, 2, 3, 4 }, NULL },
};

START_TEST(batches_out_of_their_place_are_refused)
{
    struct sample s = sample_make();
    uint8_t *data = xmalloc(2 * s.size);
    size_t size = s.ends[0];

    memcpy(data, s.data, size);
    for (int i = 0; i < BATCHES && orders[_i].order[i]; i++) {
        int b = orders[_i].order[i];
        size_t length = s.ends[b] - s.ends[b - 1];

        memcpy(data + size, s.data + s.ends[b - 1], length);
        size += length;
    }
    memdisk_put(m, JOURNAL_NAME, data, size);
    if (orders[_i].refused)
        expect_refused(orders[_i].refused);
    else
        expect_count(s.counts[4]);
    free(data);
    free(s.data);
}
END_TEST

/* Another batch 3 of the same file, whole in itself: batch 4 was not written after it.
 */
START_TEST(a_batch_that_was_written_after_another_past_is_refused)
{
    struct sample s = sample_make();
    unsigned count;
    struct journal *j;
    uint8_t *data;
    size_t size;

    memdisk_put(m, JOURNAL_NAME, s.data, s.ends[2]);
    j = must_open(&count);
    append_record(j, count);
    must_commit(j);
    journal_close(j);
    memdisk_get(m, JOURNAL_NAME, &size);
    data = xmalloc(size + s.size);
    memcpy(data, memdisk_get(m, JOURNAL_NAME, &size), size);
    memcpy(data + size, s.data + s.ends[3], s.ends[4] - s.ends[3]);
    memdisk_put(m, JOURNAL_NAME, data, size + s.ends[4] - s.ends[3]);
    expect_refused("(batch 4 of at least 4, out of its place)");
    free(data);
    free(s.data);
}
END_TEST

START_TEST(batches_of_another_file_pass_for_nothing)
{
    struct sample s = sample_make();
    uint8_t *data;
    size_t size;

    memdisk_put(m, "other", s.data, s.size);
    ck_assert_int_eq(memdisk_disk(m)->ops->remove(memdisk_disk(m), JOURNAL_NAME), 0);
    struct sample t = sample_make();
    /* the first three batches of one, then what stood there before in the other */
    data = xmemdup(s.data, s.size);
    memcpy(data, t.data, t.ends[3]);
    memdisk_put(m, JOURNAL_NAME, data, s.size);
    expect_count(t.counts[3]);
    ck_assert_uint_eq(cut, s.size - t.ends[3]);
    memdisk_get(m, JOURNAL_NAME, &size);
    ck_assert_uint_eq(size, t.ends[3]);
    free(data);
    free(s.data);
    free(t.data);
}
END_TEST

START_TEST(zeros_after_the_tail_are_no_loss)
{
    struct sample s = sample_make();
    uint8_t *data = xcalloc(1, s.size + 300000);

    memcpy(data, s.data, s.size);
    memdisk_put(m, JOURNAL_NAME, data, s.size + 300000);
    expect_count(s.counts[BATCHES]);
    ck_assert_uint_eq(cut, 0);
    free(data);
    free(s.data);
}
END_TEST

START_TEST(a_file_of_another_kind_or_format_is_refused)
{
    static const char text[] = "this is a file that is not a journal at all";
    struct sample s = sample_make();
    uint32_t check;

    memdisk_put(m, JOURNAL_NAME, text, sizeof(text));
    expect_refused("not a journal of crund");
    s.data[8] = JOURNAL_VERSION + 1;
    check = journal_checksum(s.data, JOURNAL_FILE_HEADER_SIZE - 4);
    for (int i = 0; i < 4; i++)
        s.data[JOURNAL_FILE_HEADER_SIZE - 4 + i] = (uint8_t)(check >> (8 * i));
    memdisk_put(m, JOURNAL_NAME, s.data, s.size);
    expect_refused("has format 3; this crund reads format 2");
    free(s.data);
}
END_TEST

START_TEST(a_record_that_is_refused_says_where_it_stands)
{
    unsigned count;
    struct journal *j = must_open(&count);

    append_record(j, 1);
    must_commit(j);
    journal_close(j);
    expect_refused("journal: batch 1 at byte 32: wrong record 0");
}
END_TEST

START_TEST(one_directory_has_one_journal)
{
    unsigned count;
    struct journal *j = must_open(&count);

    expect_refused("in use");
    journal_close(j);
    expect_count(0);
}
END_TEST

START_TEST(after_a_failed_sync_nothing_is_taken_any_more)
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
END_TEST

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

START_TEST(a_full_disk_is_known_while_there_is_room_to_go_on)
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
END_TEST

START_TEST(a_full_disk_ends_when_there_is_room_again)
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
END_TEST

START_TEST(a_journal_on_a_full_disk_opens)
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
END_TEST

START_TEST(a_snapshot_stands_for_all_before_it)
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
END_TEST

START_TEST(a_snapshot_has_its_own_reserve)
{
    unsigned count;
    struct journal *j = must_open(&count);

    ck_assert_int_eq(journal_snapshot(j, dump_count, &count, &e), 0);
    memdisk_set_room(m, memdisk_used(m));
    ck_assert_uint_ge(commit_until_failure(j, 0) * 32000,
                      JOURNAL_RESERVE_BYTES - 40000);
    journal_close(j);
}
END_TEST

START_TEST(a_snapshot_is_wanted_when_the_tail_has_grown)
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
END_TEST

START_TEST(a_snapshot_without_room_leaves_all_as_it_was)
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
END_TEST

START_TEST(a_snapshot_without_room_is_wanted_again_soon)
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
END_TEST

/* A disk that stays full: what the snapshots give back is enough to go on for ever. */
START_TEST(on_a_full_disk_snapshots_keep_it_going)
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
END_TEST

START_TEST(a_reserve_that_did_not_do_for_a_snapshot_is_kept)
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
END_TEST

START_TEST(a_snapshot_left_unfinished_is_removed)
{
    struct sample s = sample_make();
    size_t size;

    memdisk_put(m, JOURNAL_NEW_NAME, s.data, s.ends[2]);
    expect_count(s.counts[BATCHES]);
    ck_assert_ptr_null(memdisk_get(m, JOURNAL_NEW_NAME, &size));
    free(s.data);
}
END_TEST

/* A crash at every operation of opening, committing and taking a snapshot. */
START_TEST(a_crash_at_any_point_loses_nothing_acknowledged)
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
END_TEST

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

START_TEST(many_lives_that_end_badly_lose_nothing_acknowledged)
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
END_TEST

static Suite *journal_suite(void)
{
    Suite *suite = suite_create("journal");
    TCase *t = tcase_create("journal");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, what_was_committed_is_read_again_in_order);
    tcase_add_test(t, the_largest_record_and_a_large_batch_fit);
    tcase_add_test(t, what_was_not_committed_is_not_there);
    tcase_add_test(t, a_commit_of_nothing_touches_no_disk);
    tcase_add_test(t, short_reads_and_writes_are_carried_on);
    tcase_add_test(t, every_prefix_gives_exactly_its_whole_batches);
    tcase_add_test(t, every_flipped_bit_is_refused_or_costs_the_last_batch);
    tcase_add_test(t, damage_names_the_batch_and_how_many_follow);
    tcase_add_test(t, a_whole_batch_far_behind_the_damage_is_found);
    tcase_add_loop_test(t, a_whole_batch_on_the_border_of_two_reads_is_found, 0,
                        JOURNAL_BATCH_HEADER_SIZE + 2);
    tcase_add_test(t, a_batch_that_was_written_after_another_past_is_refused);
    tcase_add_loop_test(t, batches_out_of_their_place_are_refused, 0,
                        sizeof(orders) / sizeof(orders[0]));
    tcase_add_test(t, batches_of_another_file_pass_for_nothing);
    tcase_add_test(t, zeros_after_the_tail_are_no_loss);
    tcase_add_test(t, a_file_of_another_kind_or_format_is_refused);
    tcase_add_test(t, a_record_that_is_refused_says_where_it_stands);
    tcase_add_test(t, one_directory_has_one_journal);
    tcase_add_test(t, after_a_failed_sync_nothing_is_taken_any_more);
    tcase_add_test(t, a_full_disk_is_known_while_there_is_room_to_go_on);
    tcase_add_test(t, a_full_disk_ends_when_there_is_room_again);
    tcase_add_test(t, a_journal_on_a_full_disk_opens);
    tcase_add_test(t, a_snapshot_stands_for_all_before_it);
    tcase_add_test(t, a_snapshot_is_wanted_when_the_tail_has_grown);
    tcase_add_test(t, a_snapshot_without_room_leaves_all_as_it_was);
    tcase_add_test(t, a_snapshot_without_room_is_wanted_again_soon);
    tcase_add_test(t, a_snapshot_has_its_own_reserve);
    tcase_add_test(t, on_a_full_disk_snapshots_keep_it_going);
    tcase_add_test(t, a_reserve_that_did_not_do_for_a_snapshot_is_kept);
    tcase_add_test(t, a_snapshot_left_unfinished_is_removed);
    tcase_add_test(t, a_crash_at_any_point_loses_nothing_acknowledged);
    tcase_add_test(t, many_lives_that_end_badly_lose_nothing_acknowledged);
    suite_add_tcase(suite, t);
    return suite;
}

int main(void)
{
    return check_main(journal_suite());
}
