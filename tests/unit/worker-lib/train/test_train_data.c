/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/tree.h"

#define IMAGES 5

/* -- helpers ----------------------------------------------------------------------- */

/* A file of the format, of which a case spoils one thing. */
struct test_data_file {
    uint32_t magic, count, rows, columns;
    unsigned items; /* that are really there */
    uint8_t label;  /* of the last */
};

static const struct test_data_file good_images = { 0x803, IMAGES, 28, 28, IMAGES, 0 };
static const struct test_data_file good_labels = { 0x801, IMAGES, 0, 0, IMAGES, 4 };

static void put_number(FILE *out, uint32_t n)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        fputc((int)(n >> shift & 255), out);
}

static FILE *create(const char *name)
{
    char path[256];
    FILE *out;

    snprintf(path, sizeof(path), "%s/%s", tree_root, name);
    out = fopen(path, "wb");
    ck_assert_ptr_nonnull(out);
    return out;
}

static void put_images(const char *name, const struct test_data_file *f)
{
    FILE *out = create(name);

    put_number(out, f->magic);
    put_number(out, f->count);
    put_number(out, f->rows);
    put_number(out, f->columns);
    for (unsigned i = 0; i < f->items * 784; i++)
        fputc((int)(i / 784 * 51), out);
    fclose(out);
}

static void put_labels(const char *name, const struct test_data_file *f)
{
    FILE *out = create(name);

    put_number(out, f->magic);
    put_number(out, f->count);
    for (unsigned i = 0; i < f->items; i++)
        fputc(i == f->items - 1 ? f->label : (int)i, out);
    fclose(out);
}

/* The trainer keeps its samples until it ends. */
static void release(struct data *d)
{
    free(d->images);
    free(d->labels);
    *d = (struct data){ 0 };
}

/* -- cases ------------------------------------------------------------------------- */

FIXTURE(tree_setup, tree_teardown);

TEST_LOOP(files_are_read_plain_and_compressed, 0, 2)
{
    struct err e;
    struct data d = { 0 };
    float images[2 * IMAGE_PIXELS];

    put_images("train-images-idx3-ubyte", &good_images);
    put_labels("train-labels-idx1-ubyte", &good_labels);
    if (_i == 1) {
        char command[256];

        snprintf(command, sizeof(command), "gzip %s/train*", tree_root);
        ck_assert_int_eq(system(command), 0);
    }
    ck_assert_msg(data_read(&d, tree_root, "train", &e) == 0, "%s", e.text);
    ck_assert_uint_eq(d.count, IMAGES);
    ck_assert_uint_eq(data_get(&d, 4, images), 4);
    ck_assert_uint_eq(data_get(&d, 0, images + IMAGE_PIXELS), 0);
    ck_assert_float_eq_tol(images[0], (204 / 255.f - .1307f) / .3081f, 1e-5f);
    ck_assert_float_eq_tol(images[IMAGE_PIXELS], -.1307f / .3081f, 1e-5f);
    release(&d);
}

static const struct {
    struct test_data_file images, labels;
    const char *expected; /* part of the message */
} bad[] = {
    { { 0x801, IMAGES, 28, 28, IMAGES, 0 },
      { 0x801, IMAGES, 0, 0, IMAGES, 4 },
      "train-images-idx3-ubyte is not a file of images: it begins with 00000801" },
    { { 0x803, IMAGES, 28, 28, IMAGES, 0 },
      { 0x803, IMAGES, 0, 0, IMAGES, 4 },
      "train-labels-idx1-ubyte is not a file of labels: it begins with 00000803" },
    { { 0x803, IMAGES, 28, 28, IMAGES - 1, 0 },
      { 0x801, IMAGES, 0, 0, IMAGES, 4 },
      "train-images-idx3-ubyte is cut short" },
    { { 0x803, IMAGES, 32, 28, IMAGES, 0 },
      { 0x801, IMAGES, 0, 0, IMAGES, 4 },
      "has images of 28 by 32 pixels, not 28 by 28" },
    { { 0x803, IMAGES, 28, 28, IMAGES, 0 },
      { 0x801, IMAGES - 1, 0, 0, IMAGES - 1, 3 },
      "there are 5 images and 4 labels" },
    { { 0x803, IMAGES, 28, 28, IMAGES, 0 },
      { 0x801, IMAGES, 0, 0, IMAGES, 10 },
      "label 10 of item 4 is not 0 to 9" },
    { { 0x803, 0, 28, 28, 0, 0 }, { 0x801, 0, 0, 0, 0, 0 }, "announces 0 items" },
    { { 0x803, UINT32_MAX, 28, 28, 1, 0 },
      { 0x801, 1, 0, 0, 1, 0 },
      "announces 4294967295 items" },
};

