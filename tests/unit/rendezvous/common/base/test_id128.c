/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/id128.h"

#include "tests/worlds/check_main.h"

static const char text[] = "000102030405060708090a0b0c0d0eff";
static const struct id128 id = { { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
                                   255 } };

TEST(an_identity_is_written_and_read_as_hex)
{
    char hex[ID128_HEX_SIZE];
    struct id128 read;

    ck_assert_str_eq(id128_format(&id, hex), text);
    ck_assert(id128_parse(text, &read));
    ck_assert(id128_equal(&read, &id));
    ck_assert(id128_parse("000102030405060708090A0B0C0D0EFF", &read));
    ck_assert(id128_equal(&read, &id));
}

static const char *const bad[] = {
    "",
    "0",
    "000102030405060708090a0b0c0d0ef",   /* a digit short */
    "000102030405060708090a0b0c0d0eff0", /* a digit long */
    "000102030405060708090a0b0c0d0efg",
    "0x0102030405060708090a0b0c0d0eff",
    " 00102030405060708090a0b0c0d0eff",
    "000102030405060708090a0b0c0d0e-1",
    "00010203-0405-0607-0809-0a0b0c0d0eff",
};

TEST_EACH(only_32_hex_digits_are_an_identity, bad)
{
    struct id128 read;

    ck_assert(!id128_parse(bad[_i], &read));
}

TEST(random_identities_differ_in_every_byte_at_some_time)
{
    struct id128 first = id128_random();
    bool differs[16] = { false };

    for (int i = 0; i < 100; i++) {
        struct id128 other = id128_random();

        ck_assert(!id128_equal(&first, &other));
        ck_assert(!id128_is_zero(&other));
        for (int b = 0; b < 16; b++)
            differs[b] |= other.byte[b] != first.byte[b];
    }
    for (int b = 0; b < 16; b++)
        ck_assert(differs[b]);
}

TEST_LOOP(one_bit_makes_an_identity_another_and_not_zero, 0, 16)
{
    struct id128 other = id, one_bit = { { 0 } };

    other.byte[_i] ^= 0x80;
    ck_assert(!id128_equal(&id, &other));
    ck_assert(id128_is_zero(&one_bit));
    one_bit.byte[_i] = 1;
    ck_assert(!id128_is_zero(&one_bit));
}
