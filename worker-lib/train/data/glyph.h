/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_DATA_GLYPH_H
#define WORKER_LIB_TRAIN_DATA_GLYPH_H

#include <stdint.h>

/*
 * Generates an image of a handwritten digit: strokes that are rotated, slanted,
 * shifted, stretched, thick or thin, with noise. The image is a function of (seed,
 * number), so that every rank draws the same one.
 *
 * Writes IMAGE_SIDE * IMAGE_SIDE pixels and returns the digit.
 */
unsigned glyph_draw(uint64_t seed, uint64_t number, uint8_t *pixels);

#endif
