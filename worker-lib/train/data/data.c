/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/data/data.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "rendezvous/common/base/xalloc.h"
#include "worker-lib/train/data/glyph.h"
#include "worker-lib/train/data/idx.h"

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
