/* SPDX-License-Identifier: MIT */
/* Which parts are held, and which of them give way. */
#include "agent/memory/memory_table.h"

#include "tests/worlds/check_main.h"

static struct memory_table t;
static struct memory_set restore; /* of the epoch whose copies come */

static void setup(void)
{
    memory_table_init(&t);
    restore.world = 0;
}

static void teardown(void)
{
    memory_table_fini(&t);
}

FIXTURE(setup, teardown);

static struct memory_header header(uint64_t epoch, uint64_t step, uint32_t world,
                                   uint32_t rank)
{
    struct memory_header h = { .magic = MEMORY_MAGIC,
                               .version = MEMORY_VERSION,
                               .state = MEMORY_WHOLE,
                               .rank = rank,
                               .set = { epoch, step, world, 0 },
                               .own_hash = memory_hash("", 0) };

    h.header_hash = memory_header_hash(&h);
    return h;
}

static void put(struct memory_file *f, const struct memory_header *h)
{
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(memory_file_write(f, 0, h, sizeof(*h)), 0);
    ck_assert(memory_file_look(f));
}

static void put_own(uint32_t local_rank, uint32_t slot, struct memory_header h)
{
    struct err e;

    put(memory_table_slot(&t, local_rank, slot, &e), &h);
}

/* False: it was not taken. */
static bool put_copy(struct memory_header h)
{
    struct err e;
    struct memory_file *f = memory_table_copy(&t, &h, &restore, &e);

    if (f)
        put(f, &h);
    return f != NULL;
}

static const char *print(size_t size)
{
    static char text[512];

    memory_table_print(&t, text, size);
    return text;
}

TEST(sets_are_printed_newest_first)
{
    put_own(0, 0, header(3, 1200, 8, 0));
    put_own(0, 1, header(3, 1199, 8, 0));
    put_own(1, 0, header(3, 1200, 8, 1));
    put_own(1, 1, header(2, 9000, 4, 3));
    ck_assert(put_copy(header(3, 1200, 8, 5)));
    ck_assert_str_eq(print(512), "3.1200.8:0-1,5 3.1199.8:0 2.9000.4:3");
}

TEST(what_does_not_fit_is_left_out_oldest_first)
{
    put_own(0, 0, header(3, 1200, 8, 0));
    put_own(0, 1, header(3, 1199, 8, 0));
    ck_assert_str_eq(print(22), "3.1200.8:0 3.1199.8:0");
    ck_assert_str_eq(print(21), "3.1200.8:0");
    ck_assert_str_eq(print(10), "");
}

TEST(the_older_copy_gives_way)
{
    ck_assert(put_copy(header(1, 5, 2, 1)));
    ck_assert(put_copy(header(1, 6, 2, 1)));
    ck_assert(put_copy(header(1, 7, 2, 1)));
    ck_assert_str_eq(print(512), "1.7.2:1 1.6.2:1");
    /* the same once more replaces itself */
    ck_assert(put_copy(header(1, 7, 2, 1)));
    ck_assert_str_eq(print(512), "1.7.2:1 1.6.2:1");
    ck_assert(!put_copy(header(1, 5, 2, 1)));
    /* a later epoch is newer, whatever its step */
    ck_assert(put_copy(header(2, 1, 2, 1)));
    ck_assert_str_eq(print(512), "2.1.2:1 1.7.2:1");
}

/* Not all ranks had step 6, and not all may have what comes after it. */
TEST(a_copy_that_the_job_goes_back_to_stays)
{
    ck_assert(put_copy(header(1, 5, 2, 1)));
    ck_assert(put_copy(header(1, 6, 2, 1)));
    restore = (struct memory_set){ 1, 5, 2, 0 };
    ck_assert(put_copy(header(2, 6, 2, 1)));
    ck_assert_str_eq(print(512), "2.6.2:1 1.5.2:1");
    /* again, and again before all ranks have a step of that epoch */
    ck_assert(put_copy(header(3, 6, 2, 1)));
    ck_assert_str_eq(print(512), "3.6.2:1 1.5.2:1");
    ck_assert(put_copy(header(3, 6, 2, 1)));
    ck_assert_str_eq(print(512), "3.6.2:1 1.5.2:1");
    /* the sender has this one only if all ranks have the one before */
    ck_assert(put_copy(header(3, 7, 2, 1)));
    ck_assert_str_eq(print(512), "3.7.2:1 3.6.2:1");
}

