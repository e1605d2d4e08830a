/* SPDX-License-Identifier: MIT */
#include "worker-lib/training/ddp.h"

#include <stdio.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/tiny_model.h"
#include "tests/worlds/world_stub.h"

/* -- helpers ----------------------------------------------------------------------- */

#define BIG 300 /* elements of each parameter: with padding 320, 1280 bytes of f32 */
#define PARAMETERS 6

/* Buckets of two parameters, the first of one. */
static const crun_ddp_options small_buckets = { .first_bucket_bytes = 1024,
                                                .bucket_bytes = 2400 };

static void must_succeed(crun_status s)
{
    ck_assert_msg(s == CRUN_OK, "%s", crun_error_text());
}

static crun_ddp *make_ddp_of(crun_world *w, const crun_ddp_options *options, int count)
{
    crun_ddp *ddp;
    char name[32];

    must_succeed(crun_ddp_create(&ddp, w, options));
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "p%d", i);
        ck_assert_int_eq(crun_ddp_parameter(ddp, name, BIG), i);
    }
    must_succeed(crun_ddp_seal(ddp));
    return ddp;
}

static crun_ddp *make_ddp(crun_world *w, const crun_ddp_options *options)
{
    return make_ddp_of(w, options, PARAMETERS);
}

static void fill_gradient(crun_ddp *ddp, int parameter, float value)
{
    float *g = crun_ddp_gradient(ddp, parameter);

    for (unsigned i = 0; i < BIG; i++)
        g[i] = value + (float)i;
}

static void assert_filled(crun_ddp *ddp, int parameter, float value)
{
    const float *g = crun_ddp_gradient(ddp, parameter);

    unsigned i = 0;

    while (i < BIG && g[i] == value + (float)i)
        i++;
    ck_assert_msg(i == BIG, "parameter %d is not filled with %g", parameter,
                  (double)value);
}

static void all_ready(crun_ddp *ddp)
{
    for (int i = PARAMETERS; i-- > 0;)
        must_succeed(crun_ddp_ready(ddp, i));
}

static void one_step(crun_ddp *ddp)
{
    must_succeed(crun_ddp_begin(ddp, true));
    all_ready(ddp);
    must_succeed(crun_ddp_finish(ddp));
}

/* Which bucket was launched here; -1: something else was. */
static int bucket_of(const crun_ddp *ddp, const struct stub_launch *l)
{
    for (unsigned b = 0; b < ddp->buckets; b++)
        if (l->in == ddp->arena.gradients + ddp->bucket[b].at * ddp->element)
            return (int)b;
    return -1;
}

/* As on a GPU whose queue is always empty. */
static const struct device_ops *queued_device(void)
{
    static _Thread_local struct device_ops ops; /* each rank is a thread */

    ops = device_cpu;
    ops.queued = true;
    return &ops;
}

/* -- a step ------------------------------------------------------------------------ */

STUB_RANKS_LOOP(gradients_become_the_mean_of_all_ranks, 3, 1 << _i)
{
    crun_ddp *ddp = make_ddp(w, &small_buckets);
    float mean = (float)(w->ranks->size - 1) / 2;

    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < PARAMETERS; i++)
            fill_gradient(ddp, i, (float)(w->rank + 10 * i + step));
        one_step(ddp);
        for (int i = 0; i < PARAMETERS; i++)
            assert_filled(ddp, i, mean + (float)(10 * i + step));
    }
    crun_ddp_destroy(ddp);
}

/* With ranks that become ready in opposite orders, launches still are the same. */
STUB_RANKS_TEST(buckets_are_launched_in_one_order_everywhere, 4)
{
    crun_ddp *ddp = make_ddp(w, &small_buckets);
    unsigned before;

    one_step(ddp);
    before = w->launches;
    must_succeed(crun_ddp_begin(ddp, true));
    for (int i = 0; i < PARAMETERS; i++)
        must_succeed(crun_ddp_ready(ddp, w->rank % 2 ? i : PARAMETERS - 1 - i));
    must_succeed(crun_ddp_finish(ddp));
    for (unsigned b = 0; b < ddp->buckets; b++)
        ck_assert_int_eq(bucket_of(ddp, &w->launch[before + b]), (int)b);
    ck_assert_uint_eq(w->launches, before + ddp->buckets + 1);
    crun_ddp_destroy(ddp);
}

