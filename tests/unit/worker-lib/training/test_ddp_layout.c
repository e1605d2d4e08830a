/* SPDX-License-Identifier: MIT */
#include "worker-lib/training/ddp.h"

#include <stdio.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/tiny_model.h"
#include "tests/worlds/world_stub.h"

static void must_succeed(crun_status s)
{
    ck_assert_msg(s == CRUN_OK, "%s", crun_error_text());
}

/* -- the layout -------------------------------------------------------------------- */

#define BIG 300 /* elements of each parameter: with padding 320, 1280 bytes of f32 */
#define PARAMETERS 6

/* Buckets of two parameters, the first of one. */
static crun_ddp *make_ddp(crun_world *w)
{
    const crun_ddp_options o = { .first_bucket_bytes = 1024, .bucket_bytes = 2400 };
    crun_ddp *ddp;
    char name[32];

    must_succeed(crun_ddp_create(&ddp, w, &o));
    for (int i = 0; i < PARAMETERS; i++) {
        snprintf(name, sizeof(name), "p%d", i);
        ck_assert_int_eq(crun_ddp_parameter(ddp, name, BIG), i);
    }
    must_succeed(crun_ddp_seal(ddp));
    return ddp;
}

STUB_RANKS_LOOP(the_layout_holds_for_any_world, 5, _i + 1)
{
    crun_ddp *ddp = make_ddp(w);
    size_t end = ddp->arena.length;

    for (int i = 0; i < PARAMETERS; i++) {
        ck_assert_uint_eq((uintptr_t)crun_ddp_value(ddp, i) % 64, 0);
        ck_assert_uint_eq((uintptr_t)crun_ddp_gradient(ddp, i) % 64, 0);
        ck_assert_ptr_eq(crun_ddp_value(ddp, i), crun_ddp_values(ddp) + 320 * i);
    }
    ck_assert_uint_eq(crun_ddp_count(ddp), PARAMETERS * BIG);
    for (unsigned b = 0; b < ddp->buckets; b++) {
        ck_assert_uint_eq(ddp->bucket[b].at + ddp->bucket[b].count, end);
        ck_assert_uint_eq(ddp->bucket[b].count % (DDP_ALIGN * ddp->size), 0);
        ck_assert_uint_gt(ddp->bucket[b].parameters, 0);
        end = ddp->bucket[b].at;
    }
    ck_assert_uint_eq(end, 0);
    ck_assert_uint_ge(ddp->buckets, 3);
    ck_assert_ptr_null(crun_ddp_value(ddp, -1));
    ck_assert_ptr_null(crun_ddp_gradient(ddp, PARAMETERS));
    ck_assert_int_eq(crun_ddp_parameter(ddp, "late", 1), -1);
    crun_ddp_destroy(ddp);
}

/* Positions are the same in every world; slices of all ranks are equal. */
/* One bucket ends where the next begins, however small parameters are. */
STUB_RANKS_LOOP(many_small_parameters_share_buckets, 3, _i + 1)
{
    const crun_ddp_options o = { .first_bucket_bytes = 1, .bucket_bytes = 1 };
    crun_ddp *ddp;
    size_t covered = 0;

    must_succeed(crun_ddp_create(&ddp, w, &o));
    for (int i = 0; i < 50; i++)
        ck_assert_int_eq(
            crun_ddp_parameter(ddp, (char[]){ (char)('0' + i), 0 }, 1 + (size_t)i % 7),
            i);
    must_succeed(crun_ddp_seal(ddp));
    for (unsigned b = 0; b < ddp->buckets; b++)
        covered += ddp->bucket[b].count;
    ck_assert_uint_eq(covered, ddp->arena.length);
    must_succeed(crun_ddp_begin(ddp, true));
    for (int i = 0; i < 50; i++)
        must_succeed(crun_ddp_ready(ddp, i));
    must_succeed(crun_ddp_finish(ddp));
    crun_ddp_destroy(ddp);
}

/* -- ranks that do not agree ------------------------------------------------------- */

