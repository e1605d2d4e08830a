/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/wire.h"

#include <stdlib.h>
#include <string.h>

#include "tests/worlds/check_main.h"

static struct wire_out writer(uint8_t *memory, size_t size)
{
    return (struct wire_out){ .start = memory, .size = size };
}

static struct wire_in reader(const void *memory, size_t size)
{
    return (struct wire_in){ .next = memory, .left = size };
}

TEST(fields_are_little_endian_and_without_gaps)
{
    static const uint8_t expected[] = { 0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04,
                                        0x0f, 0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x09,
                                        0x08, 2,    0,    'h',  'i',  0xaa, 0xbb };
    uint8_t memory[sizeof(expected)];
    struct wire_out w = writer(memory, sizeof(memory));

    wire_put_u8(&w, 0x01);
    wire_put_u16(&w, 0x0203);
    wire_put_u32(&w, 0x04050607);
    wire_put_u64(&w, 0x08090a0b0c0d0e0f);
    wire_put_text(&w, "hi");
    wire_put_bytes(&w, "\xaa\xbb", 2);
    ck_assert(!w.bad);
    ck_assert_uint_eq(w.used, sizeof(expected));
    ck_assert_mem_eq(memory, expected, sizeof(expected));
}

TEST(what_was_written_is_read_back)
{
    uint8_t memory[64], bytes[3];
    char text[8];
    struct wire_out w = writer(memory, sizeof(memory));
    struct wire_in r;

    wire_put_u64(&w, UINT64_MAX);
    wire_put_u32(&w, UINT32_MAX);
    wire_put_u16(&w, UINT16_MAX);
    wire_put_u8(&w, UINT8_MAX);
    wire_put_text(&w, "");
    wire_put_text(&w, "seven77");
    wire_put_bytes(&w, "abc", 3);
    r = reader(memory, w.used);
    ck_assert_uint_eq(wire_get_u64(&r), UINT64_MAX);
    ck_assert_uint_eq(wire_get_u32(&r), UINT32_MAX);
    ck_assert_uint_eq(wire_get_u16(&r), UINT16_MAX);
    ck_assert_uint_eq(wire_get_u8(&r), UINT8_MAX);
    wire_get_text(&r, text, sizeof(text));
    ck_assert_str_eq(text, "");
    wire_get_text(&r, text, sizeof(text));
    ck_assert_str_eq(text, "seven77");
    wire_get_bytes(&r, bytes, sizeof(bytes));
    ck_assert_mem_eq(bytes, "abc", 3);
    ck_assert(!r.bad);
    ck_assert_uint_eq(r.left, 0);
}

/* One field of every kind, 1 + 2 + 4 + 8 + (2 + 3) + 4 bytes. */
#define ALL_FIELDS 24

static void put_all(struct wire_out *w)
{
    wire_put_u8(w, 1);
    wire_put_u16(w, 2);
    wire_put_u32(w, 3);
    wire_put_u64(w, 4);
    wire_put_text(w, "abc");
    wire_put_bytes(w, "wxyz", 4);
}

TEST_LOOP(a_writer_without_room_is_bad_and_writes_nothing_past_its_end, 0,
          ALL_FIELDS + 1)
{
    size_t size = (size_t)_i;
    uint8_t *memory = malloc(size + 1); /* of exact size, for the sanitizers */
    struct wire_out w = writer(memory, size);
    size_t used;

    memory[size] = 0x5a;
    put_all(&w);
    ck_assert_int_eq(w.bad, size < ALL_FIELDS);
    ck_assert_uint_le(w.used, size);
    ck_assert_uint_eq(memory[size], 0x5a);
    used = w.used;
    if (w.bad)
        wire_put_u8(&w, 1); /* even what would fit comes too late */
    ck_assert_uint_eq(w.used, used);
    free(memory);
}

TEST_LOOP(a_reader_without_bytes_is_bad_and_gives_zeros, 0, ALL_FIELDS + 1)
{
    size_t size = (size_t)_i;
    uint8_t whole[ALL_FIELDS], bytes[4] = { 9, 9, 9, 9 };
    char text[4] = "old";
    struct wire_out w = writer(whole, sizeof(whole));
    uint8_t *cut = malloc(size + 1);
    struct wire_in r = reader(cut, size);

    put_all(&w);
    memcpy(cut, whole, size);
    ck_assert_uint_eq(wire_get_u8(&r), size >= 1 ? 1 : 0);
    ck_assert_uint_eq(wire_get_u16(&r), size >= 3 ? 2 : 0);
    ck_assert_uint_eq(wire_get_u32(&r), size >= 7 ? 3 : 0);
    ck_assert_uint_eq(wire_get_u64(&r), size >= 15 ? 4 : 0);
    wire_get_text(&r, text, sizeof(text));
    ck_assert_str_eq(text, size >= 20 ? "abc" : "");
    wire_get_bytes(&r, bytes, sizeof(bytes));
    ck_assert_mem_eq(bytes, size >= ALL_FIELDS ? "wxyz" : "\0\0\0\0", 4);
    ck_assert_int_eq(r.bad, size < ALL_FIELDS);
    if (r.bad)
        ck_assert_uint_eq(wire_get_u8(&r), 0);
    free(cut);
}

static const struct {
    const char *bytes;
    size_t size;
    size_t room;
    const char *text; /* NULL: bad */
} texts[] = {
    { "\0\0", 2, 1, "" },
    { "\3\0abc", 5, 4, "abc" },
    { "\3\0abc", 5, 3, NULL },  /* no room for the NUL */
    { "\3\0abc", 4, 4, NULL },  /* cut */
    { "\3\0a\0c", 5, 4, NULL }, /* holds a NUL */
    { "\3\0ab\0", 5, 4, NULL }, /* ends in one */
    { "\xff\xff", 2, 4, NULL }, /* a length and nothing else */
    { "\1", 1, 4, NULL },       /* half a length */
    { "\2\0\xc3\xa4", 4, 3, "\xc3\xa4" },
};

TEST_EACH(a_text_that_does_not_fit_or_holds_a_nul_is_bad, texts)
{
    struct wire_in r = reader(texts[_i].bytes, texts[_i].size);
    char text[8] = "old";

    wire_get_text(&r, text, texts[_i].room);
    ck_assert_int_eq(r.bad, !texts[_i].text);
    ck_assert_str_eq(text, texts[_i].text ? texts[_i].text : "");
}

TEST(a_text_longer_than_its_length_field_is_bad)
{
    size_t size = 65536;
    char *text = malloc(size + 1);
    uint8_t *memory = malloc(size + 8);
    struct wire_out w = writer(memory, size + 8);

    memset(text, 'x', size);
    text[size] = '\0';
    wire_put_text(&w, text);
    ck_assert(w.bad);
    ck_assert_uint_eq(w.used, 0);
    w = writer(memory, size + 8);
    text[size - 1] = '\0';
    wire_put_text(&w, text);
    ck_assert(!w.bad);
    ck_assert_uint_eq(w.used, 2 + 65535);
    free(text);
    free(memory);
}