TEST(a_copy_that_is_being_sent_stays)
{
    struct memory_header h = header(1, 5, 2, 1), newer = header(1, 7, 2, 1);
    struct memory_file *f;
    struct err e;

    ck_assert(put_copy(h));
    ck_assert(put_copy(header(1, 6, 2, 1)));
    f = memory_table_find(&t, &h.set, 1, false);
    f->users = 1;
    ck_assert_ptr_null(memory_table_copy(&t, &newer, &restore, &e));
    f->users = 0;
    ck_assert_ptr_eq(memory_table_copy(&t, &newer, &restore, &e), f);
}

/* Both slots of all workers are newer: so all ranks have committed something newer. */
TEST(old_copies_go_when_all_own_slots_are_newer)
{
    ck_assert(put_copy(header(1, 5, 4, 3)));
    put_own(0, 0, header(2, 6, 2, 0));
    put_own(0, 1, header(2, 7, 2, 0));
    put_own(1, 0, header(2, 6, 2, 1));
    (void)!memory_table_slot(&t, 1, 1, &(struct err){ .code = 0 });
    memory_table_collect(&t);
    ck_assert_str_eq(print(512), "2.7.2:0 2.6.2:0-1 1.5.4:3");
    put_own(1, 1, header(2, 7, 2, 1));
    memory_table_collect(&t);
    ck_assert_str_eq(print(512), "2.7.2:0-1 2.6.2:0-1");
}

TEST(the_newest_is_that_of_all_workers)
{
    struct memory_header newest;

    put_own(0, 0, header(1, 6, 2, 0));
    put_own(1, 0, header(1, 6, 2, 1));
    put_own(0, 1, header(1, 7, 2, 0));
    newest = memory_table_newest(&t, 2, false);
    ck_assert_uint_eq(newest.set.step, 6);
    put_own(1, 1, header(1, 7, 2, 1));
    newest = memory_table_newest(&t, 2, false);
    ck_assert_uint_eq(newest.set.step, 7);
    newest = memory_table_newest(&t, 2, true);
    ck_assert_uint_eq(newest.set.world, 0);
}

/* One that has the own section of a rank does not count as the shared one, nor the
 * other way round. */
TEST(sections_are_told_apart)
{
    struct memory_set set = { 1, 5, 2, 0 };
    struct memory_header h = header(1, 5, 2, 0);
    struct memory_file *f;
    struct err e;
    uint64_t at;

    f = memory_table_slot(&t, 0, 0, &e);
    h.own_bytes = 100;
    h.shared_bytes = 50;
    h.has_shared = 1;
    h.header_hash = memory_header_hash(&h);
    ck_assert_int_eq(memory_file_grow(f, memory_slot_bytes(100, 50), &e), 0);
    put(f, &h);
    ck_assert_ptr_eq(memory_table_find(&t, &set, 0, false), f);
    ck_assert_ptr_eq(memory_table_find(&t, &set, 1, true), f);
    ck_assert_ptr_null(memory_table_find(&t, &set, 1, false));
    h = memory_file_section(f, true, &at);
    ck_assert_uint_eq(at, 8192);
    ck_assert_uint_eq(h.own_bytes, 0);
    ck_assert(memory_header_is_whole(&h, memory_slot_bytes(0, 50)));
    h = memory_file_section(f, false, &at);
    ck_assert_uint_eq(at, 4096);
    ck_assert_uint_eq(h.shared_bytes, 0);
    ck_assert_uint_eq(h.has_shared, 1);
    ck_assert(memory_header_is_whole(&h, memory_slot_bytes(100, 0)));
    /* what was fetched as the shared section has no own one */
    memory_table_remove(&t, f);
    f = memory_file_open(MEMORY_FETCHED, 0, 1, &e);
    memory_table_add(&t, f);
    h = header(1, 5, 2, 0);
    h.shared_bytes = 50;
    h.has_shared = 1;
    h.header_hash = memory_header_hash(&h);
    ck_assert_int_eq(memory_file_grow(f, memory_slot_bytes(0, 50), &e), 0);
    put(f, &h);
    ck_assert_ptr_null(memory_table_find(&t, &set, 0, false));
    ck_assert_ptr_eq(memory_table_find(&t, &set, 0, true), f);
    ck_assert_str_eq(print(512), "");
}
