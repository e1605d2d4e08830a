/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/protocol/base64.h"

#include <stdint.h>
#include <string.h>

static const char digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *base64_encode(const void *data, size_t size, char *text)
{
    const uint8_t *in = data;
    char *out = text;

    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        uint32_t bits = (uint32_t)in[i] << 16 | (left > 1 ? in[i + 1] : 0u) << 8 |
                        (left > 2 ? in[i + 2] : 0u);

        *out++ = digits[bits >> 18];
        *out++ = digits[bits >> 12 & 63];
        *out++ = left > 1 ? digits[bits >> 6 & 63] : '=';
        *out++ = left > 2 ? digits[bits & 63] : '=';
    }
    *out = '\0';
    return text;
}

static int digit_value(char c)
{
    const char *at = c ? strchr(digits, c) : NULL;

    return at ? (int)(at - digits) : -1;
}

/* Four digits; padding is only at the end. Returns 1 to 3 bytes, or 0. */
static size_t decode_group(const char *text, uint8_t bytes[3])
{
    uint32_t bits = 0;
    size_t n = 0;

    while (n < 4 && digit_value(text[n]) >= 0)
        bits = bits << 6 | (uint32_t)digit_value(text[n++]);
    if (n < 2 || strncmp(text + n, "==", 4 - n) != 0)
        return 0;
    bits <<= 6 * (4 - n);
    for (size_t i = 0; i < 3; i++)
        bytes[i] = (uint8_t)(bits >> (16 - 8 * i));
    return n - 1;
}

ssize_t base64_decode(const char *text, void *data, size_t size)
{
    size_t length = strlen(text), used = 0;

    if (length % 4 != 0)
        return -1;
    for (size_t i = 0; i < length; i += 4) {
        uint8_t bytes[3];
        size_t n = decode_group(text + i, bytes);

        if (n == 0 || (n < 3 && i + 4 < length) || used + n > size)
            return -1;
        memcpy((uint8_t *)data + used, bytes, n);
        used += n;
    }
    return (ssize_t)used;
}
