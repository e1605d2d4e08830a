/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/protocol/frame.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/wire/protocol/limits.h"
#include "tests/worlds/check_main.h"

static struct err e;

static const struct frame_header typical = {
    .body_size = 5,
    .type = 0x1211,
    .sequence = 0x2827262524232221,
    .epoch = 0x3837363534333231,
    .instance = { { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 } },
};

static const uint8_t typical_bytes[FRAME_HEADER_SIZE] = {
    5,    0,    0,    0,    0x11, 0x12, 0,    0,    0x21, 0x22, 0x23, 0x24, 0x25, 0x26,
    0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 1,    2,    3,    4,
    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,   16,
};

/* From memory of exactly that size, so that a sanitizer sees a byte too many read. */
static int get_frame(const uint8_t *bytes, size_t size, uint32_t body_max,
                     struct frame_header *h)
{
    uint8_t *exact = malloc(size + !size);
    int result;

    memcpy(exact, bytes, size);
    result = frame_get_header(exact, size, body_max, h, &e);
    free(exact);
    return result;
}

/* -- headers ---------------------------------------------------------------- */

TEST(a_header_is_forty_little_endian_bytes)
{
    uint8_t out[FRAME_HEADER_SIZE];

    frame_put_header(&typical, out);
    ck_assert_mem_eq(out, typical_bytes, sizeof(out));
}

TEST(a_header_reads_as_it_was_written)
{
    uint8_t frame[FRAME_HEADER_SIZE + 5] = { 0 };
    struct frame_header h;

    memcpy(frame, typical_bytes, FRAME_HEADER_SIZE);
    ck_assert_int_eq(get_frame(frame, sizeof(frame), FRAME_BODY_MAX, &h), 1);
    ck_assert_uint_eq(h.body_size, typical.body_size);
    ck_assert_uint_eq(h.type, typical.type);
    ck_assert_uint_eq(h.sequence, typical.sequence);
    ck_assert_uint_eq(h.epoch, typical.epoch);
    ck_assert(id128_equal(&h.instance, &typical.instance));
}

TEST(a_frame_is_whole_with_its_last_byte_and_not_before)
{
    uint8_t frame[FRAME_HEADER_SIZE + 5 + 3] = { 0 };
    struct frame_header h;

    memcpy(frame, typical_bytes, FRAME_HEADER_SIZE);
    for (size_t size = 0; size <= sizeof(frame); size++)
        ck_assert_int_eq(get_frame(frame, size, FRAME_BODY_MAX, &h),
                         size >= FRAME_HEADER_SIZE + 5);
}

static const struct {
    uint32_t body_size, body_max;
    int result; /* of the length alone */
} lengths[] = {
    { 0, FRAME_BODY_MAX, -1 },
    { 1, FRAME_BODY_MAX, -1 },
    { 2, FRAME_BODY_MAX, 0 },
    { FRAME_BODY_MAX, FRAME_BODY_MAX, 0 },
    { FRAME_BODY_MAX + 1, FRAME_BODY_MAX, -1 },
    { FRAME_BODY_HELLO_MAX, FRAME_BODY_HELLO_MAX, 0 },
    { FRAME_BODY_HELLO_MAX + 1, FRAME_BODY_HELLO_MAX, -1 },
    { UINT32_MAX, FRAME_BODY_MAX, -1 },
    { INT32_MAX, FRAME_BODY_MAX, -1 },
    { (uint32_t)INT32_MIN, FRAME_BODY_MAX, -1 },
};

TEST_EACH(a_length_is_judged_by_its_four_bytes, lengths)
{
    struct frame_header h = typical;
    uint8_t out[FRAME_HEADER_SIZE];

    h.body_size = lengths[_i].body_size;
    frame_put_header(&h, out);
    ck_assert_int_eq(get_frame(out, 3, lengths[_i].body_max, &h), 0);
    ck_assert_int_eq(get_frame(out, 4, lengths[_i].body_max, &h), lengths[_i].result);
    ck_assert_int_eq(get_frame(out, sizeof(out), lengths[_i].body_max, &h),
                     lengths[_i].result);
}

TEST_LOOP(a_flag_is_refused_by_its_two_bytes, 0, 16)
{
    uint8_t out[FRAME_HEADER_SIZE];
    struct frame_header h;

    memcpy(out, typical_bytes, sizeof(out));
    out[6 + _i / 8] = (uint8_t)(1u << _i % 8);
    ck_assert_int_eq(get_frame(out, 7, FRAME_BODY_MAX, &h), 0);
    ck_assert_int_eq(get_frame(out, 8, FRAME_BODY_MAX, &h), -1);
}

/* -- first bytes ------------------------------------------------------------ */

#define MORE FRAME_KIND_MORE
#define CONTROL FRAME_KIND_CONTROL
#define STORE FRAME_KIND_STORE
#define TLS FRAME_KIND_TLS
#define UNKNOWN FRAME_KIND_UNKNOWN

/* What is said, what it is, and with how many bytes that is known. */
static const struct {
    const char *bytes;
    size_t size;
    enum frame_kind kind;
    size_t known_at;
} beginnings[] = {
    { "CRUN\r\n\x1a\n\x02", 9, CONTROL, 8 },
    { "CRUN\n", 5, UNKNOWN, 5 }, /* something on the way has changed the line end */
    { "CONNECT a:1 HTTP/1.1", 20, UNKNOWN, 2 },
    { "GET / HTTP/1.1", 14, UNKNOWN, 1 },
    { "SSH-2.0-OpenSSH", 15, UNKNOWN, 1 },
    { "\r\n\r\n", 4, UNKNOWN, 1 },
    { "\n", 1, UNKNOWN, 1 },
    { "\xff\xff\xff\xff", 4, UNKNOWN, 1 },
    { "\x16\x03\x01\x02\x00", 5, TLS, 2 },
    { "\x16\x03\x03", 3, TLS, 2 },
    { "\x16\x00", 2, UNKNOWN, 2 },
    { "\x00\xce\xf7\x85\x3c\x03", 6, STORE, 5 },
    { "\x00\xce\xf7\x85\x3d", 5, STORE, 5 }, /* the store refuses that magic */
    { "\x00\x05\x00\x00", 4, STORE, 2 },     /* an old SET */
    { "\x03\x05\x00\x00", 4, STORE, 1 },     /* an old ADD */
    { "\x08", 1, STORE, 1 },
    { "\x09", 1, UNKNOWN, 1 },
};

TEST_EACH(the_first_bytes_decide_as_soon_as_they_can, beginnings)
{
    size_t size;

    for (size = 0; size < beginnings[_i].known_at; size++)
        ck_assert_int_eq(frame_sniff(beginnings[_i].bytes, size), MORE);
    for (; size <= beginnings[_i].size; size++)
        ck_assert_int_eq(frame_sniff(beginnings[_i].bytes, size), beginnings[_i].kind);
}

TEST(no_second_thought_whatever_follows)
{
    for (unsigned pair = 0; pair < 65536; pair++) {
        const uint8_t bytes[2] = { (uint8_t)(pair >> 8), (uint8_t)pair };
        enum frame_kind first = frame_sniff(bytes, 1);

        if (first != MORE)
            ck_assert_int_eq(frame_sniff(bytes, 2), first);
    }
}
