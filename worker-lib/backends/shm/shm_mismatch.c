/* SPDX-License-Identifier: MIT */
/* Ranks that make different calls: each looks at those of the others before it begins.
 */
#include "worker-lib/backends/shm/backend_shm.h"

#include <inttypes.h>

static bool is_same(const struct shm_call *a, const struct shm_call *b)
{
    return a->kind == b->kind && a->type == b->type && a->op == b->op &&
           a->peer == b->peer && a->count == b->count;
}

static crun_status fail_mismatch(const struct shm *s, const struct op *op,
                                 unsigned other, struct err *e)
{
    char mine[100], theirs[100];
    struct op seen = *op;
    const struct shm_call *c = shm_call_of(s, other);

    seen.kind = c->kind;
    seen.type = c->type;
    seen.op = c->op;
    seen.peer = c->peer;
    seen.count = c->count;
    op_describe(op, s->team.world_rank, mine, sizeof(mine));
    op_describe(&seen, s->team.world_rank, theirs, sizeof(theirs));
    err_set(e, "collective #%" PRIu64 ": rank %u called %s, rank %u called %s",
            op->sequence, s->team.world_rank[s->team.rank], mine,
            s->team.world_rank[other], theirs);
    return CRUN_MISMATCH;
}

crun_status shm_meet(struct shm *s, const struct op *op, struct err *e)
{
    const struct shm_call *mine = shm_call_of(s, s->team.rank);
    crun_status status;

    for (unsigned p = 0; p < s->team.size; p++) {
        if (p == s->team.rank)
            continue;
        status = shm_await(s, SHM_COME, p, s->round, op, e);
        if (status == CRUN_OK && !is_same(mine, shm_call_of(s, p)))
            status = fail_mismatch(s, op, p, e);
        if (status != CRUN_OK)
            return status;
    }
    return CRUN_OK;
}
