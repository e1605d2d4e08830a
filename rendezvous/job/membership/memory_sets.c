/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/membership/memory_sets.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/rank_ranges.h"

/* Ranks whose own sections a node holds. */
struct memory_held {
    struct memory_set set;
    uint32_t first, last;
    bool has_shared, shared_is_here;
};

/* By node. */
struct memory_report {
    struct memory_held *held;
    unsigned count;
};

struct memory_sets {
    struct memory_report *report;
    uint32_t room;
};

struct memory_sets *memory_sets_create(void)
{
    return xcalloc(1, sizeof(struct memory_sets));
}

void memory_sets_destroy(struct memory_sets *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->room; i++)
        free(s->report[i].held);
    free(s->report);
    free(s);
}

/* -- texts ------------------------------------------------------------------------ */

static bool parse_number(const char **text, char end, uint64_t max, uint64_t *value)
{
    const char *at = *text;

    *value = 0;
    do {
        if (*at < '0' || *at > '9' || *value > (max - (unsigned)(*at - '0')) / 10)
            return false;
        *value = *value * 10 + (unsigned)(*at++ - '0');
    } while (*at != end);
    *text = at + (end != '\0');
    return true;
}

static bool parse_set(const char **text, char end, struct memory_set *set)
{
    uint64_t world;

    *set = (struct memory_set){ .world = 0 };
    if (!parse_number(text, '.', UINT64_MAX, &set->epoch) ||
        !parse_number(text, '.', UINT64_MAX, &set->step) ||
        !parse_number(text, end, (uint64_t)NODES_MAX * WORKERS_PER_NODE_MAX, &world) ||
        set->epoch == 0)
        return false;
    set->world = (uint32_t)world;
    return world > 0;
}

bool memory_set_parse(const char *text, struct memory_set *set)
{
    if (parse_set(&text, '\0', set))
        return true;
    set->world = 0;
    return false;
}

char *memory_set_print(const struct memory_set *set, char *buf, size_t size)
{
    *buf = '\0';
    if (set->world)
        snprintf(buf, size, "%" PRIu64 ".%" PRIu64 ".%" PRIu32, set->epoch, set->step,
                 set->world);
    return buf;
}

/* One word of a report. */
static bool parse_held(const char *word, struct memory_report *report)
{
    struct rank_ranges ranks = { .count = 0 };
    struct memory_held held;
    char list[256];
    size_t length;
    bool ok;

    if (!parse_set(&word, ':', &held.set) || (length = strlen(word)) < 1 ||
        length >= sizeof(list))
        return false;
    memcpy(list, word, length + 1);
    held.shared_is_here = list[length - 1] == '+';
    held.has_shared = held.shared_is_here || list[length - 1] == '-';
    if (held.has_shared)
        list[length - 1] = '\0';
    ok = rank_ranges_parse(&ranks, list) &&
         ranks.range[ranks.count - 1].last < held.set.world;
    for (unsigned i = 0; ok && i < ranks.count; i++) {
        held.first = ranks.range[i].first;
        held.last = ranks.range[i].last;
        report->held = xrealloc(report->held,
                                (report->count + 1) * sizeof(*report->held));
        report->held[report->count++] = held;
    }
    rank_ranges_fini(&ranks);
    return ok;
}

/* -- reports ---------------------------------------------------------------------- */

void memory_sets_forget(struct memory_sets *s, uint32_t node)
{
    if (node >= s->room)
        return;
    free(s->report[node].held);
    s->report[node] = (struct memory_report){ .count = 0 };
}

bool memory_sets_put(struct memory_sets *s, uint32_t node, const char *text)
{
    char *copy, *rest, *word;
    bool ok = true;

    memory_sets_forget(s, node);
    if (!*text)
        return true;
    if (node >= s->room) {
        s->report = xrealloc(s->report, (node + 1) * sizeof(*s->report));
        memset(s->report + s->room, 0, (node + 1 - s->room) * sizeof(*s->report));
        s->room = node + 1;
    }
    copy = rest = xstrdup(text);
    while (ok && (word = strsep(&rest, " ")))
        ok = parse_held(word, &s->report[node]);
    free(copy);
    if (!ok)
        memory_sets_forget(s, node);
    return ok;
}

/* -- the newest whole set --------------------------------------------------------- */