TEST_EACH(a_bad_file_is_named_with_what_is_wrong, bad)
{
    struct data d = { 0 };
    struct err e = { 0 };

    put_images("train-images-idx3-ubyte", &bad[_i].images);
    put_labels("train-labels-idx1-ubyte", &bad[_i].labels);
    ck_assert_int_eq(data_read(&d, tree_root, "train", &e), -1);
    ck_assert_msg(strstr(e.text, bad[_i].expected) != NULL, "%s", e.text);
    release(&d);
}

TEST(a_missing_file_is_named)
{
    struct data d = { 0 };
    struct err e = { 0 };

    ck_assert_int_eq(data_read(&d, tree_root, "t10k", &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "there is no t10k-images-idx3-ubyte"));
    put_images("t10k-images-idx3-ubyte", &good_images);
    ck_assert_int_eq(data_read(&d, tree_root, "t10k", &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "there is no t10k-labels-idx1-ubyte"));
    release(&d);
}

TEST(a_damaged_archive_is_named)
{
    struct data d = { 0 };
    struct err e = { 0 };
    FILE *out = create("train-images-idx3-ubyte.gz");

    fwrite("\x1f\x8b\x08\0\0\0\0\0\0\3garbage and more garbage", 1, 34, out);
    fclose(out);
    ck_assert_int_eq(data_read(&d, tree_root, "train", &e), -1);
    ck_assert_msg(strstr(e.text, "is damaged") != NULL, "%s", e.text);
    release(&d);
}

TEST(drawn_digits_are_the_same_in_any_order_of_asking)
{
    struct data a, b, c;
    static float x[3][IMAGE_PIXELS], y[3][IMAGE_PIXELS];
    uint8_t of_x[3], of_y[3];

    data_draw(&a, 7, 100);
    data_draw(&b, 7, 100);
    data_draw(&c, 8, 100);
    for (unsigned i = 0; i < 3; i++)
        of_x[i] = data_get(&a, 49 * i + 1, x[i]);
    for (unsigned i = 3; i-- > 0;)
        of_y[i] = data_get(&b, 49 * i + 1, y[i]);
    ck_assert_mem_eq(x, y, sizeof(x));
    ck_assert_mem_eq(of_x, of_y, sizeof(of_x));
    data_get(&c, 1, y[0]);
    ck_assert_mem_ne(x[0], y[0], sizeof(x[0]));
    release(&a);
    release(&b);
    release(&c);
}

TEST(drawn_digits_are_equally_frequent)
{
    struct data d;
    static float x[IMAGE_PIXELS];
    unsigned count[CLASSES] = { 0 };

    data_draw(&d, 1, 2000);
    for (uint64_t i = 0; i < 2000; i++) {
        uint8_t label = data_get(&d, i, x);

        ck_assert_uint_lt(label, CLASSES);
        count[label]++;
    }
    for (unsigned c = 0; c < CLASSES; c++)
        ck_assert_msg(count[c] > 140 && count[c] < 260, "%u of digit %u", count[c], c);
    release(&d);
}
