/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/half.h"

#include <string.h>

static uint32_t bits_of(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

void half_to_bf16(const float *from, uint16_t *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = bits_of(from[i]);
        uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);

        /* a NaN stays one, whichever of its bits are set */
        to[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40
                                                            : rounded >> 16);
    }
}

/*
 * The processor's own addition does the rounding: below the least normal number by
 * adding a number whose last bit is worth as much as the last of the result.
 */
static uint16_t f16_of(float f)
{
    uint32_t bits = bits_of(f), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    uint32_t tiny = bits_of(float_of(size) + 0.5f) - bits_of(0.5f);
    uint32_t normal = (size + 0xfff + (size >> 13 & 1) - ((127 - 15) << 23)) >> 13;
    uint32_t value = size < 0x38800000 ? tiny : normal;

    value = size >= 0x477ff000 ? 0x7c00 : value; /* rounds to infinity */
    value = size > 0x7f800000 ? 0x7e00 : value;
    return (uint16_t)(sign | value);
}

void half_to_f16(const float *from, uint16_t *to, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = f16_of(from[i]);
}
