/* SPDX-License-Identifier: MIT */
/* An optimizer's state: what a checkpoint holds, and what another world makes of it. */
#include "worker-lib/training/optim.h"

#include <math.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/optimizers.h"
#include "tests/worlds/tiny_model.h"
#include "tests/worlds/world_stub.h"

/* What a checkpoint holds: parameters, and state by its numbering. */
struct saved {
    float values[4][VALUES_MAX], state[2][VALUES_MAX];
    _Atomic int written[2][VALUES_MAX];
    struct optim_scalars scalars;
    unsigned parts;
};

struct resumed {
    struct saved *saved;
    crun_ddp_options ddp;
    const struct named *optimizer;
    uint64_t from, to;
    float result[VALUES_MAX];
};

static void save(const struct resumed *r, struct tiny *t)
{
    const struct state_part *part;
    struct saved *s = r->saved;
    unsigned n = ddp_state(t->ddp, &part);

    for (unsigned i = 0; i < n && crun_rank(t->world) == 0; i++)
        memcpy(s->values[i], part[i].range->data, part[i].total * sizeof(float));
    n = optim_state(t->optim, &part);
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 0; k < part[i].ranges; k++) {
            const struct state_range *range = &part[i].range[k];

            ck_assert_uint_le(range->begin + range->count, part[i].total);
            memcpy(s->state[i] + range->begin, range->data,
                   range->count * sizeof(float));
            for (size_t e = range->begin; e < range->begin + range->count; e++)
                s->written[i][e]++;
        }
    if (crun_rank(t->world) == 0) {
        s->parts = n;
        optim_get_scalars(t->optim, &s->scalars);
    }
}

static void load_saved(const struct resumed *r, struct tiny *t)
{
    const struct state_part *part;
    unsigned n = ddp_state(t->ddp, &part);

    for (unsigned i = 0; i < n; i++)
        memcpy(part[i].range->data, r->saved->values[i], part[i].total * sizeof(float));
    n = optim_state(t->optim, &part);
    ck_assert_uint_eq(n, r->saved->parts);
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 0; k < part[i].ranges; k++)
            memcpy(part[i].range[k].data, r->saved->state[i] + part[i].range[k].begin,
                   part[i].range[k].count * sizeof(float));
    (void)!optim_set_scalars(t->optim, &r->saved->scalars);
}

static void go_on(crun_world *w, void *arg)
{
    struct resumed *r = arg;
    struct tiny t;

    must(tiny_open(&t, w, &r->ddp, &r->optimizer->options));
    if (r->from > 0) {
        load_saved(r, &t);
        must(optim_state_put(t.optim));
    }
    for (uint64_t i = r->from; i < r->to; i++)
        must(tiny_step(&t, i, GLOBAL_BATCH / (unsigned)w->ranks->size, 1, NULL));
    must(optim_state_fetch(t.optim));
    if (r->from == 0 && (w->rank == 0 || r->ddp.shard))
        save(r, &t);
    if (w->rank == 0)
        memcpy(r->result, t.ddp->arena.values,
               (t.ddp->parameter[3].at + t.ddp->parameter[3].count) * sizeof(float));
    tiny_close(&t);
}

/* Every element is held by exactly one of the ranks that save. */
static void assert_covered(const struct saved *s, size_t count)
{
    for (unsigned i = 0; i < s->parts; i++)
        for (size_t e = 0; e < VALUES_MAX; e++)
            ck_assert_msg(s->written[i][e] == (e < count),
                          "element %zu of part %u is held %d times", e, i,
                          s->written[i][e]);
}

static const struct sizes {
    int before, after;
    enum { WHOLE, SHARD, SHARE } how_before, how_after;
} sizes[] = {
    { 4, 3, SHARD, SHARD }, { 3, 4, SHARD, SHARD }, { 2, 1, SHARD, WHOLE },
    { 1, 2, WHOLE, SHARD }, { 2, 3, WHOLE, SHARD }, { 4, 4, SHARD, WHOLE },
    { 4, 3, SHARE, SHARE }, { 2, 1, SHARE, WHOLE }, { 1, 3, WHOLE, SHARE },
    { 3, 2, SHARE, SHARD }, { 2, 4, SHARD, SHARE },
};

#define SIZES (int)(sizeof(sizes) / sizeof(*sizes))

#define MODEL_ELEMENTS (12 * 37 + 37 + 37 * 5 + 5)

/* State of one world, taken over by another: as if that had trained all along. */
TEST_LOOP(state_means_the_same_at_any_world_size, 0, 2 * SIZES)
{
    static struct saved saved;
    static struct resumed first, then, always;
    const struct sizes *c = &sizes[_i % SIZES];
    const struct named *optimizer = &optimizers[_i / SIZES == 0 ? 3 : 5];
    const crun_ddp_options ddp = { .first_bucket_bytes = 256, .bucket_bytes = 700 };
    double apart = 0;

    memset(&saved, 0, sizeof(saved));
    first = (struct resumed){ &saved, ddp, optimizer, 0, 30, { 0 } };
    first.ddp.shard = c->how_before == SHARD;
    first.ddp.share_step = c->how_before == SHARE;
    world_stub_run(c->before, go_on, &first);
    assert_covered(&saved, MODEL_ELEMENTS);

    then = (struct resumed){ &saved, ddp, optimizer, 30, 60, { 0 } };
    then.ddp.shard = c->how_after == SHARD;
    then.ddp.share_step = c->how_after == SHARE;
    world_stub_run(c->after, go_on, &then);

    always = (struct resumed){ &saved, ddp, optimizer, 0, 60, { 0 } };
    memset(&saved, 0, sizeof(saved));
    world_stub_run(1, go_on, &always);
    for (unsigned i = 0; i < VALUES_MAX; i++)
        apart = fmax(apart, fabs((double)always.result[i] - (double)then.result[i]));
    ck_assert_double_lt(apart, 1e-4);
}
