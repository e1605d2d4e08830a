/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/world_stub.h"
#include "worker-lib/training/ddp.h"
#include "worker-lib/training/ddp_slices.h"

/* ddp_window.c: with shard 2 a rank has the gradients of a few buckets. */

#define PARAMETERS 8
#define COUNT 300
#define RANKS 2

static void must(crun_status s)
{
    ck_assert_msg(s == CRUN_OK, "%s", crun_error_text());
}

/* Each parameter is a bucket. */
static crun_ddp *open_ddp(crun_world *w, bool find_unused)
{
    crun_ddp *ddp;
    char name[16];

    must(crun_ddp_create(&ddp, w,
                         &(crun_ddp_options){ .first_bucket_bytes = 1000,
                                              .bucket_bytes = 1000,
                                              .shard = 2,
                                              .find_unused = find_unused }));
    for (int i = 0; i < PARAMETERS; i++) {
        snprintf(name, sizeof(name), "p%d", i);
        ck_assert_int_eq(crun_ddp_parameter(ddp, name, COUNT), i);
    }
    must(crun_ddp_seal(ddp));
    ck_assert_uint_eq(ddp->buckets, PARAMETERS);
    return ddp;
}

static void deliver(crun_ddp *ddp, int p, float value)
{
    float *g = crun_ddp_gradient(ddp, p);

    ck_assert_ptr_nonnull(g);
    for (unsigned i = 0; i < COUNT; i++) {
        ck_assert_float_eq(g[i], 0);
        g[i] = value * (float)(1 + p) + (float)i;
    }
    must(crun_ddp_ready(ddp, p));
}

/* The mean, in this rank's part of each bucket; `value` is that of the mean, 0: there
 * was no gradient. */
static void expect_slices(const crun_ddp *ddp, const float *value)
{
    for (int p = 0; p < PARAMETERS; p++) {
        const struct ddp_bucket *b = &ddp->bucket[ddp->parameter[p].first_bucket];
        const float *slice = (const float *)(void *)ddp_slice_gradients(ddp, b);
        size_t count = ddp_slice_count(ddp, b), from = ddp->rank * count;

        for (size_t i = 0; i < count; i++) {
            bool padding = from + i >= COUNT || value[p] == 0;
            float wanted = padding ? 0 : value[p] * (float)(1 + p) + (float)(from + i);

            ck_assert_msg(slice[i] == wanted, "p%d: element %zu is %g, not %g", p,
                          from + i, (double)slice[i], (double)wanted);
        }
    }
}

static unsigned count_windows(const crun_ddp *ddp)
{
    unsigned n = 0;

    for (const struct ddp_window *w = ddp->window; w; w = w->next) {
        ck_assert_ptr_null(w->bucket);
        n++;
    }
    return n;
}

static const float means[PARAMETERS] = {
    1.5f, 1.5f, 1.5f, 1.5f, 1.5f, 1.5f, 1.5f, 1.5f
};

/* Whatever else was in a window is summed, and only the oldest sum was waited for. */
static void expect_windows_awaited(const crun_world *w, unsigned first)
{
    unsigned under_way = 0;

    for (unsigned i = first; i < w->launches; i++) {
        under_way += !w->launch[i].waited;
        ck_assert(!w->launch[i].waited || i == first || w->launch[i - 1].waited);
    }
    ck_assert_uint_le(under_way, DDP_WINDOWS);
}

/* From the last to the first, as a backward pass does. */
static void step_in_order(crun_world *w, void *arg)
{
    crun_ddp *ddp = open_ddp(w, false);

    ck_assert_uint_eq(ddp_gradients_kept(ddp),
                      ddp->arena.length * sizeof(float) / RANKS);
    for (int step = 0; step < 3; step++) {
        must(crun_ddp_begin(ddp, true));
        for (unsigned n = 0, first = w->launches; n < PARAMETERS; n++) {
            deliver(ddp, PARAMETERS - 1 - (int)n, (float)(1 + w->rank));
            expect_windows_awaited(w, first);
        }
        must(crun_ddp_finish(ddp));
        expect_slices(ddp, means);
    }
    ck_assert_uint_eq(count_windows(ddp), DDP_WINDOWS);
    ck_assert_ptr_null(crun_ddp_gradient(ddp, 0));
    ck_assert_int_eq(crun_ddp_begin(ddp, false), CRUN_BAD_ARGUMENT);
    crun_ddp_destroy(ddp);
}

TEST(a_rank_has_its_part_and_two_buckets)
{
    world_stub_run(RANKS, step_in_order, NULL);
}

/* The bucket that is launched first is complete last: all are in memory until then. */
static void step_in_any_order(crun_world *w, void *arg)
{
    crun_ddp *ddp = open_ddp(w, false);

    for (int step = 0; step < 3; step++) {
        must(crun_ddp_begin(ddp, true));
        for (int p = 0; p < PARAMETERS; p++)
            deliver(ddp, step ? PARAMETERS - 1 - p : p, (float)(1 + w->rank));
        must(crun_ddp_finish(ddp));
        expect_slices(ddp, means);
    }
    ck_assert_uint_eq(count_windows(ddp), PARAMETERS);
    crun_ddp_destroy(ddp);
}

TEST(another_order_needs_more_windows)
{
    world_stub_run(RANKS, step_in_any_order, NULL);
}

/* Some have been written before the program left them out. */
static void step_without_some(crun_world *w, void *arg)
{
    static const float some[PARAMETERS] = { 1.5f, 0, 1.5f, 1.5f, 0, 1.5f, 0, 1.5f };
    crun_ddp *ddp = open_ddp(w, true);
    float *g;

    for (int step = 0; step < 3; step++) {
        must(crun_ddp_begin(ddp, true));
        for (int p = PARAMETERS; p-- > 0;)
            if (some[p] != 0)
                deliver(ddp, p, (float)(1 + w->rank));
        g = crun_ddp_gradient(ddp, 4);
        ck_assert_ptr_nonnull(g);
        g[3] = 5;
        must(crun_ddp_finish(ddp));
        expect_slices(ddp, some);
        (void)count_windows(ddp);
    }
    crun_ddp_destroy(ddp);
}

TEST(parameters_without_gradients_are_zero)
{
    world_stub_run(RANKS, step_without_some, NULL);
}
