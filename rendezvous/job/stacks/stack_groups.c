/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/stacks/stack_groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"

void stack_groups_fini(struct stack_groups *s)
{
    for (unsigned i = 0; i < s->count; i++) {
        rank_ranges_fini(&s->group[i].ranks);
        free(s->group[i].log);
        free(s->group[i].brief);
        free(s->group[i].threads);
    }
    free(s->group);
    *s = (struct stack_groups){ .briefly = s->briefly };
}

/* -- merging -------------------------------------------------------------------- */

static bool belongs_to(const struct stack_groups *s, const struct stack_group *g,
                       const struct msg_stacks *m)
{
    if (g->kind != m->kind || g->waits != m->waits || strcmp(g->brief, m->brief) != 0)
        return false;
    if (m->kind == STACKS_MISSING)
        return strcmp(g->host, m->host) == 0;
    return s->briefly || strcmp(g->threads, m->threads) == 0;
}

static struct stack_group *find_group(struct stack_groups *s,
                                      const struct msg_stacks *m)
{
    for (unsigned i = 0; i < s->count; i++)
        if (belongs_to(s, &s->group[i], m))
            return &s->group[i];
    return NULL;
}

static struct stack_group *add_group(struct stack_groups *s, const struct msg_stacks *m)
{
    struct stack_group *g;

    if (s->count == STACK_GROUPS_MAX)
        return NULL;
    if (s->count == s->room) {
        s->room = s->room ? 2 * s->room : 8;
        s->group = xrealloc(s->group, s->room * sizeof(*s->group));
    }
    g = &s->group[s->count++];
    *g = (struct stack_group){ .kind = m->kind,
                               .waits = m->waits,
                               .log = xstrdup(""),
                               .brief = xstrdup(m->brief),
                               .threads = xstrdup(m->threads) };
    return g;
}

void stack_groups_add(struct stack_groups *s, const struct msg_stacks *m)
{
    struct rank_ranges ranks = { .count = 0 };
    struct stack_group *g;

    if (*m->ranks ? !rank_ranges_parse(&ranks, m->ranks) : m->kind != STACKS_MISSING) {
        rank_ranges_fini(&ranks);
        return;
    }
    g = find_group(s, m);
    if (!g)
        g = add_group(s, m);
    if (g && (g->ranks.count == 0 ||
              (ranks.count && ranks.range[0].first < g->ranks.range[0].first))) {
        memcpy(g->host, m->host, sizeof(g->host));
        g->pid = m->pid;
        free(g->log);
        g->log = xstrdup(m->log);
    }
    for (unsigned i = 0; g && i < ranks.count; i++)
        rank_ranges_add(&g->ranks, ranks.range[i].first, ranks.range[i].last);
    rank_ranges_fini(&ranks);
}

static int by_size(const void *a, const void *b)
{
    const struct stack_group *x = a, *y = b;
    uint64_t m = rank_ranges_size(&x->ranks), n = rank_ranges_size(&y->ranks);

    if (m != n)
        return m < n ? 1 : -1;
    if (m == 0)
        return strcmp(x->host, y->host);
    return x->ranks.range[0].first < y->ranks.range[0].first ? -1 : 1;
}

void stack_groups_sort(struct stack_groups *s)
{
    if (s->count > 1)
        qsort(s->group, s->count, sizeof(*s->group), by_size);
}

/* -- for users ------------------------------------------------------------------ */

static const char *describe_verb(const struct stack_group *g, bool one)
{
    switch (g->kind) {
    case STACKS_SILENT:
        return one ? " does not answer: " : " do not answer: ";
    case STACKS_PAGE:
        return ": ";
    case STACKS_ENDED:
        return one ? " has ended" : " have ended";
    default:
        return g->waits ? one ? " waits in " : " wait in "
               : one    ? " is in "
                        : " are in ";
    }
}

char *stack_group_describe(const struct stack_group *g, char *buf, size_t size)
{
    char ranks[RANKS_SHOWN_BYTES];

    if (g->kind == STACKS_MISSING) {
        snprintf(buf, size, "node %s did not answer%s%s", g->host,
                 *g->brief ? ": " : "", g->brief);
        return buf;
    }
    snprintf(buf, size, "%s%s%s", rank_ranges_describe(&g->ranks, ranks, sizeof(ranks)),
             describe_verb(g, rank_ranges_size(&g->ranks) == 1),
             g->kind == STACKS_ENDED ? "" : g->brief);
    return buf;
}

char *stack_groups_describe(const struct stack_groups *s, char *buf, size_t size)
{
    char one[RANKS_SHOWN_BYTES + STACKS_BRIEF_MAX_BYTES + 32], more[32] = "";
    size_t used = 0;

    *buf = '\0';
    for (unsigned i = 0; i < s->count; i++) {
        size_t length = strlen(stack_group_describe(&s->group[i], one, sizeof(one)));

        if (used + length + 2 + sizeof(more) > size) {
            snprintf(more, sizeof(more), "; and %u more group%s", s->count - i,
                     s->count - i == 1 ? "" : "s");
            break;
        }
        used += (size_t)snprintf(buf + used, size - used, "%s%s", i ? "; " : "", one);
    }
    if (used + strlen(more) < size)
        memcpy(buf + used, more, strlen(more) + 1);
    return buf;
}