STUB_RANKS_TEST(a_bucket_is_launched_when_it_is_complete_and_next, 2)
{
    crun_ddp *ddp = make_ddp(w, &small_buckets);
    unsigned before = w->launches;

    must_succeed(crun_ddp_begin(ddp, true));
    must_succeed(crun_ddp_ready(ddp, 4));
    must_succeed(crun_ddp_ready(ddp, 3));
    ck_assert_uint_eq(w->launches, before); /* the second is complete, not its turn */
    must_succeed(crun_ddp_ready(ddp, 5));
    ck_assert_uint_eq(w->launches, before + 2);
    must_succeed(crun_ddp_ready(ddp, 2));
    must_succeed(crun_ddp_ready(ddp, 1));
    ck_assert_uint_eq(w->launches, before + 3);
    must_succeed(crun_ddp_ready(ddp, 0));
    ck_assert_uint_eq(w->launches, before + 4);
    must_succeed(crun_ddp_finish(ddp));
    for (unsigned i = before; i < before + 4; i++)
        ck_assert(w->launch[i].waited);
    crun_ddp_destroy(ddp);
}

/* The backward pass runs from the first parameter: after one step buckets do too, as
 * rank 0 saw it, whatever the others saw. */
STUB_RANKS_TEST(the_order_of_the_first_step_is_learnt_from_rank_0, 2)
{
    crun_ddp *ddp = make_ddp(w, &small_buckets);
    unsigned before;

    must_succeed(crun_ddp_begin(ddp, true));
    for (int i = 0; i < PARAMETERS; i++)
        must_succeed(crun_ddp_ready(ddp, w->rank == 0 ? i : PARAMETERS - 1 - i));
    must_succeed(crun_ddp_finish(ddp));
    before = w->launches;
    must_succeed(crun_ddp_begin(ddp, true));
    must_succeed(crun_ddp_ready(ddp, 0));
    ck_assert_uint_eq(w->launches, before + 1);
    ck_assert_int_eq(bucket_of(ddp, &w->launch[before]), (int)ddp->buckets - 1);
    for (int i = 1; i < PARAMETERS; i++)
        must_succeed(crun_ddp_ready(ddp, i));
    must_succeed(crun_ddp_finish(ddp));
    crun_ddp_destroy(ddp);
}

/* On four ranks parameter 3 lies in two buckets, which it completes on rank 0. */
STUB_RANKS_TEST(a_gpu_launches_together_what_one_parameter_completes, 4)
{
    static const int first[PARAMETERS] = { 5, 4, 2, 1, 3, 0 };
    crun_ddp *ddp;
    unsigned before;

    w->device = queued_device();
    ddp = make_ddp(w, &small_buckets);
    ck_assert_uint_eq(ddp->buckets, 4);
    for (int step = 0; step < 4; step++) {
        bool same = step != 2; /* else the other ranks' order differs from rank 0's */

        before = w->calls;
        must_succeed(crun_ddp_begin(ddp, true));
        for (int i = 0; i < PARAMETERS; i++) {
            int p = same || w->rank == 0 ? first[i] : i;

            fill_gradient(ddp, p, (float)(w->rank + 10 * p + step));
            must_succeed(crun_ddp_ready(ddp, p));
        }
        if (same) /* not the last one */
            ck_assert_uint_eq(w->calls - before, step == 0 ? 3 : 2);
        must_succeed(crun_ddp_finish(ddp));
        ck_assert_uint_eq(w->calls - before, step == 0 ? 4 : 3);
        for (int p = 0; p < PARAMETERS; p++)
            assert_filled(ddp, p, 1.5f + (float)(10 * p + step));
    }
    crun_ddp_destroy(ddp);
}