static const struct disagreement {
    const char *name[2][3]; /* of rank 0, 1 and 3; of rank 2 */
    size_t count[2][3];
    bool shard[2];
    const char *text;
} disagreements[] = {
    { { { "a", "b" }, { "a", "b" } },
      { { 5, 6 }, { 5, 7 } },
      { 0 },
      "the ranks' models differ: rank 0 has parameter 1 \"b\" of 6 elements, "
      "rank 2 has parameter 1 \"b\" of 7 elements" },
    { { { "a", "b", "c" }, { "a", "c", "b" } },
      { { 1, 1, 1 }, { 1, 1, 1 } },
      { 0 },
      "the ranks' models differ: rank 0 has parameter 1 \"b\" of 1 elements, "
      "rank 2 has parameter 1 \"c\" of 1 elements" },
    { { { "a" }, { "a", "b" } },
      { { 1 }, { 1, 2 } },
      { 0 },
      "the ranks' models differ: rank 0 has nothing more, "
      "rank 2 has parameter 1 \"b\" of 2 elements" },
    { { { "a" }, { NULL } },
      { { 1 }, { 0 } },
      { 0 },
      "the ranks' models differ: rank 0 has parameter 0 \"a\" of 1 elements, "
      "rank 2 has nothing more" },
    { { { "a" }, { "a" } },
      { { 1 }, { 1 } },
      { false, true },
      "the ranks' models differ: rank 0 has f32 gradients, buckets of 1048576 and "
      "26214400 bytes, not sharded, all used, rank 2 has f32 gradients, buckets of "
      "1048576 and 26214400 bytes, sharded, all used" },
};

static void disagree(crun_world *w, void *arg)
{
    const struct disagreement *d = arg;
    int who = w->rank == 2;
    crun_ddp_options o = { .shard = d->shard[who] };
    crun_ddp *ddp;

    must_succeed(crun_ddp_create(&ddp, w, &o));
    for (unsigned i = 0; i < 3; i++)
        if (d->name[who][i])
            ck_assert_int_ge(crun_ddp_parameter(ddp, d->name[who][i], d->count[who][i]),
                             0);
    ck_assert_int_eq(crun_ddp_seal(ddp), CRUN_MISMATCH);
    ck_assert_str_eq(crun_error_text(), d->text);
    crun_ddp_destroy(ddp);
}

TEST_EACH(the_first_difference_between_ranks_is_named, disagreements)
{
    world_stub_run(4, disagree, (void *)&disagreements[_i]);
}

/* Names that files of checkpoints could not tell from others. */
static const char *const refused[] = {
    "__metadata__",  "optimizer.m", "optimizer.v", "w@1",
    "optimizer.v@3", "@07",         "b\xff",       NULL,
};

static void refuse_name(crun_world *w, void *arg)
{
    crun_ddp *ddp;

    must_succeed(crun_ddp_create(&ddp, w, &(crun_ddp_options){ .shard = false }));
    ck_assert_int_ge(crun_ddp_parameter(ddp, "optimizer.w@", 1), 0);
    ck_assert_int_ge(crun_ddp_buffer(ddp, arg, 1), 0);
    ck_assert_int_eq(crun_ddp_seal(ddp), CRUN_BAD_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(crun_error_text(), "a parameter or buffer"));
    crun_ddp_destroy(ddp);
}

TEST_EACH(names_that_cannot_be_loaded_are_refused, refused)
{
    char longer[STATE_NAME_MAX + 2] = "";

    memset(longer, 'x', sizeof(longer) - 1);
    world_stub_run(1, refuse_name, (void *)(refused[_i] ? refused[_i] : longer));
}

/* Equal up to the last byte. */
STUB_RANKS_TEST(long_names_are_compared_whole, 2)
{
    char name[STATE_NAME_MAX + 1] = "";
    crun_ddp *ddp;

    memset(name, 'x', sizeof(name) - 1);
    for (int i = 0; i < 2; i++) {
        must_succeed(crun_ddp_create(&ddp, w, &(crun_ddp_options){ .shard = false }));
        name[STATE_NAME_MAX - 1] = i && w->rank ? 'y' : 'z';
        ck_assert_int_ge(crun_ddp_parameter(ddp, name, 1), 0);
        ck_assert_int_eq(crun_ddp_seal(ddp), i ? CRUN_MISMATCH : CRUN_OK);
        crun_ddp_destroy(ddp);
    }
}
