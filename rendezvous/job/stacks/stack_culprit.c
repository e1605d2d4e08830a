/* SPDX-License-Identifier: MIT */
/* Which ranks all others wait for, by their stacks. */
#include "rendezvous/job/stacks/stack_groups.h"

#include <stdio.h>

/* Ranks that wait, and ranks that others may wait for. */
struct waiters {
    unsigned waiting, busy, missing; /* groups */
    unsigned placeless;              /* of the busy ones: pages, and processes */
    unsigned busy_group;
};

static struct waiters count_waiters(const struct stack_groups *s)
{
    struct waiters w = { .waiting = 0 };

    for (unsigned i = 0; i < s->count; i++) {
        const struct stack_group *g = &s->group[i];

        if (g->kind == STACKS_MISSING)
            w.missing++;
        else if (g->waits)
            w.waiting++;
        else if (g->kind != STACKS_ENDED)
            w.busy_group = i, w.busy++, w.placeless += g->kind == STACKS_PAGE;
    }
    return w;
}

/* The one smallest group with ranks. False: there are several. */
static bool find_smallest(const struct stack_groups *s, unsigned *group)
{
    uint64_t least = UINT64_MAX;
    unsigned as_small = 0;

    for (unsigned i = 0; i < s->count; i++) {
        uint64_t size = rank_ranges_size(&s->group[i].ranks);

        if (size == 0 || s->group[i].kind == STACKS_ENDED)
            continue;
        as_small = size < least ? 1 : as_small + (size == least);
        if (size < least)
            least = size, *group = i;
    }
    return as_small == 1;
}

enum stack_culprit stack_groups_find_culprit(const struct stack_groups *s,
                                             unsigned *group)
{
    struct waiters w = count_waiters(s);

    *group = w.busy_group;
    if (w.missing)
        return STACK_CULPRIT_NONE;
    if (w.waiting && w.busy == 1)
        return STACK_CULPRIT_AWAITED;
    if (w.busy == 0 && w.waiting > 1 && find_smallest(s, group))
        return STACK_CULPRIT_APART;
    if (w.busy == 2 && !w.waiting && !w.placeless && find_smallest(s, group))
        return STACK_CULPRIT_ELSEWHERE;
    return STACK_CULPRIT_NONE;
}

char *stack_groups_describe_culprit(const struct stack_groups *s, char *buf,
                                    size_t size)
{
    char ranks[RANKS_SHOWN_BYTES];
    unsigned i;

    *buf = '\0';
    switch (stack_groups_find_culprit(s, &i)) {
    case STACK_CULPRIT_AWAITED:
        snprintf(buf, size, "all other ranks wait for %s",
                 rank_ranges_describe(&s->group[i].ranks, ranks, sizeof(ranks)));
        break;
    case STACK_CULPRIT_APART:
        snprintf(buf, size, "%s and the others wait for each other in different calls",
                 rank_ranges_describe(&s->group[i].ranks, ranks, sizeof(ranks)));
        break;
    case STACK_CULPRIT_ELSEWHERE:
        snprintf(buf, size, "%s is not where the other ranks are",
                 rank_ranges_describe(&s->group[i].ranks, ranks, sizeof(ranks)));
        break;
    default:
        break;
    }
    return buf;
}