/* The newer one is the less. */
static int compare_sets(const struct memory_set *a, const struct memory_set *b)
{
    if (a->epoch != b->epoch)
        return a->epoch > b->epoch ? -1 : 1;
    if (a->step != b->step)
        return a->step > b->step ? -1 : 1;
    return a->world > b->world ? -1 : a->world < b->world;
}

static int compare_held(const void *a, const void *b)
{
    const struct memory_held *x = a, *y = b;
    int order = compare_sets(&x->set, &y->set);

    return order ? order : x->first < y->first ? -1 : x->first > y->first;
}

/* Of count parts in order, those of the first set: all of it? *used: how many they are.
 */
static bool is_whole(const struct memory_held *held, unsigned count, unsigned *used)
{
    uint32_t ranks = 0; /* from 0 on, without a gap */
    bool has_shared = false, shared_is_here = false;
    unsigned i;

    for (i = 0; i < count && compare_sets(&held[i].set, &held->set) == 0; i++) {
        if (held[i].first <= ranks && held[i].last >= ranks)
            ranks = held[i].last + 1;
        has_shared |= held[i].has_shared;
        shared_is_here |= held[i].shared_is_here;
    }
    *used = i;
    return ranks == held->set.world && (shared_is_here || !has_shared);
}

struct memory_set memory_sets_choose(const struct memory_sets *s, uint64_t newest_epoch)
{
    struct memory_set newest = { .world = 0 };
    struct memory_held *all;
    unsigned count = 0, used = 0;

    for (uint32_t i = 0; i < s->room; i++)
        count += s->report[i].count;
    if (count == 0)
        return newest;
    all = xcalloc(count, sizeof(*all));
    count = 0;
    for (uint32_t i = 0; i < s->room; i++)
        for (unsigned j = 0; j < s->report[i].count; j++)
            if (s->report[i].held[j].set.epoch <= newest_epoch)
                all[count++] = s->report[i].held[j];
    qsort(all, count, sizeof(*all), compare_held);
    for (unsigned i = 0; i < count && newest.world == 0; i += used)
        if (is_whole(all + i, count - i, &used))
            newest = all[i].set;
    free(all);
    return newest;
}

/* -- holders ---------------------------------------------------------------------- */

/* What the node holds of the set. */
static struct rank_ranges ranks_of(const struct memory_sets *s, uint32_t node,
                                   const struct memory_set *set, bool *has_shared,
                                   bool *shared_is_here)
{
    struct rank_ranges ranks = { .count = 0 };

    *has_shared = *shared_is_here = false;
    for (unsigned i = 0; node < s->room && i < s->report[node].count; i++) {
        const struct memory_held *held = &s->report[node].held[i];

        if (compare_sets(&held->set, set) != 0)
            continue;
        rank_ranges_add(&ranks, held->first, held->last);
        *has_shared |= held->has_shared;
        *shared_is_here |= held->shared_is_here;
    }
    return ranks;
}

char *memory_sets_held(const struct memory_sets *s, uint32_t node,
                       const struct memory_set *set, char *buf, size_t size)
{
    bool has_shared, shared_is_here;
    struct rank_ranges ranks = ranks_of(s, node, set, &has_shared, &shared_is_here);

    *buf = '\0';
    if (ranks.count > 0) {
        rank_ranges_print(&ranks, 0, buf, size - 1);
        if (has_shared)
            strcat(buf, shared_is_here ? "+" : "-");
    }
    rank_ranges_fini(&ranks);
    return buf;
}

bool memory_sets_has(const struct memory_sets *s, uint32_t node,
                     const struct memory_set *set, uint32_t first, uint32_t count)
{
    bool has_shared, shared_is_here, has = false;
    struct rank_ranges ranks = ranks_of(s, node, set, &has_shared, &shared_is_here);

    for (unsigned i = 0; i < ranks.count; i++)
        has |= ranks.range[i].first < first + count && ranks.range[i].last >= first;
    rank_ranges_fini(&ranks);
    return count ? has : shared_is_here;
}

bool memory_sets_lacks(const struct memory_sets *s, uint32_t node,
                       const struct memory_set *set, uint32_t first, uint32_t count)
{
    bool has_shared, shared_is_here, all = false;
    struct rank_ranges ranks = ranks_of(s, node, set, &has_shared, &shared_is_here);

    for (unsigned i = 0; i < ranks.count; i++)
        all |= ranks.range[i].first <= first &&
               ranks.range[i].last >= first + count - 1;
    rank_ranges_fini(&ranks);
    return !all || (has_shared && !shared_is_here);
}
