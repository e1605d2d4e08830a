/* SPDX-License-Identifier: MIT */
#include "worker-lib/backends/backend_select.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "worker-lib/backends/nccl/nccl_gpu.h"

#define LOOK_MS 2 /* interval of the checks whether the other ranks have a GPU */
#define KEY_SIZE 420

static const struct backend_calls *const backends[] = { &backend_shm, &backend_tcp,
                                                        &backend_hierarchical,
                                                        &backend_nccl };
#define BACKENDS (sizeof(backends) / sizeof(backends[0]))

static const struct backend_calls *find_backend(const char *name)
{
    for (size_t i = 0; i < BACKENDS; i++)
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i];
    return NULL;
}

crun_status backend_check_name(const char *option, const char **name, struct err *e)
{
    const char *variable = getenv("CRUN_BACKEND");
    char names[64] = "auto";

    *name = option ? option : variable && *variable ? variable : "auto";
    if (strcmp(*name, "auto") == 0 || find_backend(*name))
        return CRUN_OK;
    for (size_t i = 0; i < BACKENDS; i++) {
        strcat(names, ", ");
        strcat(names, backends[i]->name);
    }
    err_set(e, "%s \"%s\" is not one of %s",
            option ? "crun_init: backend" : "CRUN_BACKEND:", *name, names);
    return option ? CRUN_BAD_ARGUMENT : CRUN_BAD_ENVIRONMENT;
}

/* -- GPUs -------------------------------------------------------------------------- */

/* Waits until every rank has counted itself, or one has reported that it has none. */
static crun_status await_gpus(const struct team *team, const char *with,
                              const char *without, uint64_t deadline_ms, bool *all,
                              struct err *e)
{
    int64_t sum = 0;
    crun_status s = store_client_add(team->store, with, 1, &sum, deadline_ms, e);

    while (s == CRUN_OK && sum < (int64_t)team->size) {
        if (store_client_has(team->store, without, deadline_ms) == 1)
            return CRUN_OK;
        if (clock_ms() >= deadline_ms) {
            err_set(e, "only %d of %u ranks have reported whether they have a GPU",
                    (int)sum, team->size);
            return CRUN_TIMEOUT;
        }
        usleep(LOOK_MS * 1000);
        s = store_client_add(team->store, with, 0, &sum, deadline_ms, e);
    }
    *all = s == CRUN_OK;
    return s;
}

/* Whether every rank has a GPU and NCCL.
 * A rank that has none does not wait for the others. */
static crun_status all_have_gpus(const struct team *team, uint64_t deadline_ms,
                                 bool *all, struct err *e)
{
    char with[KEY_SIZE], without[KEY_SIZE];
    struct nccl_gpu g;
    crun_status s = nccl_gpu_find(&g, team->device, team->local_rank, team->local_size,
                                  deadline_ms, e);

    *all = s == CRUN_OK;
    if (s != CRUN_OK && s != CRUN_UNSUPPORTED)
        return s;
    if (!team->store)
        return CRUN_OK;
    *all = false;
    snprintf(with, sizeof(with), "%sgpus", team->prefix);
    snprintf(without, sizeof(without), "%sno-gpu", team->prefix);
    if (s == CRUN_OK)
        return await_gpus(team, with, without, deadline_ms, all, e);
    return store_client_set(team->store, without, "", 0, deadline_ms, e);
}

/* -- the choice -------------------------------------------------------------------- */

static unsigned count_nodes(const struct team *team)
{
    unsigned nodes = 0;

    for (unsigned p = 0; p < team->size; p++)
        if (team->node[p] >= nodes)
            nodes = team->node[p] + 1;
    return nodes;
}

const struct backend_calls *backend_for_hosts(const struct team *team)
{
    unsigned nodes = count_nodes(team);

    if (team->size == 1)
        return &backend_self;
    return nodes == 1            ? &backend_shm
           : nodes == team->size ? &backend_tcp
                                 : &backend_hierarchical;
}

crun_status backend_select(const struct team *team, const char *name,
                           uint64_t deadline_ms, const struct backend_calls **calls,
                           struct err *e)
{
    bool is_auto = strcmp(name, "auto") == 0;

    if (is_auto && team->device) {
        bool all = false;
        crun_status s = all_have_gpus(team, deadline_ms, &all, e);

        *calls = &backend_nccl;
        if (s != CRUN_OK || all)
            return s;
    }
    *calls = is_auto ? backend_for_hosts(team) : find_backend(name);
    /* a world of one needs no other backend, but its memory may be the GPU's */
    if (team->size == 1 && *calls != &backend_nccl)
        *calls = &backend_self;
    if (*calls != &backend_shm || count_nodes(team) == 1)
        return CRUN_OK;
    err_set(e, "backend \"shm\" is for the ranks of one node, and there are %u",
            count_nodes(team));
    return CRUN_UNSUPPORTED;
}
