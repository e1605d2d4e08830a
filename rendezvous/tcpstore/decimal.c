/* SPDX-License-Identifier: MIT */
#include "rendezvous/tcpstore/decimal.h"

#include <stdbool.h>

static int not_a_number(struct err *e)
{
    return err_set(e, "the value is not a number of 64 bits");
}

int decimal_parse(struct span text, int64_t *number, struct err *e)
{
    const uint8_t *p = text.data, *end = p + text.size, *first;
    bool negative = false;
    int64_t n = 0;

    while (p < end && (*p == ' ' || (*p >= '\t' && *p <= '\r')))
        p++;
    if (p < end && (*p == '-' || *p == '+'))
        negative = *p++ == '-';
    for (first = p; p < end && *p >= '0' && *p <= '9'; p++) {
        int digit = *p - '0';

        /* summed up as a negative number, because their range is larger by one */
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_sub_overflow(n, digit, &n))
            return not_a_number(e);
    }
    if (p == first || (!negative && n == INT64_MIN))
        return not_a_number(e);
    *number = negative ? n : -n;
    return 0;
}

struct span decimal_format(int64_t number, uint8_t buf[DECIMAL_SIZE])
{
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    uint8_t *end = buf + DECIMAL_SIZE, *p = end;

    do
        *--p = (uint8_t)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0)
        *--p = '-';
    return (struct span){ p, (size_t)(end - p) };
}
