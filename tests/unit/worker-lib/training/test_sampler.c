/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "tests/worlds/check_main.h"
#include "worker-lib/crun/worker.h"

#define BIG 4000

/* Which samples were drawn how often, by all ranks of a world. */
static unsigned seen[BIG];

static crun_sampler *make_sampler(uint64_t samples, int rank, int size,
                                  crun_remainder remainder)
{
    crun_sampler_options o = { .samples = samples,
                               .seed = 7,
                               .rank = rank,
                               .size = size,
                               .remainder = remainder };
    crun_sampler *s;

    ck_assert_int_eq(crun_sampler_create(&s, &o), CRUN_OK);
    return s;
}

static uint64_t draw(crun_sampler *s, uint64_t most)
{
    uint64_t index[7], drawn = 0;
    size_t n;

    while (drawn < most &&
           (n = crun_sampler_next(s, index, most - drawn < 7 ? most - drawn : 7))) {
        for (size_t i = 0; i < n; i++)
            seen[index[i]]++;
        drawn += n;
    }
    return drawn;
}

static void expect_each(uint64_t samples, unsigned least, unsigned most)
{
    for (uint64_t i = 0; i < samples; i++) {
        ck_assert_uint_ge(seen[i], least);
        ck_assert_uint_le(seen[i], most);
    }
}

static const struct world_case {
    uint64_t samples;
    int size;
} worlds[] = {
    { 1, 1 },  { 1, 3 },  { 2, 2 },    { 5, 4 },
    { 16, 4 }, { 17, 4 }, { 1000, 7 }, { 4000, 8 },
};

TEST_EACH(every_sample_is_dealt_exactly_once, worlds)
{
    const struct world_case *c = &worlds[_i];

    memset(seen, 0, sizeof(seen));
    for (int r = 0; r < c->size; r++) {
        crun_sampler *s = make_sampler(c->samples, r, c->size, CRUN_EXACT);
        uint64_t left = crun_sampler_left(s);

        ck_assert_uint_eq(draw(s, UINT64_MAX), left);
        ck_assert_uint_eq(crun_sampler_left(s), 0);
        crun_sampler_destroy(s);
    }
    expect_each(c->samples, 1, 1);
}

TEST_EACH(padding_gives_all_ranks_as_many, worlds)
{
    const struct world_case *c = &worlds[_i];
    uint64_t each = (c->samples + (uint64_t)c->size - 1) / (uint64_t)c->size;

    memset(seen, 0, sizeof(seen));
    for (int r = 0; r < c->size; r++) {
        crun_sampler *s = make_sampler(c->samples, r, c->size, CRUN_PAD);

        ck_assert_uint_eq(draw(s, UINT64_MAX), each);
        crun_sampler_destroy(s);
    }
    expect_each(c->samples, 1, c->samples < (uint64_t)c->size ? (unsigned)c->size : 2);
}

TEST_EACH(dropping_gives_all_ranks_as_many, worlds)
{
    const struct world_case *c = &worlds[_i];

    memset(seen, 0, sizeof(seen));
    for (int r = 0; r < c->size; r++) {
        crun_sampler *s = make_sampler(c->samples, r, c->size, CRUN_DROP);

        ck_assert_uint_eq(draw(s, UINT64_MAX), c->samples / (uint64_t)c->size);
        crun_sampler_destroy(s);
    }
    expect_each(c->samples, 0, 1);
}

/* A pass begun by some, gone on with by fewer and ended by more: still exactly once. */
TEST(another_world_size_goes_on_where_the_last_one_stood)
{
    static const int sizes[] = { 4, 3, 8, 1 };
    crun_sampler_state state = { .samples = 1003, .seed = 7 };

    memset(seen, 0, sizeof(seen));
    for (unsigned life = 0; life < 4; life++) {
        crun_sampler_state next = state;

        for (int r = 0; r < sizes[life]; r++) {
            crun_sampler *s = make_sampler(1003, r, sizes[life], CRUN_EXACT);

            ck_assert_int_eq(crun_sampler_restore(s, &state), CRUN_OK);
            draw(s, life == 3 ? UINT64_MAX : 50);
            crun_sampler_save(s, &next);
            crun_sampler_destroy(s);
        }
        state = next;
    }
    ck_assert_uint_eq(state.dealt, 1003);
    expect_each(1003, 1, 1);
}

