/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/data.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include "rendezvous/common/base/xalloc.h"

#define MEAN 0.1307f /* of MNIST's images, with pixels from 0 to 1 */
#define DEVIATION 0.3081f

struct data {
    uint8_t *images, *labels;
    size_t count;
    bool *drawn; /* which images are drawn; NULL: all are */
    uint64_t seed;
};

size_t data_count(const struct data *d)
{
    return d->count;
}

void data_limit(struct data *d, size_t count)
{
    if (count < d->count)
        d->count = count;
}

void data_destroy(struct data *d)
{
    if (!d)
        return;
    free(d->images);
    free(d->labels);
    free(d->drawn);
    free(d);
}

/*
 * IDX, MNIST's file format: a magic number whose last byte is the number of dimensions,
 * the dimensions, then bytes. Files may be gzipped, with or without ".gz" in the name.
 */
struct idx {
    uint8_t *bytes; /* count * size of an item; free() it in any case */
    size_t count;
};

#define MAGIC_BYTES 0x0800u /* unsigned bytes; the lowest eight bits: dimensions */
#define COUNT_MAX (1u << 21)

/* An open file, and its name for messages. */
struct idx_file {
    gzFile file;
    char path[PATH_MAX];
};

static int idx_open(struct idx_file *f, const char *folder, const char *name,
                    struct err *e)
{
    static const char *const endings[] = { "", ".gz" };

    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        snprintf(f->path, sizeof(f->path), "%s/%s%s", folder, name, endings[i]);
        errno = 0;
        f->file = gzopen(f->path, "rb");
        if (f->file)
            return 0;
        if (errno != ENOENT)
            return err_set_errno(e, errno ? errno : ENOMEM, "%s", f->path);
    }
    return err_set(e, "there is no %s or %s.gz in %s", name, name, folder);
}

static int idx_read_bytes(struct idx_file *f, void *to, size_t size, struct err *e)
{
    int got = gzread(f->file, to, (unsigned)size), code;

    if (got >= 0 && (size_t)got == size)
        return 0;
    if (got >= 0)
        return err_set(e, "%s is cut short", f->path);
    return err_set(e, "%s is damaged: %s", f->path, gzerror(f->file, &code));
}

static int idx_read_header(struct idx_file *f, size_t side, uint32_t *count,
                           struct err *e)
{
    unsigned numbers = side ? 4 : 2;
    uint32_t head[4], expected = MAGIC_BYTES + numbers - 1;

    if (idx_read_bytes(f, head, numbers * sizeof(*head), e) < 0)
        return -1;
    for (unsigned i = 0; i < numbers; i++)
        head[i] = be32toh(head[i]);
    if (head[0] != expected)
        return err_set(e, "%s is not a file of %s: it begins with %08x, not %08x",
                       f->path, side ? "images" : "labels", head[0], expected);
    if (head[1] == 0 || head[1] > COUNT_MAX)
        return err_set(e, "%s announces %u items, not 1 to %u", f->path, head[1],
                       COUNT_MAX);
    if (side && (head[2] != side || head[3] != side))
        return err_set(e, "%s has images of %u by %u pixels, not %zu by %zu", f->path,
                       head[3], head[2], side, side);
    *count = head[1];
    return 0;
}

/* Reads folder/name, with items of side * side bytes (side 0: one byte). */
static int idx_read(const char *folder, const char *name, size_t side, struct idx *idx,
                    struct err *e)
{
    size_t size = side ? side * side : 1;
    struct idx_file f;
    uint32_t count = 0;
    int rc;

    *idx = (struct idx){ 0 };
    if (idx_open(&f, folder, name, e) < 0)
        return -1;
    rc = idx_read_header(&f, side, &count, e);
    if (rc == 0) {
        *idx = (struct idx){ xmalloc(count * size), count };
        rc = idx_read_bytes(&f, idx->bytes, count * size, e);
    }
    gzclose(f.file);
    return rc;
}

static int data_check(const struct data *d, size_t labels, const char *folder,
                      const char *set, struct err *e)
{
    if (labels != d->count)
        return err_set(e, "%s: there are %zu images and %zu labels in the files of %s",
                       folder, d->count, labels, set);
    for (size_t i = 0; i < labels; i++)
        if (d->labels[i] >= CLASSES)
            return err_set(e,
                           "%s/%s-labels-idx1-ubyte: label %u of item %zu is not 0 "
                           "to %d",
                           folder, set, d->labels[i], i, CLASSES - 1);
    return 0;
}

struct data *data_read(const char *folder, const char *set, struct err *e)
{
    struct data *d = xcalloc(1, sizeof(*d));
    struct idx images, labels = { 0 };
    char name[64];
    int rc;

    snprintf(name, sizeof(name), "%s-images-idx3-ubyte", set);
    rc = idx_read(folder, name, IMAGE_SIDE, &images, e);
    if (rc == 0) {
        snprintf(name, sizeof(name), "%s-labels-idx1-ubyte", set);
        rc = idx_read(folder, name, 0, &labels, e);
    }
    *d = (struct data){ .images = images.bytes,
                        .labels = labels.bytes,
                        .count = images.count };
    if (rc == 0 && data_check(d, labels.count, folder, set, e) == 0)
        return d;
    data_destroy(d);
    return NULL;
}

struct data *data_draw(uint64_t seed, size_t count)
{
    struct data *d = xcalloc(1, sizeof(*d));

    d->images = xcalloc(count, IMAGE_PIXELS);
    d->labels = xcalloc(count, 1);
    d->drawn = xcalloc(count, sizeof(*d->drawn));
    d->count = count;
    d->seed = seed;
    return d;
}

void data_get(struct data *d, const uint64_t *sample, size_t count, float *images,
              uint8_t *labels)
{
    for (size_t i = 0; i < count; i++, images += IMAGE_PIXELS) {
        size_t s = (size_t)sample[i];
        uint8_t *pixels = d->images + s * IMAGE_PIXELS;

        if (d->drawn && !d->drawn[s]) {
            d->labels[s] = (uint8_t)glyph_draw(d->seed, s, pixels);
            d->drawn[s] = true;
        }
        for (size_t p = 0; p < IMAGE_PIXELS; p++)
            images[p] = ((float)pixels[p] * (1 / 255.0f) - MEAN) * (1 / DEVIATION);
        labels[i] = d->labels[s];
    }
}