STUB_RANKS_TEST(on_a_gpu_a_missing_gradient_is_an_error_two_steps_later, 2)
{
    crun_ddp *ddp;

    w->device = queued_device();
    ddp = make_ddp(w, &small_buckets);
    one_step(ddp);
    must_succeed(crun_ddp_begin(ddp, true));
    for (int i = w->rank; i < PARAMETERS; i++) /* not parameter 0 of rank 1 */
        must_succeed(crun_ddp_ready(ddp, i));
    must_succeed(crun_ddp_finish(ddp));
    one_step(ddp);
    must_succeed(crun_ddp_begin(ddp, true));
    all_ready(ddp);
    ck_assert_int_eq(crun_ddp_finish(ddp), CRUN_BAD_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(crun_error_text(), "had no gradient two steps ago"));
    one_step(ddp);
    crun_ddp_destroy(ddp);
}

STUB_RANKS_TEST(gradients_are_accumulated_without_communication, 2)
{
    crun_ddp *ddp = make_ddp(w, &small_buckets);
    unsigned before = w->launches;

    crun_ddp_zero(ddp);
    must_succeed(crun_ddp_begin(ddp, false));
    for (int i = 1; i < PARAMETERS; i++) {
        fill_gradient(ddp, i, (float)w->rank);
        must_succeed(crun_ddp_ready(ddp, i));
    }
    must_succeed(crun_ddp_finish(ddp)); /* the others may follow later */
    ck_assert_uint_eq(w->launches, before);
    must_succeed(crun_ddp_begin(ddp, true));
    fill_gradient(ddp, 0, (float)w->rank);
    must_succeed(crun_ddp_ready(ddp, 0));
    must_succeed(crun_ddp_finish(ddp));
    for (int i = 0; i < PARAMETERS; i++)
        assert_filled(ddp, i, 0.5f);
    crun_ddp_destroy(ddp);
}

/* -- what is unused ---------------------------------------------------------------- */

static void some_unused(crun_world *w, void *arg)
{
    crun_ddp_options o = small_buckets;
    crun_ddp_stats stats;
    crun_ddp *ddp;
    bool alone = w->ranks->size == 1;

    o.find_unused = arg != NULL;
    ddp = make_ddp(w, &o);
    one_step(ddp);
    must_succeed(crun_ddp_begin(ddp, true));
    for (int i = 0; i < PARAMETERS; i++) {
        fill_gradient(ddp, i, 8);
        if (i != 1 && !(i == 4 && w->rank == 1))
            must_succeed(crun_ddp_ready(ddp, i));
    }
    if (o.find_unused) {
        must_succeed(crun_ddp_finish(ddp));
        assert_filled(ddp, 0, 8);
        ck_assert_float_eq(((float *)crun_ddp_gradient(ddp, 1))[7], 0);
        ck_assert_float_eq(((float *)crun_ddp_gradient(ddp, 4))[0], alone ? 8 : 4);
    } else {
        ck_assert_int_eq(crun_ddp_finish(ddp), CRUN_BAD_ARGUMENT);
        ck_assert_str_eq(crun_error_text(),
                         alone
                             ? "no gradient in this step on rank 0 for p1 (if this is "
                               "intended, find_unused takes it for zero)"
                             : "no gradient in this step on rank 0 for p1, p4 (if "
                               "this is intended, find_unused takes it for zero)");
    }
    crun_ddp_get_stats(ddp, &stats);
    ck_assert_str_eq(stats.unused, alone ? "p1" : "p1, p4");
    one_step(ddp); /* and all is well again */
    crun_ddp_get_stats(ddp, &stats);
    ck_assert_str_eq(stats.unused, "");
    ck_assert_uint_eq(stats.steps, 3);
    ck_assert_uint_eq(stats.buckets, ddp->buckets);
    ck_assert_double_le(stats.exposed_s, stats.communication_s);
    /* of the steps but the last */
    if (alone)
        ck_assert_double_eq(stats.communication_s, 0);
    else
        ck_assert_double_gt(stats.communication_s, 2e-6 * stats.buckets);
    crun_ddp_destroy(ddp);
}

TEST_LOOP(unused_parameters_are_named, 0, 2)
{
    world_stub_run(1 + _i, some_unused, NULL);
}

