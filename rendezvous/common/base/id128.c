/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/id128.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct id128 id128_random(void)
{
    struct id128 id;

    /* such a small request is never cut short, and cannot fail after boot */
    if (getrandom(id.byte, sizeof(id.byte), 0) != (ssize_t)sizeof(id.byte))
        abort();
    return id;
}

bool id128_equal(const struct id128 *a, const struct id128 *b)
{
    return memcmp(a->byte, b->byte, sizeof(a->byte)) == 0;
}

bool id128_is_zero(const struct id128 *id)
{
    static const struct id128 zero;

    return id128_equal(id, &zero);
}

char *id128_format(const struct id128 *id, char hex[ID128_HEX_SIZE])
{
    static const char digits[] = "0123456789abcdef";

    for (unsigned i = 0; i < sizeof(id->byte); i++) {
        hex[2 * i] = digits[id->byte[i] >> 4];
        hex[2 * i + 1] = digits[id->byte[i] & 15];
    }
    hex[2 * sizeof(id->byte)] = '\0';
    return hex;
}

bool id128_parse(const char *hex, struct id128 *id)
{
    for (unsigned i = 0; i < sizeof(id->byte); i++) {
        char pair[3] = { hex[2 * i], 0, 0 };

        if (!isxdigit((unsigned char)pair[0]))
            return false;
        pair[1] = hex[2 * i + 1];
        if (!isxdigit((unsigned char)pair[1]))
            return false;
        id->byte[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return hex[2 * sizeof(id->byte)] == '\0';
}
