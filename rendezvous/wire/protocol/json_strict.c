/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/protocol/json_strict.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "rendezvous/common/base/text.h"

struct scan {
    const char *at, *end;
    unsigned depth;
    struct err *e;
};

static size_t bytes_left(const struct scan *s)
{
    return (size_t)(s->end - s->at);
}

static bool next_is(const struct scan *s, const char *set)
{
    return s->at < s->end && *s->at && strchr(set, *s->at);
}

/* -- strings ------------------------------------------------------------------- */

/* After a backslash. cJSON knows which letters may follow, but reads \uzzzz as 0. */
static int check_escape(struct scan *s)
{
    if (s->at == s->end || *s->at++ != 'u')
        return 0;
    if (bytes_left(s) < 4)
        return err_set(s->e, "an escape is cut off");
    for (int i = 0; i < 4; i++)
        if (!isxdigit((unsigned char)s->at[i]))
            return err_set(s->e, "an escape has no four hex digits");
    if (memcmp(s->at, "0000", 4) == 0)
        return err_set(s->e, "a text holds a NUL");
    s->at += 4;
    return 0;
}

/* From after the opening quote to after the closing quote. */
static int check_string(struct scan *s)
{
    while (s->at < s->end && *s->at != '"') {
        size_t n = text_utf8_size(s->at, bytes_left(s));

        if (n == 0)
            return err_set(s->e, "a text is not UTF-8");
        if ((unsigned char)*s->at < ' ')
            return err_set(s->e, "a text holds the control byte 0x%02x", *s->at);
        s->at += n;
        if (s->at[-1] == '\\' && check_escape(s) < 0)
            return -1;
    }
    if (s->at == s->end)
        return err_set(s->e, "a text does not end");
    s->at++;
    return 0;
}

/* -- numbers ------------------------------------------------------------------- */

static size_t skip_digits(struct scan *s)
{
    const char *from = s->at;

    while (next_is(s, "0123456789"))
        s->at++;
    return (size_t)(s->at - from);
}

static bool is_number(struct scan *s)
{
    size_t n;
    bool zero;

    if (next_is(s, "-"))
        s->at++;
    zero = next_is(s, "0");
    n = skip_digits(s);
    if (n == 0 || (zero && n > 1))
        return false;
    if (next_is(s, ".")) {
        s->at++;
        if (skip_digits(s) == 0)
            return false;
    }
    if (next_is(s, "eE")) {
        s->at++;
        if (next_is(s, "+-"))
            s->at++;
        return skip_digits(s) > 0;
    }
    return true;
}

/* -- all ----------------------------------------------------------------------- */

static int check_token(struct scan *s, unsigned depth_max)
{
    char c = *s->at;

    if (isdigit((unsigned char)c) || c == '-')
        return is_number(s) ? 0 : err_set(s->e, "a number is malformed");
    s->at++;
    switch (c) {
    case '"':
        return check_string(s);
    case '{':
    case '[':
        return ++s->depth <= depth_max
                   ? 0
                   : err_set(s->e, "more than %u levels deep", depth_max);
    case '}':
    case ']':
        s->depth--; /* below 0 it is not JSON, which cJSON reports */
        return 0;
    case '\t':
    case '\n':
    case '\r':
        return 0;
    default:
        return c >= ' ' && c < 0x7f ? 0
                                    : err_set(s->e, "the byte 0x%02x outside of a text",
                                              (unsigned char)c);
    }
}

int json_check(const char *text, size_t size, unsigned depth_max, struct err *e)
{
    struct scan s = { .at = text, .end = text + size, .e = e };

    while (s.at < s.end)
        if (check_token(&s, depth_max) < 0)
            return -1;
    return 0;
}
