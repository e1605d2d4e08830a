/* SPDX-License-Identifier: MIT */
#include "agent/workers/leftover_names.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool names_have(const char *list, const char *name)
{
    size_t length = strlen(name);

    for (; list; list = strstr(list, ", "), list += list ? 2 : 0)
        if (strncmp(list, name, length) == 0 && strchr(",", list[length]))
            return true;
    return false;
}

void leftover_names_add(struct leftover_names *l, int64_t rank, const char *name)
{
    size_t used = strlen(l->names);

    l->count++;
    if (rank >= 0)
        rank_ranges_add(&l->ranks, (uint32_t)rank, (uint32_t)rank);
    if (used + strlen(name) + 3 < sizeof(l->names) && !names_have(l->names, name))
        snprintf(l->names + used, sizeof(l->names) - used, "%s%s", used ? ", " : "",
                 name);
}

void leftover_names_clear(struct leftover_names *l)
{
    rank_ranges_fini(&l->ranks);
    *l = (struct leftover_names){ .count = 0 };
}

void leftover_names_describe(const struct leftover_names *l, char *text, size_t size)
{
    char ranks[64] = "the workers";

    if (l->ranks.count > 0)
        rank_ranges_describe(&l->ranks, ranks, sizeof(ranks));
    snprintf(text, size, "%s left %" PRIu32 " process%s (%s)", ranks, l->count,
             l->count == 1 ? "" : "es", l->names);
}
