/* SPDX-License-Identifier: MIT */
#include "agent/workers/leftovers.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool leftovers_have(const char *list, const char *name)
{
    size_t length = strlen(name);

    for (; list; list = strstr(list, ", "), list += list ? 2 : 0)
        if (strncmp(list, name, length) == 0 && strchr(",", list[length]))
            return true;
    return false;
}

void leftovers_add(struct leftovers *l, int64_t rank, const char *name)
{
    size_t used = strlen(l->names);

    l->count++;
    if (rank >= 0)
        rank_ranges_add(&l->ranks, (uint32_t)rank, (uint32_t)rank);
    if (used + strlen(name) + 3 < sizeof(l->names) && !leftovers_have(l->names, name))
        snprintf(l->names + used, sizeof(l->names) - used, "%s%s", used ? ", " : "",
                 name);
}

void leftovers_clear(struct leftovers *l)
{
    rank_ranges_fini(&l->ranks);
    *l = (struct leftovers){ .count = 0 };
}

void leftovers_describe(const struct leftovers *l, char *text, size_t size)
{
    char ranks[64] = "the workers";

    if (l->ranks.count > 0)
        rank_ranges_describe(&l->ranks, ranks, sizeof(ranks));
    snprintf(text, size, "%s left %" PRIu32 " process%s (%s)", ranks, l->count,
             l->count == 1 ? "" : "es", l->names);
}
