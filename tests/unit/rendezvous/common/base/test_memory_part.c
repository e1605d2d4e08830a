/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/memory_part.h"

#include <string.h>

#include "tests/worlds/check_main.h"

/* A slot with 5 bytes of its own and 3 that are shared. */
#define SLOT_BYTES (MEMORY_HEADER_BYTES + MEMORY_ALIGN + 3)

static uint8_t slot[SLOT_BYTES];

static struct memory_header slot_fill(void)
{
    struct memory_header h = { .magic = MEMORY_MAGIC,
                               .version = MEMORY_VERSION,
                               .state = MEMORY_WHOLE,
                               .rank = 1,
                               .set = { .epoch = 3, .step = 1200, .world = 2 },
                               .own_bytes = 5,
                               .shared_bytes = 3,
                               .has_shared = 1,
                               .kind = "test 1" };

    memset(slot, 7, sizeof(slot));
    h.own_hash = memory_hash(slot + MEMORY_HEADER_BYTES, 5);
    h.shared_hash = memory_hash(slot + MEMORY_HEADER_BYTES + MEMORY_ALIGN, 3);
    h.header_hash = memory_header_hash(&h);
    return h;
}

/* Parts travel between programs that are built apart. */
TEST(the_hash_is_xxh3)
{
    ck_assert_uint_eq(memory_hash("", 0), UINT64_C(0x2d06800538d394c2));
    ck_assert_uint_eq(memory_hash("foobar", 6), UINT64_C(0xd78fda63144c5c84));
}

TEST(pieces_have_the_hash_of_the_whole)
{
    static uint8_t data[3 * MEMORY_LEAF_BYTES + 100];
    struct memory_hasher h;

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 7);
    memory_hasher_begin(&h);
    for (size_t at = 0; at < sizeof(data); at += 500)
        memory_hasher_add(&h, data + at,
                          sizeof(data) - at < 500 ? sizeof(data) - at : 500);
    ck_assert_uint_eq(memory_hasher_end(&h), memory_hash(data, sizeof(data)));
}

TEST(threads_hash_a_section_leaf_by_leaf)
{
    static uint8_t data[2 * MEMORY_LEAF_BYTES + 1];
    uint64_t leaf[3];

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 11);
    for (size_t i = 0; i < 2; i++)
        leaf[i] = memory_leaf_hash(data + i * MEMORY_LEAF_BYTES, MEMORY_LEAF_BYTES);
    leaf[2] = memory_leaf_hash(data + sizeof(data) - 1, 1);
    for (size_t n = 1; n < 3; n++)
        ck_assert_uint_eq(memory_hash(data, n * MEMORY_LEAF_BYTES),
                          memory_root_hash(leaf, n));
    ck_assert_uint_eq(memory_hash(data, sizeof(data)), memory_root_hash(leaf, 3));
    ck_assert_uint_eq(memory_hash(data, 0), memory_root_hash(leaf, 0));
}

TEST(sections_lie_behind_the_header_and_are_aligned)
{
    ck_assert_uint_eq(memory_shared_at(0), 4096);
    ck_assert_uint_eq(memory_shared_at(1), 8192);
    ck_assert_uint_eq(memory_shared_at(4096), 8192);
    ck_assert_uint_eq(memory_slot_bytes(5, 3), SLOT_BYTES);
    ck_assert_uint_eq(memory_slot_bytes(UINT64_MAX, 0), UINT64_MAX);
    ck_assert_uint_eq(memory_slot_bytes(0, UINT64_MAX - 100), UINT64_MAX);
}

TEST(a_whole_part_is_found_whole)
{
    struct memory_header h = slot_fill();

    ck_assert(memory_header_is_whole(&h, SLOT_BYTES));
    ck_assert(memory_sections_are_sound(&h, slot));
    h.kept = 1; /* the agent sets it */
    ck_assert(memory_header_is_whole(&h, SLOT_BYTES));
    ck_assert(!memory_header_is_whole(&h, SLOT_BYTES - 1));
}

static void be_no_memory(struct memory_header *h)
{
    h->magic++;
}

static void be_another_version(struct memory_header *h)
{
    h->version++;
}

static void be_unfinished(struct memory_header *h)
{
    h->state = MEMORY_WRITING;
}

static void be_of_no_rank(struct memory_header *h)
{
    h->rank = h->set.world;
}

static void be_too_long(struct memory_header *h)
{
    h->own_bytes = UINT64_MAX - 4096;
}

static void be_too_long_in_all(struct memory_header *h)
{
    h->own_bytes = h->shared_bytes = UINT64_C(1) << 63;
}

static void have_what_the_set_has_not(struct memory_header *h)
{
    h->has_shared = 0;
}

static void have_an_endless_kind(struct memory_header *h)
{
    memset(h->kind, 'x', sizeof(h->kind));
}

static void (*const spoil[])(struct memory_header *) = {
    be_no_memory, be_another_version, be_unfinished,        be_of_no_rank,
    be_too_long,  be_too_long_in_all, have_an_endless_kind, have_what_the_set_has_not,
};

TEST_EACH(a_header_with_a_wrong_field_is_not_whole, spoil)
{
    struct memory_header h = slot_fill();

    spoil[_i](&h);
    h.header_hash = memory_header_hash(&h);
    ck_assert(!memory_header_is_whole(&h, SLOT_BYTES));
}

TEST(each_bit_of_a_header_counts)
{
    for (size_t bit = 0; bit < offsetof(struct memory_header, kept) * 8; bit++) {
        struct memory_header h = slot_fill();

        ((uint8_t *)&h)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        ck_assert_msg(!memory_header_is_whole(&h, SLOT_BYTES), "bit %zu", bit);
    }
}

TEST(a_flipped_bit_in_a_section_is_found)
{
    static const size_t at[] = { MEMORY_HEADER_BYTES, MEMORY_HEADER_BYTES + 4,
                                 SLOT_BYTES - 1 };
    struct memory_header h = slot_fill();

    for (unsigned i = 0; i < 3; i++) {
        slot[at[i]] ^= 0x10;
        ck_assert(!memory_sections_are_sound(&h, slot));
        slot[at[i]] ^= 0x10;
    }
    slot[MEMORY_HEADER_BYTES + 5] ^= 1; /* between the sections */
    ck_assert(memory_sections_are_sound(&h, slot));
}

TEST(a_later_epoch_is_newer_whatever_its_step)
{
    struct memory_set a = { .epoch = 2, .step = 900, .world = 4 };
    struct memory_set b = { .epoch = 3, .step = 5, .world = 4 }, c = b;

    ck_assert_int_lt(memory_set_compare(&a, &b), 0);
    ck_assert_int_gt(memory_set_compare(&b, &a), 0);
    c.step = 6;
    ck_assert_int_lt(memory_set_compare(&b, &c), 0);
    c = b;
    ck_assert(memory_set_equal(&b, &c));
    c.world = 8;
    ck_assert(!memory_set_equal(&b, &c));
}
