/* SPDX-License-Identifier: MIT */
#include "worker-lib/backends/shm/backend_shm.h"

#include <stdlib.h>

static struct shm *shm_of(struct backend *b)
{
    return (struct shm *)(void *)b;
}

static void close_shm(struct backend *b)
{
    struct shm *s = shm_of(b);

    shm_area_close(s);
    shm_region_close(s);
    free(s);
}

static crun_status open_shm(struct backend **b, const struct team *team,
                            uint64_t deadline_ms, struct err *e)
{
    struct shm *s;
    crun_status status;

    if (team->size > SHM_RANKS_MAX) {
        err_set(e, "%u ranks on one node: shared memory is for up to %d", team->size,
                SHM_RANKS_MAX);
        return CRUN_UNSUPPORTED;
    }
    s = calloc(1, sizeof(*s));
    if (!s) {
        err_set(e, "no memory");
        return CRUN_NO_MEMORY;
    }
    s->backend.calls = &backend_shm;
    s->team = *team;
    s->fd = -1;
    status = shm_region_open(s, deadline_ms, e);
    if (status != CRUN_OK)
        close_shm(&s->backend);
    else
        *b = &s->backend;
    return status;
}

static crun_status run_shm(struct backend *b, const struct op *op, struct err *e)
{
    struct shm *s = shm_of(b);
    crun_status status = shm_check_abort(s, e);

    if (status != CRUN_OK)
        return status;
    if (op->posted)
        return shm_complete(s, op, e);
    if (op_is_message(op) || op->kind == OP_GROUP)
        return shm_exchange_run(s, op, e);
    return shm_collective(s, op, e);
}

static bool post_shm(struct backend *b, const struct op *op)
{
    return shm_post(shm_of(b), op);
}

static void abort_shm(struct backend *b)
{
    struct shm *s = shm_of(b);
    struct abort_notice notice;

    if (abort_get(s->team.aborted) == CRUN_OK)
        return;
    notice = abort_notice(s->team.aborted, s->team.world_rank[s->team.rank]);
    abort_set_notice(&shm_head(s)->aborted, &notice);
    shm_wake_all(s);
}

static crun_status alloc_shm(struct backend *b, size_t bytes, uint64_t deadline_ms,
                             void **memory, struct err *e)
{
    return shm_area_add(shm_of(b), bytes, deadline_ms, memory, e);
}

static bool free_shm(struct backend *b, void *memory)
{
    return shm_area_remove(shm_of(b), memory);
}

const struct backend_calls backend_shm = {
    .name = "shm",
    .open = open_shm,
    .run = run_shm,
    .post = post_shm,
    .abort = abort_shm,
    .alloc = alloc_shm,
    .free = free_shm,
    .close = close_shm,
};
