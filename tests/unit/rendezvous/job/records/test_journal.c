/* SPDX-License-Identifier: MIT */
/*
 * What is read from a journal: all that was committed, and nothing that was not; damage
 * is told from a tail that was cut off.
 */
#include "rendezvous/job/records/journal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/records/journal_format.h"
#include "tests/fakes/disk/memdisk.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/journal_world.h"

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

FIXTURE(setup, teardown);

TEST(what_was_committed_is_read_again_in_order)
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

TEST(the_largest_record_and_a_large_batch_fit)
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

TEST(what_was_not_committed_is_not_there)
{
    unsigned count;
    struct journal *j = must_open(&count);

    ck_assert(!journal_pending(j));
    append_record(j, 0);
    ck_assert(journal_pending(j));
    journal_close(j);
    expect_count(0);
}

TEST(a_commit_of_nothing_touches_no_disk)
{
    unsigned count;
    struct journal *j = must_open(&count);
    unsigned before = memdisk_operations(m);

    must_commit(j);
    ck_assert_uint_eq(memdisk_operations(m), before);
    journal_close(j);
}

TEST(short_reads_and_writes_are_carried_on)
{
    memdisk_set_chunk(m, 3);
    free(sample_make().data);
    memdisk_crash(m, 1);
    memdisk_set_chunk(m, 3);
    expect_count(BATCHES * (BATCHES + 1) / 2);
}

TEST(every_prefix_gives_exactly_its_whole_batches)
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

TEST(every_flipped_bit_is_refused_or_costs_the_last_batch)
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

/* A commit ends with a mark, which is written once the batch is synced. */
TEST(damage_of_a_synced_batch_is_no_torn_tail)
{
    unsigned count;
    struct journal *j = must_open(&count);
    size_t size;
    uint8_t *data;

    append_record(j, 0);
    must_commit(j);
    append_record(j, 1);
    must_commit(j);
    journal_close(j);
    data = copy_journal(&size);
    for (size_t at = 32; at < size; at++) {
        bool is_mark = at >= size - JOURNAL_BATCH_HEADER_SIZE;

        data[at] ^= 1;
        memdisk_put(m, JOURNAL_NAME, data, size);
        data[at] ^= 1;
        if (is_mark)
            expect_count(2);
        else
            expect_refused("refusing to start");
        ck_assert(!is_mark || cut > 0);
    }
    free(data);
}

TEST(damage_names_the_batch_and_how_many_follow)
{
    struct sample s = sample_make();

    s.data[s.ends[1] + 5] ^= 1;
    memdisk_put(m, JOURNAL_NAME, s.data, s.size);
    expect_refused("(batch 2 of at least 6): refusing to start; move the file away");
    free(s.data);
}

/* Damage that is farther from the next whole batch than one read reaches. */
TEST(a_whole_batch_far_behind_the_damage_is_found)
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
    expect_refused("damaged at byte 32 (batch 1 of at least 18)");
    memset(data + 32, 0xcc, size - 8 - 32);
    memdisk_put(m, JOURNAL_NAME, data, size);
    expect_count(0);
    ck_assert_uint_eq(cut, size - 32);
    free(data);
}

/* The search for a whole batch goes by chunks: a header on their border counts too. */
TEST_LOOP(a_whole_batch_on_the_border_of_two_reads_is_found, 0,
          JOURNAL_BATCH_HEADER_SIZE + 2)
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
    expect_refused("damaged at byte 32 (batch 1 of at least 3)");
    free(data);
}

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

TEST_EACH(batches_out_of_their_place_are_refused, orders)
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

/* Another batch 3 of the same file, whole in itself: batch 4 was not written after
 * it. */
TEST(a_batch_that_was_written_after_another_past_is_refused)
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
    data = xmalloc(2 * s.size);
    memcpy(data, memdisk_get(m, JOURNAL_NAME, &size), s.size);
    size -= JOURNAL_BATCH_HEADER_SIZE;
    memcpy(data + size, s.data + s.ends[3], s.ends[4] - s.ends[3]);
    memdisk_put(m, JOURNAL_NAME, data, size + s.ends[4] - s.ends[3]);
    expect_refused("(batch 4 of at least 4, out of its place)");
    free(data);
    free(s.data);
}

TEST(batches_of_another_file_pass_for_nothing)
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

TEST(zeros_after_the_tail_are_no_loss)
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

TEST(a_file_of_another_kind_or_format_is_refused)
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

TEST(a_record_that_is_refused_says_where_it_stands)
{
    unsigned count;
    struct journal *j = must_open(&count);

    append_record(j, 1);
    must_commit(j);
    journal_close(j);
    expect_refused("journal: batch 1 at byte 32: wrong record 0");
}

TEST(one_directory_has_one_journal)
{
    unsigned count;
    struct journal *j = must_open(&count);

    expect_refused("in use");
    journal_close(j);
    expect_count(0);
}
