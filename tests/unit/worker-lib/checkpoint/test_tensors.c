/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "tests/worlds/check_main.h"
#include "worker-lib/checkpoint/tensors.h"

static char path[64];
static struct err e;

static const float weights[] = { 1.5f, -2, 3e30f };
static const uint8_t bytes[] = { 1, 2, 3, 4, 5 };
static const struct tensors_item items[] = {
    { "fc.weight", CRUN_F32, 3, weights },
    { "nothing", CRUN_I64, 0, NULL },
    { "a \"quoted\" name\n", CRUN_U8, 5, bytes },
};
static const struct tensors_word words[] = { { "step", "12" }, { "extra.x", "ä\"" } };

static crun_status write_file(void)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    crun_status s = tensors_write(fd, words, 2, items, 3, &e);

    close(fd);
    return s;
}

static void setup(void)
{
    strcpy(path, "/tmp/test_tensors_XXXXXX");
    close(mkstemp(path));
    ck_assert_int_eq(write_file(), CRUN_OK);
}

static void teardown(void)
{
    unlink(path);
}

FIXTURE(setup, teardown);

/* With the data, as in memory. */
static size_t make_bytes(uint8_t *buf)
{
    size_t size;
    uint8_t *front = tensors_make_front(words, 2, items, 3, &size);

    memcpy(buf, front, size);
    free(front);
    for (unsigned i = 0; i < 3; i++) {
        if (tensors_item_bytes(&items[i]))
            memcpy(buf + size, items[i].data, tensors_item_bytes(&items[i]));
        size += tensors_item_bytes(&items[i]);
    }
    return size;
}

TEST_LOOP(what_was_written_is_read, 0, 2)
{
    uint8_t buf[1024];
    struct tensors *t;

    if (_i)
        ck_assert_int_eq(tensors_open_bytes(&t, buf, make_bytes(buf), &e), CRUN_OK);
    else
        ck_assert_int_eq(tensors_open(&t, path, &e), CRUN_OK);
    ck_assert_uint_eq(tensors_count(t), 3);
    for (unsigned i = 0; i < 3; i++) {
        const struct tensors_item *item = tensors_item(t, i);

        ck_assert_str_eq(item->name, items[i].name);
        ck_assert_int_eq(item->type, items[i].type);
        ck_assert_uint_eq(item->count, items[i].count);
    }
    ck_assert_mem_eq(tensors_item(t, 0)->data, weights, sizeof(weights));
    ck_assert_mem_eq(tensors_item(t, 2)->data, bytes, sizeof(bytes));
    ck_assert_str_eq(tensors_word(t, "step"), "12");
    ck_assert_str_eq(tensors_word(t, "extra.x"), "ä\"");
    ck_assert_ptr_null(tensors_word(t, "y"));
    tensors_close(t);
}

static size_t read_file(uint8_t *buf, size_t room)
{
    FILE *f = fopen(path, "rb");
    size_t n = fread(buf, 1, room, f);

    fclose(f);
    return n;
}

static void replace_file(const uint8_t *buf, size_t size)
{
    FILE *f = fopen(path, "wb");

    ck_assert_uint_eq(fwrite(buf, 1, size, f), size);
    fclose(f);
}

static void expect_corrupt(const uint8_t *buf, size_t size)
{
    struct tensors *t;

    replace_file(buf, size);
    ck_assert_int_eq(tensors_open(&t, path, &e), CRUN_CORRUPT);
    ck_assert_ptr_null(t);
    ck_assert_ptr_nonnull(strstr(e.text, path));
}

TEST(any_bit_that_flips_is_noticed)
{
    uint8_t buf[1024];
    size_t size = read_file(buf, sizeof(buf));

    for (size_t i = 0; i < size; i++) {
        buf[i] ^= (uint8_t)(1 << i % 8);
        expect_corrupt(buf, size);
        buf[i] ^= (uint8_t)(1 << i % 8);
    }
}

TEST(any_length_but_the_whole_is_noticed)
{
    uint8_t buf[1024] = { 0 };
    size_t size = read_file(buf, sizeof(buf));

    for (size_t n = 0; n < size; n++)
        expect_corrupt(buf, n);
    expect_corrupt(buf, size + 1);
}

TEST(a_file_that_is_not_there)
{
    struct tensors *t;

    unlink(path);
    ck_assert_int_eq(tensors_open(&t, path, &e), CRUN_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(e.text, path));
}

TEST(a_full_disk_is_said)
{
    int fd = open("/dev/full", O_WRONLY);

    ck_assert_int_eq(tensors_write(fd, words, 2, items, 3, &e), CRUN_NO_SPACE);
    close(fd);
}

/* A header that lies, under a checksum that is right. */
static const struct lie {
    const char *header;
} lies[] = {
    { "\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}" },
    { "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}" },
    { "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}" }, /* a gap */
    { "\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,1e30]}}" },
    { "\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967297],\"data_offsets\":"
      "[0,16]}}" },
    { "\"a\":{\"dtype\":\"Q4\",\"shape\":[4],\"data_offsets\":[0,16]}}" },
    { "\"a\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,16]}}" },
    { "\"a\":{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,16]}}" },
    { "\"a\":{\"dtype\":\"F32\",\"shape\":[4]}}" },
    { "\"a\":7}" },
    { "\"a\":{" },
};

TEST_LOOP(a_header_that_lies_is_not_believed, 0, sizeof(lies) / sizeof(*lies))
{
    static const char front[] = "{\"__metadata__\":{\"crc32\":\"00000000\"},";
    uint8_t buf[1024] = { 0 };
    size_t header = (size_t)snprintf((char *)buf + 8, sizeof(buf) - 8, "%s%s", front,
                                     lies[_i].header);
    size_t size = 8 + header + 16;
    char digits[9];

    buf[0] = (uint8_t)header;
    snprintf(digits, sizeof(digits), "%08lx", crc32_z(0, buf, size));
    memcpy(strstr((char *)buf + 8, "00000000"), digits, 8);
    expect_corrupt(buf, size);
    ck_assert_ptr_nonnull(strstr(e.text, "is invalid"));
}