TEST_LOOP(unused_parameters_are_zero_where_that_is_asked_for, 0, 2)
{
    world_stub_run(1 + _i, some_unused, "find");
}

/* -- which rank waits for which ---------------------------------------------------- */

#define STEPS 3
#define NETWORK_US 20000
#define LATE_US 100000

struct waits {
    crun_ddp_stats stats[2]; /* of each rank */
    double wall_s[2];        /* in finish, of all steps but the last */
};

static void one_is_late(crun_world *w, void *arg)
{
    struct waits *waits = arg;
    crun_ddp *ddp = make_ddp(w, &small_buckets);

    for (int step = 0; step < STEPS; step++) {
        double began;

        must_succeed(crun_ddp_begin(ddp, true));
        all_ready(ddp);
        w->takes_us = NETWORK_US;
        if (w->rank == 1) {
            while (w->ranks->came < 2 * w->launches + 1) /* the other is in finish */
                usleep(1000);
            usleep(LATE_US);
        }
        began = ddp_seconds();
        must_succeed(crun_ddp_finish(ddp));
        if (step < STEPS - 1)
            waits->wall_s[w->rank] += ddp_seconds() - began;
        w->takes_us = 0;
    }
    crun_ddp_get_stats(ddp, &waits->stats[w->rank]);
    crun_ddp_destroy(ddp);
}

TEST(what_all_wait_is_exposed_and_the_rest_is_skew)
{
    struct waits waits = { 0 };
    const crun_ddp_stats *early = &waits.stats[0], *late = &waits.stats[1];
    double network_s = 1e-6 * NETWORK_US * (STEPS - 1);
    double late_s = 1e-6 * LATE_US * (STEPS - 1);

    world_stub_run(2, one_is_late, &waits);
    ck_assert_double_ge(early->exposed_s, network_s);
    ck_assert_double_eq_tol(early->exposed_s, late->exposed_s, 1e-9);
    ck_assert_double_eq_tol(early->communication_s, late->communication_s, 1e-9);
    ck_assert_double_ge(early->communication_s, early->exposed_s);
    ck_assert_double_ge(early->skew_s, late_s / 2);
    ck_assert_double_lt(late->skew_s, late_s / 2);
    for (int r = 0; r < 2; r++)
        ck_assert_double_le(waits.stats[r].exposed_s + waits.stats[r].skew_s,
                            waits.wall_s[r]);
}

/* -- a hook ------------------------------------------------------------------------ */

struct exchange {
    unsigned begun, ended, fails_at;
};

static crun_status exchange_begin(void *arg, crun_world *w, const crun_ddp_bucket *b,
                                  crun_work **work)
{
    struct exchange *x = arg;

    if (++x->begun == x->fails_at)
        return CRUN_UNSUPPORTED;
    ck_assert_ptr_null(*work);
    return crun_all_reduce(w, b->gradients, b->gradients, b->count, b->type, CRUN_SUM,
                           work);
}

static crun_status exchange_end(void *arg, crun_world *w, const crun_ddp_bucket *b)
{
    struct exchange *x = arg;
    float *g = b->gradients;

    ck_assert_uint_eq(b->number, x->ended % x->begun);
    x->ended++;
    for (size_t i = 0; i < b->count; i++)
        g[i] /= (float)w->ranks->size;
    return CRUN_OK;
}

