/* SPDX-License-Identifier: MIT */
/*
 * Sets of small numbers in fixed memory, and the list format of the kernel in sysfs and
 * /proc.
 */
#include "agent/devices/id_set.h"

#include <ctype.h>
#include <stdlib.h>

enum { WORDS = ID_SET_MAX / 64 };

static bool parse_number(const char **at, long *value)
{
    char *end;

    if (!isdigit((unsigned char)**at))
        return false;
    *value = strtol(*at, &end, 10);
    *at = end;
    return *value < ID_SET_MAX;
}

static bool parse_range(struct id_set *set, const char **at)
{
    long first, last;

    if (!parse_number(at, &first))
        return false;
    last = first;
    if (**at == '-') {
        (*at)++;
        if (!parse_number(at, &last) || last < first)
            return false;
    }
    for (long id = first; id <= last; id++)
        id_set_add(set, (int)id);
    return true;
}

bool id_set_parse(struct id_set *set, const char *text)
{
    /* a node without CPUs has an empty list */
    while (*text && *text != '\n') {
        if (!parse_range(set, &text))
            return false;
        if (*text == ',')
            text++;
        else if (*text && *text != '\n')
            return false;
    }
    return true;
}

void id_set_add(struct id_set *set, int id)
{
    set->word[id / 64] |= (uint64_t)1 << id % 64;
}

bool id_set_has(const struct id_set *set, int id)
{
    return id >= 0 && id < ID_SET_MAX && (set->word[id / 64] >> id % 64 & 1);
}

int id_set_next(const struct id_set *set, int from)
{
    for (int id = from; id < ID_SET_MAX; id++)
        if (id_set_has(set, id))
            return id;
    return -1;
}

unsigned id_set_count(const struct id_set *set)
{
    unsigned count = 0;

    for (int i = 0; i < WORDS; i++)
        count += (unsigned)__builtin_popcountll(set->word[i]);
    return count;
}

void id_set_join(struct id_set *set, const struct id_set *other)
{
    for (int i = 0; i < WORDS; i++)
        set->word[i] |= other->word[i];
}

void id_set_keep(struct id_set *set, const struct id_set *other)
{
    for (int i = 0; i < WORDS; i++)
        set->word[i] &= other->word[i];
}

void id_set_drop(struct id_set *set, const struct id_set *other)
{
    for (int i = 0; i < WORDS; i++)
        set->word[i] &= ~other->word[i];
}
