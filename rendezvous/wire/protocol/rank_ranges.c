/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/protocol/rank_ranges.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"

void rank_ranges_fini(struct rank_ranges *r)
{
    free(r->range);
    *r = (struct rank_ranges){ .count = 0 };
}

/* The ranges that touch the new one become part of it. */
void rank_ranges_add(struct rank_ranges *r, uint32_t first, uint32_t last)
{
    unsigned at = 0, end;

    while (at < r->count && (uint64_t)r->range[at].last + 1 < first)
        at++;
    end = at;
    while (end < r->count && r->range[end].first <= (uint64_t)last + 1) {
        first = r->range[end].first < first ? r->range[end].first : first;
        last = r->range[end].last > last ? r->range[end].last : last;
        end++;
    }
    if (end == at && r->count == r->room) {
        r->room = r->room ? 2 * r->room : 4;
        r->range = xrealloc(r->range, r->room * sizeof(*r->range));
    }
    memmove(r->range + at + 1, r->range + end, (r->count - end) * sizeof(*r->range));
    r->count = r->count - (end - at) + 1;
    r->range[at] = (struct rank_range){ first, last };
}

bool rank_ranges_have(const struct rank_ranges *r, uint32_t rank)
{
    for (unsigned i = 0; i < r->count; i++)
        if (rank >= r->range[i].first && rank <= r->range[i].last)
            return true;
    return false;
}

uint64_t rank_ranges_size(const struct rank_ranges *r)
{
    uint64_t size = 0;

    for (unsigned i = 0; i < r->count; i++)
        size += (uint64_t)r->range[i].last - r->range[i].first + 1;
    return size;
}

static bool parse_rank(const char **text, uint32_t *rank)
{
    char *end;
    unsigned long value;

    if (!isdigit((unsigned char)**text))
        return false;
    value = strtoul(*text, &end, 10);
    if (end - *text > 9)
        return false;
    *text = end;
    *rank = (uint32_t)value;
    return true;
}

bool rank_ranges_parse(struct rank_ranges *r, const char *text)
{
    for (;;) {
        uint32_t first, last;

        if (!parse_rank(&text, &first))
            return false;
        last = first;
        if (*text == '-' && (text++, !parse_rank(&text, &last) || last < first))
            return false;
        rank_ranges_add(r, first, last);
        if (!*text)
            return true;
        if (*text++ != ',')
            return false;
    }
}

static int print_range(const struct rank_range *range, const char *before, char *buf,
                       size_t size)
{
    if (range->first == range->last)
        return snprintf(buf, size, "%s%" PRIu32, before, range->first);
    return snprintf(buf, size, "%s%" PRIu32 "-%" PRIu32, before, range->first,
                    range->last);
}

unsigned rank_ranges_print(const struct rank_ranges *r, unsigned from, char *buf,
                           size_t size)
{
    size_t used = 0;
    unsigned i = from;

    *buf = '\0';
    for (; i < r->count; i++) {
        int n = print_range(&r->range[i], i > from ? "," : "", buf + used, size - used);

        if (used + (size_t)n >= size) {
            buf[used] = '\0';
            break;
        }
        used += (size_t)n;
    }
    return i;
}

/* Two neighbours read better as "0, 1". */
static int describe_range(const struct rank_range *range, const char *before, char *buf,
                          size_t size)
{
    if (range->last == range->first + 1)
        return snprintf(buf, size, "%s%" PRIu32 ", %" PRIu32, before, range->first,
                        range->last);
    return print_range(range, before, buf, size);
}

char *rank_ranges_describe(const struct rank_ranges *r, char *buf, size_t size)
{
    static const char cut[] = ", ...";
    size_t used = (size_t)snprintf(buf, size, "rank%s",
                                   rank_ranges_size(r) == 1 ? "" : "s");

    for (unsigned i = 0; i < r->count; i++) {
        size_t room = size - used - (i + 1 < r->count ? sizeof(cut) - 1 : 0);
        int n = describe_range(&r->range[i], i ? ", " : " ", buf + used, room);

        if ((size_t)n >= room) {
            snprintf(buf + used, size - used, "%s", cut);
            break;
        }
        used += (size_t)n;
    }
    return buf;
}
