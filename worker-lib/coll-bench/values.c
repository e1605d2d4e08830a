/* SPDX-License-Identifier: MIT */
#include "worker-lib/coll-bench/values.h"

#include <string.h>

/* Only this many ranks increase a sum or product, because u8 and bf16 are small. */
#define VARYING_RANKS 4

unsigned rank_value(int rank, size_t element, crun_op op)
{
    unsigned x = (unsigned)((element + (size_t)rank) % 3);

    switch (op) {
    case CRUN_MEAN: /* equal on all ranks, so that the mean is an integer */
        return 1 + (unsigned)(element % 3);
    case CRUN_SUM:
        return rank < VARYING_RANKS ? x : 0;
    case CRUN_PRODUCT:
        return rank < VARYING_RANKS ? 1 + x : 1;
    default:
        return 1 + x;
    }
}

unsigned reduced_value(int ranks, size_t element, crun_op op)
{
    unsigned result = rank_value(0, element, op);

    for (int r = 1; r < ranks && op != CRUN_MEAN; r++) {
        unsigned x = rank_value(r, element, op);

        if (op == CRUN_SUM)
            result += x;
        else if (op == CRUN_PRODUCT)
            result *= x;
        else if (op == CRUN_MIN ? x < result : x > result)
            result = x;
    }
    return result;
}

/* For integers up to 2048. */
static uint16_t f16_from_integer(unsigned value)
{
    unsigned exponent = 0;

    if (value == 0)
        return 0;
    while (value >> (exponent + 1))
        exponent++;
    return (uint16_t)(((exponent + 15) << 10) |
                      ((value - (1u << exponent)) << (10 - exponent)));
}

void store_value(void *to, size_t index, crun_dtype type, unsigned value)
{
    float number = (float)value;
    uint32_t bits;

    switch (type) {
    case CRUN_F32:
        ((float *)to)[index] = number;
        break;
    case CRUN_F64:
        ((double *)to)[index] = value;
        break;
    case CRUN_F16:
        ((uint16_t *)to)[index] = f16_from_integer(value);
        break;
    case CRUN_BF16:
        memcpy(&bits, &number, sizeof(bits));
        ((uint16_t *)to)[index] = (uint16_t)(bits >> 16);
        break;
    case CRUN_I32:
        ((int32_t *)to)[index] = (int32_t)value;
        break;
    case CRUN_I64:
        ((int64_t *)to)[index] = value;
        break;
    default:
        ((uint8_t *)to)[index] = (uint8_t)value;
        break;
    }
}

bool stored_value_is(const void *in, size_t index, crun_dtype type, unsigned value)
{
    size_t size = crun_dtype_size(type);
    uint64_t expected;

    store_value(&expected, 0, type, value);
    return memcmp((const char *)in + index * size, &expected, size) == 0;
}
