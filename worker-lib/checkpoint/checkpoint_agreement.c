/* SPDX-License-Identifier: MIT */
#include "worker-lib/checkpoint/checkpoints.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/hash.h"

bool checkpoint_gather_parts(crun_ddp *ddp, crun_optim *optim, bool own,
                             struct checkpoint_parts *all)
{
    const struct state_part *model, *state = NULL;
    unsigned models = ddp_state(ddp, &model), states = 0;

    if (optim)
        states = own ? optim_own_state(optim, &state) : optim_state(optim, &state);
    all->count = 0;
    all->part = calloc(models + states + 1, sizeof(*all->part));
    if (!all->part)
        return false;
    all->count = models + states;
    memcpy(all->part, model, models * sizeof(*model));
    if (states)
        memcpy(all->part + models, state, states * sizeof(*state));
    return true;
}

crun_status checkpoint_broadcast(crun_world *world, void *what, size_t size, int root)
{
    return crun_broadcast(world, what, size, CRUN_U8, root, NULL);
}

/* Each number becomes the least one of all ranks. */
static crun_status find_least(crun_world *world, int64_t *number, size_t count)
{
    return crun_all_reduce(world, number, number, count, CRUN_I64, CRUN_MIN, NULL);
}

int64_t checkpoint_failure(const crun_world *world, crun_status own)
{
    return own == CRUN_OK ? 0 : -((int64_t)own << 32 | crun_rank(world));
}

crun_status checkpoint_fail(crun_world *world, int64_t least)
{
    crun_status status, failed = (crun_status)(-least >> 32);
    int rank = (int)(-least & INT32_MAX);
    struct err own = { 0 }, e;

    err_set(&own, "%s", crun_error_text());
    e = own;
    err_wrap(&e, "rank %u", world_own_number(world));
    status = checkpoint_broadcast(world, e.text, sizeof(e.text), rank);
    if (status != CRUN_OK)
        return status;
    return status_fail_with(failed, rank == crun_rank(world) ? &own : &e);
}

crun_status checkpoint_share(crun_world *world, crun_status own)
{
    int64_t least = checkpoint_failure(world, own);
    crun_status status = find_least(world, &least, 1);

    return status == CRUN_OK && least ? checkpoint_fail(world, least) : status;
}

/* Of the names and sizes of all parts. */
static uint64_t digest_parts(const struct checkpoint_parts *all)
{
    uint64_t h = HASH_FNV1A_BASIS;

    for (unsigned i = 0; i < all->count; i++) {
        const struct state_part *p = &all->part[i];

        h = hash_fnv1a(h, p->name, strlen(p->name) + 1);
        h = hash_fnv1a(h, &p->total, sizeof(p->total));
    }
    return h;
}

crun_status checkpoint_agree(crun_world *world, const char *what, const char *counts,
                             uint64_t count, const struct checkpoint_parts *all,
                             crun_status own, int64_t n[NUMBERS])
{
    uint64_t digest = digest_parts(all);
    crun_status status;

    n[FAILED] = checkpoint_failure(world, own);
    n[COUNT] = (int64_t)count;
    n[NOT_COUNT] = (int64_t)~count;
    n[STATE] = (int64_t)digest;
    n[NOT_STATE] = (int64_t)~digest;
    status = find_least(world, n, NUMBERS);
    if (status != CRUN_OK)
        return status;
    if (n[FAILED])
        return checkpoint_fail(world, n[FAILED]);
    if (n[COUNT] != ~n[NOT_COUNT])
        return status_fail(CRUN_MISMATCH,
                           "%s different %s, from %" PRIu64 " to %" PRIu64, what,
                           counts, (uint64_t)n[COUNT], (uint64_t)~n[NOT_COUNT]);
    return n[STATE] == ~n[NOT_STATE]
               ? CRUN_OK
               : status_fail(CRUN_MISMATCH,
                             "%s the state of different models or optimizers", what);
}