TEST(passes_differ_and_repeat)
{
    uint64_t first[64], again[64], other[64];
    crun_sampler *s = make_sampler(1000, 1, 4, CRUN_PAD);
    unsigned same = 0;

    crun_sampler_next(s, first, 64);
    crun_sampler_set_pass(s, 1);
    crun_sampler_next(s, other, 64);
    crun_sampler_set_pass(s, 0);
    crun_sampler_next(s, again, 64);
    ck_assert_mem_eq(first, again, sizeof(first));
    for (unsigned i = 0; i < 64; i++)
        same += first[i] == other[i];
    ck_assert_uint_lt(same, 8);
    crun_sampler_destroy(s);
}

/* The global batch of a step is the same set of samples whatever the world's size. */
TEST(ranks_share_a_step_out_among_them)
{
    memset(seen, 0, sizeof(seen));
    for (int r = 0; r < 4; r++) {
        crun_sampler *s = make_sampler(1000, r, 4, CRUN_PAD);

        draw(s, 8);
        crun_sampler_destroy(s);
    }
    crun_sampler *alone = make_sampler(1000, 0, 1, CRUN_PAD);
    draw(alone, 32);
    crun_sampler_destroy(alone);
    for (unsigned i = 0; i < 1000; i++)
        ck_assert_uint_eq(seen[i] % 2, 0);
}

TEST(in_order_is_in_order)
{
    crun_sampler_options o = { .samples = 10, .size = 2, .rank = 1, .in_order = true };
    uint64_t index[5];
    crun_sampler *s;

    ck_assert_int_eq(crun_sampler_create(&s, &o), CRUN_OK);
    ck_assert_uint_eq(crun_sampler_next(s, index, 5), 5);
    for (unsigned i = 0; i < 5; i++)
        ck_assert_uint_eq(index[i], 2 * i + 1);
    crun_sampler_destroy(s);
}

TEST(billions_take_no_memory)
{
    uint64_t samples = UINT64_C(5000000000), index[100], sum = 0;
    crun_sampler *s = make_sampler(samples, 3, 1000, CRUN_PAD);

    ck_assert_uint_eq(crun_sampler_left(s), 5000000);
    ck_assert_uint_eq(crun_sampler_next(s, index, 100), 100);
    for (unsigned i = 0; i < 100; i++) {
        ck_assert_uint_lt(index[i], samples);
        sum += index[i] / 100;
    }
    ck_assert_uint_gt(sum, samples / 3); /* spread over all of them */
    ck_assert_uint_lt(sum, samples / 3 * 2);
    crun_sampler_destroy(s);
}

/* In a shuffle of 6 every order is about as frequent as any other. */
TEST(small_shuffles_are_fair)
{
    unsigned at_front[6] = { 0 };
    crun_sampler *s = make_sampler(6, 0, 1, CRUN_PAD);

    for (uint64_t pass = 0; pass < 6000; pass++) {
        uint64_t index;

        crun_sampler_set_pass(s, pass);
        ck_assert_uint_eq(crun_sampler_next(s, &index, 1), 1);
        at_front[index]++;
    }
    for (unsigned i = 0; i < 6; i++)
        ck_assert(at_front[i] > 850 && at_front[i] < 1150);
    crun_sampler_destroy(s);
}

static const struct bad_case {
    crun_sampler_options options;
    const char *words;
} bad[] = {
    { { .samples = 0, .size = 1 }, "0 samples" },
    { { .samples = 5, .size = 0 }, "rank 0 of 0" },
    { { .samples = 5, .size = 2, .rank = 2 }, "rank 2 of 2" },
    { { .samples = 5, .size = 2, .rank = -1 }, "rank -1 of 2" },
};

TEST_EACH(nonsense_is_refused, bad)
{
    crun_sampler *s;

    ck_assert_int_eq(crun_sampler_create(&s, &bad[_i].options), CRUN_BAD_ARGUMENT);
    ck_assert_ptr_null(s);
    ck_assert_ptr_nonnull(strstr(crun_error_text(), bad[_i].words));
}

TEST(a_state_of_other_data_is_refused)
{
    crun_sampler *s = make_sampler(10, 0, 1, CRUN_PAD);
    crun_sampler_state state;

    crun_sampler_save(s, &state);
    state.samples = 11;
    ck_assert_int_eq(crun_sampler_restore(s, &state), CRUN_MISMATCH);
    state.samples = 10;
    state.seed++;
    ck_assert_int_eq(crun_sampler_restore(s, &state), CRUN_MISMATCH);
    state.seed--;
    state.dealt = 11;
    ck_assert_int_eq(crun_sampler_restore(s, &state), CRUN_CORRUPT);
    crun_sampler_destroy(s);
}
