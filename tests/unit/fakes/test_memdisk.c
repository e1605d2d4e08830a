/* SPDX-License-Identifier: MIT */
/* The disk that forgets: it must forget in every way, and nothing that was synced. */
#include "tests/fakes/disk/memdisk.h"

#include <errno.h>
#include <string.h>

#include "tests/worlds/check_main.h"

#define SECTOR 512
#define SEEDS 300

static struct memdisk *m;
static struct disk *d;
static char text[4 * SECTOR];

static void setup(void)
{
    m = memdisk_create();
    d = memdisk_disk(m);
    memset(text, 'x', sizeof(text));
}

static void teardown(void)
{
    memdisk_destroy(m);
}

static int must_open(const char *name)
{
    int file = d->ops->open(d, name, true);

    ck_assert_int_ge(file, 0);
    return file;
}

static void must_write(int file, size_t size, uint64_t at)
{
    ck_assert_int_eq(d->ops->write(d, file, text, size, at), (int64_t)size);
}

static bool all_are(const uint8_t *data, size_t size, uint8_t want)
{
    for (size_t i = 0; i < size; i++)
        if (data[i] != want)
            return false;
    return true;
}

/* A lasting file of two sectors of 'x', and two more that were not synced. */
static void half_synced(uint64_t seed)
{
    int file;

    teardown();
    setup();
    file = must_open("a");
    must_write(file, 2 * SECTOR, 0);
    ck_assert_int_eq(d->ops->sync(d, file), 0);
    ck_assert_int_eq(d->ops->sync_names(d), 0);
    must_write(file, 2 * SECTOR, 2 * SECTOR);
    memdisk_crash(m, seed);
}

FIXTURE(setup, teardown);

TEST(what_was_synced_stays_and_the_rest_may_take_every_form)
{
    enum { NONE, ALL, TORN, SECOND_ONLY, SIZE_ONLY, FORM_COUNT };
    bool seen[FORM_COUNT] = { false };

    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        size_t size;
        const uint8_t *data;

        half_synced(seed);
        data = memdisk_get(m, "a", &size);
        ck_assert(size >= 2 * SECTOR && all_are(data, 2 * SECTOR, 'x'));
        if (size == 2 * SECTOR)
            seen[NONE] = true;
        else if (size % SECTOR != 0)
            seen[TORN] = true;
        else if (size == 4 * SECTOR && all_are(data, size, 'x'))
            seen[ALL] = true;
        else if (size == 4 * SECTOR && all_are(data + 2 * SECTOR, SECTOR, 0) &&
                 all_are(data + 3 * SECTOR, SECTOR, 'x'))
            seen[SECOND_ONLY] = true;
        else if (all_are(data + 2 * SECTOR, size - 2 * SECTOR, 0))
            seen[SIZE_ONLY] = true;
    }
    for (int form = 0; form < FORM_COUNT; form++)
        ck_assert_msg(seen[form], "form %d was never seen", form);
}

TEST(a_seed_always_gives_the_same)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        uint8_t before[4 * SECTOR];
        const uint8_t *data;
        size_t size, again;

        half_synced(seed);
        data = memdisk_get(m, "a", &size);
        ck_assert_uint_le(size, sizeof(before));
        memcpy(before, data, size);
        half_synced(seed);
        ck_assert_mem_eq(memdisk_get(m, "a", &again), before, size);
        ck_assert_uint_eq(again, size);
    }
}

TEST(a_name_lasts_surely_only_once_the_directory_is_synced)
{
    unsigned there = 0;
    size_t size;

    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        teardown();
        setup();
        d->ops->close(d, must_open("new"));
        memdisk_crash(m, seed);
        there += memdisk_get(m, "new", &size) != NULL;
    }
    ck_assert_uint_gt(there, SEEDS / 4);
    ck_assert_uint_lt(there, SEEDS * 3 / 4);
}

