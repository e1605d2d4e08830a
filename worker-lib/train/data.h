/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"

#define IMAGE_SIDE 28
#define IMAGE_PIXELS (IMAGE_SIDE * IMAGE_SIDE)
#define CLASSES 10

/* Labelled images of digits: a training set or a test set. */
struct data {
    uint8_t *images, *labels; /* a label of NOT_DRAWN: the image comes with its use */
    size_t count;             /* of those that are used */
    uint64_t seed;            /* of drawn digits */
};

#define NOT_DRAWN 255

/* Reads MNIST's two pairs of files, plain or .gz, from a folder: set "train" or "t10k".
 * The data is allocated until the process ends. */
int data_read(struct data *d, const char *folder, const char *set,
              struct err *e) MUST_CHECK;

/* `count` generated digits; each is drawn when it is first used. */
void data_draw(struct data *d, uint64_t seed, size_t count);

/* Copies an image as input for a net, with mean 0 and deviation 1. Returns its label.
 */
uint8_t data_get(struct data *d, uint64_t number, float *image);

/* Draws a handwritten digit on the pixels: strokes that are rotated, slanted, shifted,
 * stretched, thick or thin, with noise. It is a function of (seed, number), so every
 * rank draws the same one. Returns the digit. */
unsigned glyph_draw(uint64_t seed, uint64_t number, uint8_t *pixels);
