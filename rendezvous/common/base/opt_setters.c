/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/opt.h"

static void *opt_field(void *target, const struct opt *o)
{
    return (char *)target + o->offset;
}

int opt_set_true(void *target, const struct opt *o, const char *value, struct err *e)
{
    *(bool *)opt_field(target, o) = true;
    return 0;
}

int opt_set_text(void *target, const struct opt *o, const char *value, struct err *e)
{
    *(const char **)opt_field(target, o) = value;
    return 0;
}

int opt_add_text(void *target, const struct opt *o, const char *value, struct err *e)
{
    struct opt_texts *texts = opt_field(target, o);

    if (texts->from_variable)
        *texts = (struct opt_texts){ .count = 0 };
    if (texts->count == OPT_TEXTS_MAX)
        return err_set(e, "more than %d of them", OPT_TEXTS_MAX);
    texts->text[texts->count++] = value;
    return 0;
}

/* The range of o has been checked and fits the field. */
static void write_opt_number(void *target, const struct opt *o, long long number)
{
    void *f = opt_field(target, o);

    if (o->size == sizeof(uint16_t))
        *(uint16_t *)f = (uint16_t)number;
    else if (o->size == sizeof(uint32_t))
        *(uint32_t *)f = (uint32_t)number;
    else
        *(long long *)f = number;
}

int opt_set_int(void *target, const struct opt *o, const char *value, struct err *e)
{
    const char *digits = *value == '-' ? value + 1 : value;
    size_t n = strspn(digits, "0123456789");
    long long number;

    errno = 0;
    number = strtoll(value, NULL, 10);
    if (n == 0 || digits[n] != '\0' || errno == ERANGE || number < o->min ||
        number > o->max)
        return err_set(e, "\"%s\" is not a whole number from %lld to %lld", value,
                       o->min, o->max);
    write_opt_number(target, o, number);
    return 0;
}

/* "15", "0.2": milliseconds as seconds */
static const char *format_seconds(long long ms, char *text, size_t size)
{
    int n = snprintf(text, size, "%lld.%03lld", ms / 1000, ms % 1000);

    while (text[n - 1] == '0')
        text[--n] = '\0';
    if (text[n - 1] == '.')
        text[n - 1] = '\0';
    return text;
}

int opt_set_seconds(void *target, const struct opt *o, const char *value, struct err *e)
{
    int64_t ms = clock_parse_duration(value);
    char min[32], max[32];

    if (ms < 0 || ms < o->min || ms > o->max)
        return err_set(e,
                       "\"%s\" is not a time from %s to %s s, as in 90, 500ms, 5m or "
                       "1h30m",
                       value, format_seconds(o->min, min, sizeof(min)),
                       format_seconds(o->max, max, sizeof(max)));
    write_opt_number(target, o, ms);
    return 0;
}

int opt_set_user(void *target, const struct opt *o, const char *value, struct err *e)
{
    size_t digits = strspn(value, "0123456789");
    unsigned long long number = strtoull(value, NULL, 10);
    const struct passwd *user;

    if (digits > 0 && !value[digits] && digits <= 10 && number < UINT32_MAX) {
        *(uid_t *)opt_field(target, o) = (uid_t)number;
        return 0;
    }
    user = *value ? getpwnam(value) : NULL;
    if (!user)
        return err_set(e, "\"%s\" is not a user of this machine", value);
    *(uid_t *)opt_field(target, o) = user->pw_uid;
    return 0;
}
