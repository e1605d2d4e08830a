/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_DATA_GLYPH_H
#define WORKER_LIB_TRAIN_DATA_GLYPH_H

#include <stdint.h>

/*
 * Digits as many hands would write them: strokes, turned, slanted, shifted, stretched,
 * thick or thin, on paper that is not clean. (seed, number) says all about the picture,
 * so that every rank draws the same one.
 *
 * Writes IMAGE_SIDE * IMAGE_SIDE pixels and returns which digit it is.
 */
unsigned glyph_draw(uint64_t seed, uint64_t number, uint8_t *pixels);

#endif