/* On the host, and on a GPU, where the last group has one more number. */
static void exchange_by_hook(crun_world *w, void *arg)
{
    const int *queued = arg;
    struct exchange x = { 0 };
    crun_ddp_options options = small_buckets;
    crun_ddp *ddp;

    options.share_step = true;
    options.hook = (crun_ddp_hook){ exchange_begin, exchange_end, &x };
    if (*queued)
        w->device = queued_device();
    ddp = make_ddp(w, &options);
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < PARAMETERS; i++)
            fill_gradient(ddp, i, (float)(w->rank + 10 * i + step));
        x.begun = x.ended = 0;
        one_step(ddp);
        ck_assert_uint_eq(x.begun, ddp->buckets);
        ck_assert_uint_eq(x.ended, ddp->buckets);
        for (int i = 0; i < PARAMETERS; i++)
            assert_filled(ddp, i, 0.5f + (float)(10 * i + step));
    }
    x.begun = x.ended = 0;
    x.fails_at = 2;
    must_succeed(crun_ddp_begin(ddp, true));
    for (int i = PARAMETERS; i-- > 0;)
        (void)!crun_ddp_ready(ddp, i);
    ck_assert_int_eq(crun_ddp_finish(ddp), CRUN_UNSUPPORTED);
    ck_assert_uint_eq(x.begun, 2);
    ck_assert_uint_eq(x.ended, 0);
    crun_ddp_destroy(ddp);
    options.shard = true;
    ck_assert_int_eq(crun_ddp_create(&ddp, w, &options), CRUN_BAD_ARGUMENT);
}

TEST_LOOP(a_hook_exchanges_the_buckets, 0, 2)
{
    world_stub_run(2, exchange_by_hook, &_i);
}

/* -- mistakes and failures --------------------------------------------------------- */

STUB_RANKS_TEST(mistakes_are_refused_with_words, 2)
{
    crun_ddp *ddp = make_ddp(w, &small_buckets);

    ck_assert_int_eq(crun_ddp_ready(ddp, 0), CRUN_BAD_ARGUMENT);
    ck_assert_str_eq(crun_error_text(), "parameter 0 is ready outside of a step");
    ck_assert_int_eq(crun_ddp_finish(ddp), CRUN_BAD_ARGUMENT);
    ck_assert_int_eq(crun_ddp_seal(ddp), CRUN_BAD_ARGUMENT);
    must_succeed(crun_ddp_begin(ddp, true));
    ck_assert_int_eq(crun_ddp_begin(ddp, true), CRUN_BAD_ARGUMENT);
    ck_assert_int_eq(crun_ddp_ready(ddp, -1), CRUN_BAD_ARGUMENT);
    ck_assert_int_eq(crun_ddp_ready(ddp, PARAMETERS), CRUN_BAD_ARGUMENT);
    ck_assert_str_eq(crun_error_text(), "there is no parameter 6: 6 were registered");
    must_succeed(crun_ddp_ready(ddp, 2));
    ck_assert_int_eq(crun_ddp_ready(ddp, 2), CRUN_BAD_ARGUMENT);
    ck_assert_str_eq(crun_error_text(),
                     "parameter 2 \"p2\" is ready twice in one step");
    for (int i = 0; i < PARAMETERS; i++)
        if (i != 2)
            must_succeed(crun_ddp_ready(ddp, i));
    must_succeed(crun_ddp_finish(ddp));
    crun_ddp_destroy(ddp);
}

STUB_RANKS_TEST(names_tell_parameters_apart, 1)
{
    const crun_ddp_options bad = { .grad_type = CRUN_I32 };
    crun_ddp *ddp;

    ck_assert_int_eq(crun_ddp_create(&ddp, w, &bad), CRUN_BAD_ARGUMENT);
    must_succeed(crun_ddp_create(&ddp, w, NULL));
    ck_assert_int_eq(crun_ddp_seal(ddp), CRUN_BAD_ARGUMENT); /* nothing in it */
    ck_assert_int_eq(crun_ddp_parameter(ddp, "a", 0), -1);
    ck_assert_int_eq(crun_ddp_parameter(ddp, NULL, 1), -1);
    ck_assert_int_eq(crun_ddp_parameter(ddp, "a", 1), 0);
    ck_assert_int_eq(crun_ddp_buffer(ddp, "a", 1), 0);
    ck_assert_int_eq(crun_ddp_begin(ddp, true), CRUN_BAD_ARGUMENT);
    ck_assert_int_eq(crun_ddp_broadcast(ddp, 0), CRUN_BAD_ARGUMENT);
    ck_assert_int_eq(crun_ddp_seal(ddp), CRUN_BAD_ARGUMENT);
    ck_assert_str_eq(crun_error_text(), "two parameters or buffers are called \"a\"");
    crun_ddp_destroy(ddp);
    crun_ddp_destroy(NULL);
}

