/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/data/data.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "rendezvous/common/base/xalloc.h"
#include "worker-lib/train/data/glyph.h"
#include "worker-lib/train/data/idx.h"

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

static int check_labels(const char *folder, const char *set, const struct idx *labels,
                        size_t images, struct err *e)
{
    if (labels->count != images)
        return err_set(e, "%s: there are %zu images and %zu labels in the files of %s",
                       folder, images, labels->count, set);
    for (size_t i = 0; i < labels->count; i++)
        if (labels->bytes[i] >= CLASSES)
            return err_set(e,
                           "%s/%s-labels-idx1-ubyte: label %u of item %zu is not 0 "
                           "to %d",
                           folder, set, labels->bytes[i], i, CLASSES - 1);
    return 0;
}

struct data *data_read(const char *folder, const char *set, struct err *e)
{
    struct idx images = { 0 }, labels = { 0 };
    char name[64];
    struct data *d;

    snprintf(name, sizeof(name), "%s-images-idx3-ubyte", set);
    if (idx_read(folder, name, IMAGE_SIDE, &images, e) < 0)
        return NULL;
    snprintf(name, sizeof(name), "%s-labels-idx1-ubyte", set);
    if (idx_read(folder, name, 0, &labels, e) < 0 ||
        check_labels(folder, set, &labels, images.count, e) < 0) {
        free(images.bytes);
        free(labels.bytes);
        return NULL;
    }
    d = xcalloc(1, sizeof(*d));
    d->images = images.bytes;
    d->labels = labels.bytes;
    d->count = images.count;
    return d;
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

static void normalize_pixels(const uint8_t *pixels, float *image)
{
    for (size_t i = 0; i < IMAGE_PIXELS; i++)
        image[i] = ((float)pixels[i] * (1 / 255.0f) - DATA_MEAN) * (1 / DATA_DEVIATION);
}

static uint8_t *data_draw_sample(struct data *d, size_t s)
{
    uint8_t *pixels = d->images + s * IMAGE_PIXELS;

    if (d->drawn && !d->drawn[s]) {
        d->labels[s] = (uint8_t)glyph_draw(d->seed, s, pixels);
        d->drawn[s] = true;
    }
    return pixels;
}

const uint8_t *data_images(struct data *d)
{
    for (size_t s = 0; d->drawn && s < d->count; s++)
        data_draw_sample(d, s);
    return d->images;
}

const uint8_t *data_labels(struct data *d)
{
    data_images(d);
    return d->labels;
}

void data_get(struct data *d, const uint64_t *sample, size_t count, float *images,
              uint8_t *labels)
{
    for (size_t i = 0; i < count; i++) {
        size_t s = (size_t)sample[i];

        normalize_pixels(data_draw_sample(d, s), images + i * IMAGE_PIXELS);
        labels[i] = d->labels[s];
    }
}
