/* SPDX-License-Identifier: MIT */
/* crun_split: a world of some ranks of another world. */
#include <stdio.h>
#include <stdlib.h>

#include "rendezvous/common/base/clock.h"
#include "worker-lib/backends/backend_select.h"
#include "worker-lib/core/status.h"
#include "worker-lib/world/world_internal.h"

/* What each rank sends to all others. */
struct split_entry {
    int32_t color, key;
    int32_t splits; /* calls of crun_split so far, for names of groups */
};
#define ENTRY_NUMBERS (sizeof(struct split_entry) / sizeof(int32_t))

/* A rank of the group, at its place in the parent. */
struct group_place {
    int32_t key;
    unsigned place;
};

static int compare_places(const void *one, const void *other)
{
    const struct group_place *a = one, *b = other;

    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

static unsigned find_places(const crun_world *parent, const struct split_entry *all,
                            int32_t color, struct group_place *places)
{
    unsigned size = 0;

    for (unsigned p = 0; p < parent->env.size; p++)
        if (all[p].color == color)
            places[size++] = (struct group_place){ all[p].key, p };
    qsort(places, size, sizeof(*places), compare_places);
    return size;
}

/* Nodes of the group, in the order of their first ranks. */
static void number_nodes(crun_world *g, const crun_world *parent,
                         const struct group_place *places)
{
    unsigned nodes = 0;

    for (unsigned r = 0; r < g->env.size; r++) {
        unsigned same = 0;

        while (parent->node[places[same].place] != parent->node[places[r].place])
            same++;
        g->node[r] = same < r ? g->node[same] : nodes++;
    }
}

static bool describe_group(crun_world *g, const crun_world *parent,
                           const struct group_place *places, unsigned size)
{
    g->env = parent->env;
    g->env.size = size;
    g->world_rank = calloc(size, sizeof(*g->world_rank));
    g->node = calloc(size, sizeof(*g->node));
    if (!g->world_rank || !g->node)
        return false;
    for (unsigned r = 0; r < size; r++) {
        g->world_rank[r] = parent->world_rank[places[r].place];
        if (places[r].place == parent->env.rank)
            g->env.rank = r;
    }
    number_nodes(g, parent, places);
    g->env.local_rank_given = false;
    world_find_place(g);
    return true;
}

static const struct backend_calls *choose_backend(const crun_world *parent,
                                                  const struct team *team)
{
    const struct backend_calls *calls = parent->backend->calls;

    if (calls == &backend_nccl)
        return calls;
    if (team->size == 1)
        return &backend_self;
    return calls == &backend_hierarchical ? backend_for_hosts(team) : calls;
}

static void inherit_world(crun_world *g, crun_world *parent)
{
    g->parent = parent;
    g->root = parent->root;
    g->family = parent->family;
    g->timeout_ms = parent->timeout_ms;
    g->init_ms = parent->init_ms;
    g->init_deadline_ms = clock_ms() + g->init_ms;
    g->store = parent->store;
    g->progress = parent->progress;
}

static crun_status make_group(crun_world **group, crun_world *parent,
                              const struct split_entry *all, int32_t color,
                              struct err *e)
{
    struct group_place *places = calloc(parent->env.size, sizeof(*places));
    crun_world *g = calloc(1, sizeof(*g));
    unsigned size = places ? find_places(parent, all, color, places) : 0;
    bool made = g && size > 0;

    if (made) {
        inherit_world(g, parent);
        made = describe_group(g, parent, places, size);
    }
    if (made) {
        snprintf(g->prefix, sizeof(g->prefix), "%sgroup/%u.%d/", g->root->prefix,
                 g->world_rank[0], all[places[0].place].splits);
        snprintf(g->name, sizeof(g->name), "-group-%u.%d", g->world_rank[0],
                 all[places[0].place].splits);
        g->flight = flight_recorder_create(g->world_rank[g->env.rank], g->name,
                                           g->world_rank);
        made = g->flight != NULL;
        if (made)
            flight_recorder_show(g->flight, progress_where(g->progress));
    }
    free(places);
    *group = g;
    if (made)
        return CRUN_OK;
    err_set(e, "no memory for a group");
    return CRUN_NO_MEMORY;
}

/* The ranks of each group meet; or all groups are made by the parent's backend. */
static crun_status open_group(crun_world *parent, crun_world *g, int color,
                              struct err *e)
{
    const struct backend_calls *calls = parent->backend->calls;
    uint64_t deadline_ms = clock_ms() + parent->init_ms;
    struct backend *child = NULL;
    crun_status s = CRUN_OK;

    if (g) {
        if (parent->backend->has_device)
            snprintf(g->device, sizeof(g->device), "%d", parent->backend->device);
        world_fill_team(g, parent->backend->has_device ? g->device : NULL);
    }
    if (calls->split)
        s = calls->split(parent->backend, g ? &child : NULL, color, g ? &g->team : NULL,
                         deadline_ms, e);
    else if (g)
        s = choose_backend(parent, &g->team)->open(&child, &g->team, deadline_ms, e);
    if (g && s == CRUN_OK)
        g->backend = child;
    return s;
}

static crun_status split_world(crun_world *parent, const struct split_entry *all,
                               crun_world **group, struct err *e)
{
    int color = all[parent->env.rank].color;
    crun_status s = family_listen(parent->root, clock_ms() + parent->init_ms, e);

    if (s == CRUN_OK && color >= 0)
        s = make_group(group, parent, all, color, e);
    if (s == CRUN_OK)
        s = open_group(parent, *group, color, e);
    if (s == CRUN_OK && *group)
        s = world_start_engine(*group, e);
    if (s == CRUN_OK && *group) {
        (*group)->backend->stream = parent->backend->stream;
        family_add(*group);
    }
    return s;
}

/* All ranks have begun to split: the failure of one must end the others. */
static crun_status fail_split(crun_world *parent, crun_world **group, crun_status s,
                              struct err *e)
{
    struct family *f = parent->family;

    if (!abort_set_error(&f->aborted, s, e) && abort_get(&f->aborted))
        s = abort_error(&f->aborted, e);
    family_failed(f, parent->root, NULL);
    world_free(*group);
    *group = NULL;
    return status_fail_with(s, e);
}

crun_status crun_split(crun_world *w, int color, int key, crun_world **group)
{
    struct split_entry own = { color, key, 0 }, *all;
    crun_status s;
    struct err e;

    if (!w || !group)
        return status_fail(CRUN_BAD_ARGUMENT, "crun_split: NULL");
    *group = NULL;
    s = world_refuse_in_group(w, "crun_split");
    if (s != CRUN_OK)
        return s;
    own.splits = (int32_t)atomic_fetch_add(&w->family->splits, 1);
    all = calloc(w->env.size, sizeof(*all));
    if (!all)
        return status_fail(CRUN_NO_MEMORY, "crun_split: no memory");
    s = crun_all_gather(w, &own, all, ENTRY_NUMBERS, CRUN_I32, NULL);
    if (s == CRUN_OK) {
        s = split_world(w, all, group, &e);
        if (s != CRUN_OK)
            s = fail_split(w, group, s, &e);
    }
    free(all);
    return s;
}
