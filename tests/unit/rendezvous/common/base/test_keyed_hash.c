/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/keyed_hash.h"

#include "tests/worlds/check_main.h"

/* Of the key 00 01 .. 0f and the data 00 01 .. */
static void count_up(uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)i;
}

/* From the authors' list of SipHash-2-4-128. */
static const struct {
    size_t size;
    const char *tag;
} tags[] = {
    { 0, "a3817f04ba25a8e66df67214c7550293" },
    { 1, "da87c1d86b99af44347659119b22fc45" },
    { 2, "8177228da4a45dc7fca38bdef60affe4" },
    { 3, "9c70b60c5267a94e5f33b6b02985ed51" },
    { 8, "3b62a9ba6258f5610f83e264f31497b4" },
};

TEST_EACH(tags_are_those_of_the_authors, tags)
{
    struct id128 key, tag;
    uint8_t data[64];
    char hex[ID128_HEX_SIZE];

    count_up(key.byte, sizeof(key.byte));
    count_up(data, sizeof(data));
    tag = keyed_hash_tag(&key, data, tags[_i].size);
    ck_assert_str_eq(id128_format(&tag, hex), tags[_i].tag);
}

TEST(the_hash_of_nothing_is_that_of_siphash_1_3)
{
    struct id128 key;
    uint64_t halves[2];

    count_up(key.byte, sizeof(key.byte));
    halves[0] = bytes_load64(key.byte);
    halves[1] = bytes_load64(key.byte + 8);
    ck_assert_uint_eq(keyed_hash(halves, "", 0), 0xabac0158050fc4dcu);
}

TEST(tags_are_equal_if_all_bytes_are)
{
    struct id128 a = id128_random(), b = a;

    ck_assert(keyed_hash_tag_equal(&a, &b));
    for (unsigned i = 0; i < sizeof(b.byte) * 8; i++) {
        b = a;
        b.byte[i / 8] ^= (uint8_t)(1u << i % 8);
        ck_assert(!keyed_hash_tag_equal(&a, &b));
    }
}
