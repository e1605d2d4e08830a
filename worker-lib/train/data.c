/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/data.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "rendezvous/common/base/xalloc.h"

#define MEAN 0.1307f /* of MNIST's images, with pixels from 0 to 1 */
#define DEVIATION 0.3081f

/*
 * IDX, MNIST's file format: a magic number whose last byte is the number of dimensions,
 * the dimensions, then bytes. Files may be gzipped, with or without ".gz" in the name.
 */
#define MAGIC_BYTES 0x0800u /* unsigned bytes; the lowest eight bits: dimensions */
#define COUNT_MAX (1u << 21)

static int idx_read_bytes(gzFile file, const char *path, void *to, size_t size,
                          struct err *e)
{
    int got = gzread(file, to, (unsigned)size), code;

    if (got < 0)
        return err_set(e, "%s is damaged: %s", path, gzerror(file, &code));
    return (size_t)got == size ? 0 : err_set(e, "%s is cut short", path);
}

/* Images, or with side 0 labels, of one byte each. */
static int idx_read_items(gzFile file, const char *path, size_t side, uint8_t **bytes,
                          size_t *count, struct err *e)
{
    unsigned numbers = side ? 4 : 2;
    uint32_t head[4], expected = MAGIC_BYTES + numbers - 1;

    if (idx_read_bytes(file, path, head, numbers * sizeof(*head), e) < 0)
        return -1;
    for (unsigned i = 0; i < numbers; i++)
        head[i] = be32toh(head[i]);
    if (head[0] != expected)
        return err_set(e, "%s is not a file of %s: it begins with %08x, not %08x", path,
                       side ? "images" : "labels", head[0], expected);
    if (head[1] == 0 || head[1] > COUNT_MAX)
        return err_set(e, "%s announces %u items, not 1 to %u", path, head[1],
                       COUNT_MAX);
    if (side && (head[2] != side || head[3] != side))
        return err_set(e, "%s has images of %u by %u pixels, not %zu by %zu", path,
                       head[3], head[2], side, side);
    *count = head[1];
    *bytes = xmalloc(*count * (side ? side * side : 1));
    return idx_read_bytes(file, path, *bytes, *count * (side ? side * side : 1), e);
}

static int idx_read(const char *folder, const char *set, size_t side, uint8_t **bytes,
                    size_t *count, struct err *e)
{
    char path[PATH_MAX];
    const char *name;
    gzFile file;
    int rc;

    snprintf(path, sizeof(path) - 3, "%s/%s-%s-ubyte", folder, set,
             side ? "images-idx3" : "labels-idx1");
    file = gzopen(path, "rb");
    if (!file && errno == ENOENT)
        file = gzopen(strcat(path, ".gz"), "rb");
    name = strrchr(path, '/') + 1;
    if (!file && errno == ENOENT)
        return err_set(e, "there is no %.*s or %s in %s", (int)strlen(name) - 3, name,
                       name, folder);
    if (!file)
        return err_set_errno(e, errno, "%s", path);
    rc = idx_read_items(file, path, side, bytes, count, e);
    gzclose(file);
    return rc;
}

int data_read(struct data *d, const char *folder, const char *set, struct err *e)
{
    size_t labels;

    if (idx_read(folder, set, IMAGE_SIDE, &d->images, &d->count, e) < 0 ||
        idx_read(folder, set, 0, &d->labels, &labels, e) < 0)
        return -1;
    if (labels != d->count)
        return err_set(e, "%s: there are %zu images and %zu labels in the files of %s",
                       folder, d->count, labels, set);
    for (size_t i = 0; i < labels; i++)
        if (d->labels[i] >= CLASSES)
            return err_set(
                e, "%s/%s-labels-idx1-ubyte: label %u of item %zu is not 0 to %d",
                folder, set, d->labels[i], i, CLASSES - 1);
    return 0;
}

void data_draw(struct data *d, uint64_t seed, size_t count)
{
    *d = (struct data){ xcalloc(count, IMAGE_PIXELS), xmalloc(count), count, seed };
    memset(d->labels, NOT_DRAWN, count);
}

uint8_t data_get(struct data *d, uint64_t number, float *image)
{
    uint8_t *pixels = d->images + number * IMAGE_PIXELS, *label = d->labels + number;

    if (*label == NOT_DRAWN)
        *label = (uint8_t)glyph_draw(d->seed, number, pixels);
    for (size_t p = 0; p < IMAGE_PIXELS; p++)
        image[p] = ((float)pixels[p] * (1 / 255.0f) - MEAN) * (1 / DEVIATION);
    return *label;
}
