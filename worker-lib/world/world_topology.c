/* SPDX-License-Identifier: MIT */
/* Finds the node of each rank: every rank names its machine, rank 0 numbers the nodes
 * and publishes the map. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker-lib/engine/failure_notice.h"
#include "worker-lib/world/node_map.h"
#include "worker-lib/world/world_internal.h"

#define MACHINE_SIZE 320
#define KEY_SIZE (sizeof(((struct crun_world *)NULL)->prefix) + 24)

/* The identity of a node, equal for its ranks. */
static void name_machine(const crun_world *w, char *name, size_t size)
{
    char host[256] = "", boot[40] = "";
    FILE *f;

    if (w->env.nodes > 0) {
        snprintf(name, size, "%u", w->env.node);
        return;
    }
    gethostname(host, sizeof(host) - 1);
    f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f) {
        if (!fgets(boot, sizeof(boot), f))
            boot[0] = '\0';
        fclose(f);
    }
    snprintf(name, size, "%s %s", host, boot);
}

static const char *map_key(const crun_world *w, char key[KEY_SIZE])
{
    snprintf(key, KEY_SIZE, "%smap", w->prefix);
    return key;
}

static crun_status publish_map(const crun_world *w, struct err *e)
{
    void *value = malloc(NODE_MAP_BYTES(w->env.size));
    char key[KEY_SIZE];
    crun_status s = CRUN_NO_MEMORY;

    if (value)
        s = store_client_set(w->store, map_key(w, key), value,
                             node_map_format(w->node, w->env.size, value),
                             w->init_deadline_ms, e);
    else
        err_set(e, "no memory");
    free(value);
    return s;
}

/* Rank 0 numbers the nodes in the order of their first ranks. */
static crun_status draw_node_map(crun_world *w, struct err *e)
{
    char(*machines)[MACHINE_SIZE] = calloc(w->env.size, MACHINE_SIZE);
    char key[KEY_SIZE];
    unsigned nodes = 0;
    crun_status s = CRUN_OK;

    if (!machines) {
        err_set(e, "no memory");
        return CRUN_NO_MEMORY;
    }
    for (unsigned r = 0; r < w->env.size && s == CRUN_OK; r++) {
        size_t size = MACHINE_SIZE - 1;
        unsigned n = 0;

        snprintf(key, sizeof(key), "%swhere/%u", w->prefix, r);
        memset(machines[nodes], 0, MACHINE_SIZE);
        s = failure_notice_await_key(&w->board, key, machines[nodes], &size,
                                     w->init_deadline_ms, e);
        while (strcmp(machines[n], machines[nodes]) != 0)
            n++;
        w->node[r] = n;
        nodes += n == nodes;
    }
    free(machines);
    return s == CRUN_OK ? publish_map(w, e) : s;
}

static crun_status read_map(crun_world *w, struct err *e)
{
    size_t size = NODE_MAP_BYTES(w->env.size);
    void *value = malloc(size);
    char key[KEY_SIZE];
    crun_status s = CRUN_NO_MEMORY;

    if (value)
        s = failure_notice_await_key(&w->board, map_key(w, key), value, &size,
                                     w->init_deadline_ms, e);
    else
        err_set(e, "no memory");
    if (s == CRUN_OK && !node_map_parse(value, size, w->env.size, w->node)) {
        err_set(e, "the store has no valid map of %u ranks from rank 0", w->env.size);
        s = CRUN_MISMATCH;
    }
    free(value);
    return s;
}

/* Values that the launcher did not set come from the map. */
void world_find_place(crun_world *w)
{
    unsigned before = 0, nodes = 0, here = 0;

    for (unsigned r = 0; r < w->env.size; r++) {
        bool local = w->node[r] == w->node[w->env.rank];

        here += local;
        before += local && r < w->env.rank;
        nodes = w->node[r] + 1 > nodes ? w->node[r] + 1 : nodes;
    }
    w->env.node = w->node[w->env.rank];
    w->env.nodes = nodes;
    w->env.local_size = here;
    if (!w->env.local_rank_given)
        w->env.local_rank = before;
}

crun_status world_map(crun_world *w, struct err *e)
{
    char machine[MACHINE_SIZE], key[KEY_SIZE];
    crun_status s;

    if (w->env.local_size != w->env.size) {
        name_machine(w, machine, sizeof(machine));
        snprintf(key, sizeof(key), "%swhere/%u", w->prefix, w->env.rank);
        s = store_client_set(w->store, key, machine, strlen(machine),
                             w->init_deadline_ms, e);
        if (s == CRUN_OK)
            s = w->env.rank == 0 ? draw_node_map(w, e) : read_map(w, e);
        if (s != CRUN_OK)
            return s;
    }
    world_find_place(w);
    return CRUN_OK;
}
