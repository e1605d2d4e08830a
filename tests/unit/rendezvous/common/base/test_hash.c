/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/hash.h"

#include "rendezvous/common/base/bytes.h"
#include "tests/worlds/check_main.h"

/* Hashes are compared between nodes, and stand in journals: the values are FNV-1a's. */
static const struct {
    const char *text;
    uint64_t hash;
} known[] = {
    { "", UINT64_C(0xcbf29ce484222325) },
    { "a", UINT64_C(0xaf63dc4c8601ec8c) },
    { "foobar", UINT64_C(0x85944171f73967e8) },
    { "\xff\xfe", UINT64_C(0x0a99c807b6f645b0) },
};

TEST_EACH(a_hash_is_fnv1a, known)
{
    const char *text = known[_i].text;

    ck_assert_uint_eq(hash_fnv1a(HASH_FNV1A_BASIS, text, strlen(text)), known[_i].hash);
}

TEST(a_hash_of_parts_is_that_of_the_whole)
{
    uint64_t hash = hash_fnv1a(HASH_FNV1A_BASIS, "foo", 3);

    ck_assert_uint_eq(hash_fnv1a(hash, "bar", 3), UINT64_C(0x85944171f73967e8));
}

TEST(a_number_is_read_little_endian_at_any_address)
{
    static const uint8_t bytes[] = { 0xff, 1, 2, 3, 4, 5, 6, 7, 8 };

    ck_assert_uint_eq(bytes_load64(bytes + 1), UINT64_C(0x0807060504030201));
    ck_assert_uint_eq(bytes_load32(bytes + 1), 0x04030201);
}

TEST(a_size_is_rounded_up_to_whole_units)
{
    ck_assert_uint_eq(bytes_round_up(0, 8), 0);
    ck_assert_uint_eq(bytes_round_up(1, 8), 8);
    ck_assert_uint_eq(bytes_round_up(8, 8), 8);
    ck_assert_uint_eq(bytes_round_up(9, 8), 16);
    ck_assert_uint_eq(bytes_round_up(7, 6), 12);
}