STUB_RANKS_TEST(a_failure_is_what_finish_returns, 2)
{
    crun_ddp *ddp = make_ddp(w, &small_buckets);

    one_step(ddp);
    w->fail_after = 2;
    must_succeed(crun_ddp_begin(ddp, true));
    all_ready(ddp);
    ck_assert_int_eq(crun_ddp_finish(ddp), CRUN_PEER_LOST);
    ck_assert_str_eq(crun_error_text(), "rank 1 is gone");
    for (unsigned i = 0; i < w->launches; i++)
        if (bucket_of(ddp, &w->launch[i]) >= 0)
            ck_assert(w->launch[i].waited);
    crun_ddp_destroy(ddp);
}

STUB_RANKS_TEST(a_step_may_be_given_up, 2)
{
    crun_ddp *ddp = make_ddp(w, &small_buckets);

    must_succeed(crun_ddp_begin(ddp, true));
    all_ready(ddp);
    crun_ddp_destroy(ddp); /* waits for what was launched */
    for (unsigned i = w->launches - 3; i < w->launches; i++)
        ck_assert(w->launch[i].waited);
}

/* -- any thread -------------------------------------------------------------------- */

#define MANY 60
#define TELLERS 3

struct teller {
    crun_ddp *ddp;
    int first;
};

static void *report_gradients(void *arg)
{
    const struct teller *t = arg;

    for (int i = t->first; i < MANY; i += TELLERS) {
        fill_gradient(t->ddp, i, (float)crun_rank(ddp_world(t->ddp)));
        must_succeed(crun_ddp_ready(t->ddp, i));
    }
    return NULL;
}

STUB_RANKS_TEST(gradients_may_be_ready_in_any_thread, 2)
{
    crun_ddp *ddp = make_ddp_of(w, &small_buckets, MANY);

    for (int step = 0; step < 20; step++) {
        pthread_t thread[TELLERS];
        struct teller t[TELLERS];

        must_succeed(crun_ddp_begin(ddp, true));
        for (int k = 0; k < TELLERS; k++) {
            t[k] = (struct teller){ ddp, k };
            pthread_create(&thread[k], NULL, report_gradients, &t[k]);
        }
        for (int k = 0; k < TELLERS; k++)
            pthread_join(thread[k], NULL);
        must_succeed(crun_ddp_finish(ddp));
        for (int i = 0; i < MANY; i++)
            assert_filled(ddp, i, 0.5f);
    }
    crun_ddp_destroy(ddp);
}

/* -- values ------------------------------------------------------------------------ */

STUB_RANKS_TEST(values_and_buffers_become_those_of_one_rank, 3)
{
    const struct state_part *part;
    crun_ddp *ddp;

    must_succeed(crun_ddp_create(&ddp, w, NULL));
    ck_assert_int_eq(crun_ddp_parameter(ddp, "weight", 3), 0);
    ck_assert_int_eq(crun_ddp_buffer(ddp, "mean", 5), 0);
    ck_assert_int_eq(crun_ddp_buffer(ddp, "variance", 2), 1);
    must_succeed(crun_ddp_seal(ddp));
    crun_ddp_value(ddp, 0)[2] = (float)(w->rank + 1);
    crun_ddp_buffer_value(ddp, 1)[1] = (float)(w->rank + 4);
    ck_assert_ptr_null(crun_ddp_buffer_value(ddp, 2));
    must_succeed(crun_ddp_broadcast(ddp, 2));
    ck_assert_float_eq(crun_ddp_value(ddp, 0)[2], 3);
    ck_assert_float_eq(crun_ddp_buffer_value(ddp, 1)[1], 6);

    ck_assert_uint_eq(ddp_state(ddp, &part), 3);
    ck_assert_str_eq(part[0].name, "weight");
    ck_assert_str_eq(part[2].name, "variance");
    ck_assert_uint_eq(part[2].total, 2);
    ck_assert_uint_eq(part[2].ranges, 1);
    ck_assert_ptr_eq(part[2].range->data, crun_ddp_buffer_value(ddp, 1));
    crun_ddp_destroy(ddp);
}