TEST(a_replaced_name_lasts_and_one_cut_short_is_the_old_or_the_new)
{
    unsigned old = 0;

    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        bool cut = seed % 2;
        const uint8_t *data;
        size_t size;
        int file;

        teardown();
        setup();
        memdisk_put(m, "a", "old", 3);
        file = must_open("b");
        must_write(file, 3, 0);
        ck_assert_int_eq(d->ops->sync(d, file), 0);
        if (cut)
            memdisk_cut_power_after(m, 0);
        ck_assert_int_eq(d->ops->replace(d, "b", "a"), cut ? -1 : 0);
        memdisk_crash(m, seed);
        data = memdisk_get(m, "a", &size);
        ck_assert(data && size == 3);
        if (memcmp(data, "old", 3) == 0) {
            ck_assert(cut);
            old++;
        }
    }
    ck_assert_uint_gt(old, SEEDS / 8);
    ck_assert_uint_lt(old, SEEDS / 2);
}

TEST(what_a_failed_sync_gave_up_never_lasts)
{
    int file = must_open("a");
    size_t size;

    must_write(file, SECTOR, 0);
    memdisk_fail_next_sync(m);
    ck_assert_int_eq(d->ops->sync(d, file), -1);
    ck_assert_int_eq(errno, EIO);
    ck_assert_int_eq(d->ops->sync(d, file), 0);
    ck_assert_ptr_nonnull(memdisk_get(m, "a", &size));
    ck_assert_uint_eq(size, SECTOR);
    memdisk_kill(m);
    ck_assert_ptr_nonnull(memdisk_get(m, "a", &size));
    ck_assert_uint_eq(size, 0);
}

TEST(what_a_killed_process_wrote_can_be_synced_by_the_next)
{
    int file = must_open("a");
    size_t size;

    must_write(file, SECTOR, 0);
    memdisk_kill(m);
    ck_assert_int_eq(d->ops->size(d, file), -1);
    ck_assert_int_eq(errno, EBADF);
    file = must_open("a");
    ck_assert_int_eq(d->ops->sync(d, file), 0);
    ck_assert_int_eq(d->ops->sync_names(d), 0);
    memdisk_crash(m, 1);
    ck_assert_ptr_nonnull(memdisk_get(m, "a", &size));
    ck_assert_uint_eq(size, SECTOR);
}

TEST(there_is_room_for_what_was_reserved_and_no_more)
{
    int file = must_open("a"), other = must_open("b");

    memdisk_set_room(m, 5 * 4096);
    ck_assert_int_eq(d->ops->reserve(d, file, 0, 6 * 4096), -1);
    ck_assert_int_eq(errno, ENOSPC);
    ck_assert_int_eq(d->ops->reserve(d, file, 0, 4 * 4096), 0);
    ck_assert_int_eq(d->ops->size(d, file), 0);
    must_write(other, 2048, 0);
    must_write(other, 2048, 2048);
    ck_assert_int_eq(d->ops->write(d, other, text, 10, 4096), -1);
    ck_assert_int_eq(errno, ENOSPC);
    must_write(file, 2048, 4 * 4096 - 2048);
    ck_assert_int_eq(d->ops->write(d, file, text, 2048, 4 * 4096 - 1000), 1000);
    ck_assert_int_eq(d->ops->close(d, other), 0);
    ck_assert_int_eq(d->ops->remove(d, "b"), 0);
    must_write(file, 2048, 4 * 4096);
    ck_assert_uint_eq(memdisk_used(m), 5 * 4096);
}

TEST(without_power_nothing_works)
{
    int file = must_open("a");

    memdisk_cut_power_after(m, 1);
    must_write(file, 10, 0);
    ck_assert_int_eq(d->ops->write(d, file, text, 10, 10), -1);
    ck_assert_int_eq(d->ops->sync(d, file), -1);
    ck_assert_int_eq(d->ops->open(d, "b", true), -1);
    ck_assert_int_eq(d->ops->remove(d, "a"), -1);
    ck_assert_int_eq(errno, EIO);
}
