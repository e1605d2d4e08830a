/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"

#define IMAGE_SIDE 28
#define IMAGE_PIXELS (IMAGE_SIDE * IMAGE_SIDE)
#define CLASSES 10

/* Labelled images of digits: a training set or a test set. */
struct data;

/* MNIST's two pairs of files, plain or .gz, from a folder. NULL: see *e. */
struct data *data_read(const char *folder, const char *set, struct err *e) MUST_CHECK;
#define DATA_TRAIN "train"
#define DATA_TEST "t10k"

/* `count` generated digits; each is drawn when it is first used. */
struct data *data_draw(uint64_t seed, size_t count);
void data_destroy(struct data *d); /* NULL is fine */

size_t data_count(const struct data *d);
/* Use only the first `count`, if there are more. */
void data_limit(struct data *d, size_t count);

/* Copies samples as input for a net: images with mean 0 and deviation 1, and labels. */
void data_get(struct data *d, const uint64_t *sample, size_t count, float *images,
              uint8_t *labels);

/*
 * Generates an image of a handwritten digit: strokes that are rotated, slanted,
 * shifted, stretched, thick or thin, with noise. The image is a function of (seed,
 * number), so that every rank draws the same one.
 *
 * Writes IMAGE_SIDE * IMAGE_SIDE pixels and returns the digit.
 */
unsigned glyph_draw(uint64_t seed, uint64_t number, uint8_t *pixels);
