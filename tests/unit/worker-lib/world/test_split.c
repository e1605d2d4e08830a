/* SPDX-License-Identifier: MIT */
/* takes: 6 s */
/* Groups of ranks, on each backend of the hosts; ranks are threads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/ranks.h"
#include "tests/worlds/split_leaks.h"

#define SOON_MS 20000 /* much less than any timeout */

static const struct ranks_config configs[] = {
    { .size = 4, .backend = "shm" },
    { .size = 4, .backend = "tcp" },
    { .size = 4, .per_node = 2, .backend = "shm+tcp" },
    { .size = 6, .per_node = 4, .backend = "shm+tcp" },
    { .size = 1 },
};
#define CONFIGS (int)(sizeof(configs) / sizeof(configs[0]))
#define MANY_RANKS (CONFIGS - 1) /* of these, those with more than one rank */

static void expect_error(crun_status s, crun_status expected, const char *text)
{
    ck_assert_msg(s == expected && strstr(crun_error_text(), text), "%s: %s",
                  crun_status_name(s), crun_error_text());
}

static int32_t sum_in(crun_world *w, int32_t value)
{
    int32_t sum = -1;

    ranks_ok(crun_all_reduce(w, &value, &sum, 1, CRUN_I32, CRUN_SUM, NULL));
    return sum;
}

/* -- who is where ------------------------------------------------------------------ */

static int color_of(int rank, uint64_t seed)
{
    return (int)((seed >> (2 * rank)) % 4) - 1;
}

static int key_of(int rank, uint64_t seed)
{
    return (int)((seed >> (3 * rank)) % 3) - 1;
}

static bool is_before(int a, int b, uint64_t seed)
{
    return key_of(a, seed) != key_of(b, seed) ? key_of(a, seed) < key_of(b, seed)
                                              : a < b;
}

static void check_group(crun_world *g, const crun_world *parent, uint64_t seed)
{
    int rank = crun_rank(parent), size = 0, before = 0, local = 0, sum = 0, all[64];

    for (int r = 0; r < crun_size(parent); r++) {
        if (color_of(r, seed) != color_of(rank, seed))
            continue;
        size++;
        sum += 1 + r;
        before += is_before(r, rank, seed);
    }
    ck_assert_int_eq(crun_rank(g), before);
    ck_assert_int_eq(crun_size(g), size);
    ck_assert_int_eq(sum_in(g, 1 + rank), sum);
    ranks_ok(crun_all_gather(g, &rank, all, 1, CRUN_I32, NULL));
    for (int i = 1; i < size; i++)
        ck_assert(is_before(all[i - 1], all[i], seed));
    for (int i = 0; i < size; i++) {
        int per_node = crun_local_size(parent);

        local += all[i] / per_node == rank / per_node;
    }
    if (crun_nodes(parent) == 1 || crun_size(parent) % crun_nodes(parent) == 0) {
        ck_assert_int_eq(crun_local_size(g), local);
        ck_assert_int_lt(crun_local_rank(g), local);
    }
    ck_assert_int_lt(crun_node(g), crun_nodes(g));
    ck_assert_str_eq(crun_backend(g), size == 1 ? "self"
                                      : strcmp(crun_backend(parent), "shm+tcp") != 0
                                          ? crun_backend(parent)
                                      : crun_nodes(g) == 1    ? "shm"
                                      : crun_nodes(g) == size ? "tcp"
                                                              : "shm+tcp");
}

static void split_all_ways(crun_world *w, void *arg)
{
    for (uint64_t turn = 1; turn <= 12; turn++) {
        uint64_t seed = turn * 0x9e3779b97f4a7c15u;
        crun_world *g = (void *)1;

        ranks_ok(crun_split(w, color_of(crun_rank(w), seed), key_of(crun_rank(w), seed),
                            &g));
        ck_assert((g == NULL) == (color_of(crun_rank(w), seed) < 0));
        if (g)
            check_group(g, w, seed);
        crun_finalize(g);
    }
    ck_assert_int_eq(sum_in(w, 1), crun_size(w));
}

TEST_LOOP(all_colors_and_keys, 0, CONFIGS)
{
    ranks_run(&configs[_i], split_all_ways, NULL);
}

/* -- groups of groups -------------------------------------------------------------- */

static void split_twice(crun_world *w, void *arg)
{
    int rank = crun_rank(w), size = crun_size(w);
    crun_world *half, *single, *row;
    float *memory, x = 1, y = 0;
    crun_work *work;

    ranks_ok(crun_split(w, rank < size / 2, 0, &half));
    ranks_ok(crun_split(w, rank % 2, -rank, &row));
    ranks_ok(crun_split(half, crun_rank(half), 0, &single));
    ck_assert_int_eq(crun_size(single), 1);
    ck_assert_int_eq(crun_size(row), (size + (rank % 2 == 0)) / 2);
    ck_assert_int_eq(crun_rank(row), crun_size(row) - 1 - rank / 2);
    ranks_ok(crun_alloc(row, 100000 * sizeof(float), (void **)&memory));
    for (int i = 0; i < 100000; i++)
        memory[i] = (float)rank;
    ranks_ok(crun_all_reduce(row, memory, memory, 100000, CRUN_F32, CRUN_MAX, &work));
    ranks_ok(crun_all_reduce(half, &x, &y, 1, CRUN_F32, CRUN_SUM, NULL));
    ranks_ok(crun_wait(work));
    ck_assert_float_eq(y, (float)crun_size(half));
    ck_assert_float_eq(memory[99999], (float)(size - 1 - (size - 1 - rank) % 2));
    crun_free(row, memory);
    ck_assert_int_eq(sum_in(single, rank), rank);
    crun_finalize(rank % 2 ? row : single);
    ranks_ok(crun_barrier(w, NULL));
    crun_finalize(rank % 2 ? single : row);
    crun_finalize(half);
}

TEST_LOOP(groups_of_groups_end_in_any_order, 0, CONFIGS)
{
    ranks_run(&configs[_i], split_twice, NULL);
}

/* -- the rest of the library ------------------------------------------------------- */

static void train_in_groups(crun_world *w, void *arg)
{
    static const crun_optim_options sgd = { .kind = CRUN_SGD, .lr = 1 };
    int rank = crun_rank(w);
    crun_checkpoints *checkpoints;
    char directory[100];
    crun_world *g;
    crun_ddp *ddp;
    crun_optim *optim;

    ranks_ok(crun_split(w, rank % 2, 0, &g));
    ranks_ok(crun_ddp_create(&ddp, g, NULL));
    ck_assert_int_eq(crun_ddp_parameter(ddp, "x", 1000), 0);
    ranks_ok(crun_ddp_seal(ddp));
    ranks_ok(crun_optim_create(&optim, ddp, &sgd));
    for (int i = 0; i < 1000; i++)
        crun_ddp_value(ddp, 0)[i] = 0;
    for (int step = 0; step < 3; step++) {
        ranks_ok(crun_ddp_begin(ddp, true));
        for (int i = 0; i < 1000; i++)
            ((float *)crun_ddp_gradient(ddp, 0))[i] = (float)(rank % 2) + 1;
        ranks_ok(crun_ddp_ready(ddp, 0));
        ranks_ok(crun_ddp_finish(ddp));
        ranks_ok(crun_optim_step(optim, NULL));
    }
    ck_assert_float_eq(crun_ddp_value(ddp, 0)[999], (float)(-3 * (rank % 2 + 1)));
    snprintf(directory, sizeof(directory), "%s/%d", (const char *)arg, rank % 2);
    ranks_ok(crun_checkpoints_open(
        &checkpoints, g, &(crun_checkpoint_options){ .directory = directory }));
    ranks_ok(crun_checkpoint_save(checkpoints, 3, ddp, optim, NULL, NULL, 0));
    ranks_ok(crun_checkpoint_wait(checkpoints));
    crun_checkpoints_close(checkpoints);
    crun_optim_destroy(optim);
    crun_ddp_destroy(ddp);
    crun_finalize(g);
}

TEST_LOOP(a_group_trains_as_a_world_does, 0, CONFIGS)
{
    char directory[] = "/tmp/crun-split-XXXXXX", command[100];

    ck_assert_ptr_nonnull(mkdtemp(directory));
    ranks_run(&configs[_i], train_in_groups, directory);
    snprintf(command, sizeof(command), "rm -r %s", directory);
    ck_assert_int_eq(system(command), 0);
}

/* -- failures ---------------------------------------------------------------------- */

/* Ranks 0 and 1 of a world, and all others: two groups. */
static crun_world *split_in_two(crun_world *w)
{
    crun_world *g;

    ranks_ok(crun_split(w, crun_rank(w) < 2, 0, &g));
    rank_threads_sync(); /* a failure would also end a split */
    return g;
}

/* Rank 0 aborts its group. The last rank makes no call, so the others wait in
 * theirs. */
static void abort_one_group(crun_world *w, void *arg)
{
    crun_world *g = split_in_two(w);
    uint64_t began = clock_ms();
    int rank = crun_rank(w);

    if (rank == 0)
        crun_abort(g, "the end of group 1");
    else if (rank < crun_size(w) - 1)
        expect_error(crun_barrier(g, NULL), CRUN_ABORTED, "the end of group 1");
    if (rank == 0) {
        expect_error(crun_barrier(w, NULL), CRUN_ABORTED, "the end of group 1");
    } else if (rank < crun_size(w) - 1) {
        ck_assert_ptr_nonnull(strstr(crun_error_text(), "rank 0"));
        expect_error(crun_barrier(w, NULL), CRUN_ABORTED, "rank 0: the end of group 1");
    }
    ck_assert_uint_lt(clock_ms(), began + SOON_MS);
    rank_threads_sync();
    expect_error(crun_barrier(w, NULL), CRUN_ABORTED, "the end of group 1");
    crun_finalize(g);
}

TEST_LOOP(an_abort_of_a_group_ends_the_family, 0, MANY_RANKS)
{
    ranks_run(&configs[_i], abort_one_group, NULL);
}

/* A rank in a group learns of a failure of the parent world. */
static void fail_root(crun_world *w, void *arg)
{
    crun_world *g = split_in_two(w);
    int rank = crun_rank(w);
    float x[2] = { 0 };

    if (rank >= 2)
        expect_error(crun_send(w, x, 3000, CRUN_U8, rank), CRUN_BAD_ARGUMENT, "itself");
    if (rank < 2)
        expect_error(crun_all_reduce(g, x, x, rank + 1, CRUN_F32, CRUN_SUM, NULL),
                     CRUN_MISMATCH, "all_reduce 1 x f32");
    else
        expect_error(crun_receive(w, x, 1, CRUN_F32, rank == 2 ? 3 : 2), CRUN_MISMATCH,
                     "all_reduce 1 x f32");
    rank_threads_sync();
    crun_finalize(g);
}

TEST_LOOP(a_mismatch_in_a_group_ends_waits_in_the_world, 0, MANY_RANKS)
{
    ranks_run(&configs[_i], fail_root, NULL);
}

static void miss_rank(crun_world *w, void *arg)
{
    int rank = crun_rank(w), size = crun_size(w);
    crun_world *g;
    char missing[20];

    snprintf(missing, sizeof(missing), "rank %d", size - 1);
    ranks_ok(crun_split(w, rank == 1 || rank == size - 1 ? 7 : -1, -rank, &g));
    if (rank == 1) /* in the group, that is rank 0 */
        expect_error(crun_barrier(g, NULL), CRUN_TIMEOUT, missing);
    rank_threads_sync();
    crun_finalize(g);
}

TEST_LOOP(a_timeout_in_a_group_names_the_rank_of_the_world, 0, MANY_RANKS)
{
    struct ranks_config config = configs[_i];

    config.timeout_s = 1;
    ranks_run(&config, miss_rank, NULL);
}

/* -- mistakes ---------------------------------------------------------------------- */

static void finalize_parent_first(crun_world *w, void *arg)
{
    crun_world *g, *other;

    ranks_ok(crun_split(w, 0, 0, &g));
    ranks_ok(crun_split(g, 0, 0, &other));
    rank_threads_sync();
    crun_finalize(g);
    expect_error(CRUN_OK, CRUN_OK, "a group must be finalized first");
    expect_error(crun_barrier(other, NULL), CRUN_ABORTED, "before its groups");
    expect_error(crun_barrier(w, NULL), CRUN_ABORTED, "before its groups");
    crun_finalize(other);
}

TEST_LOOP(a_parent_that_ends_first_is_reported, 0, CONFIGS)
{
    ranks_run(&configs[_i], finalize_parent_first, NULL);
}

static void split_wrongly(crun_world *w, void *arg)
{
    crun_world *g = NULL;

    expect_error(crun_split(NULL, 0, 0, &g), CRUN_BAD_ARGUMENT, "crun_split: NULL");
    expect_error(crun_split(w, 0, 0, NULL), CRUN_BAD_ARGUMENT, "crun_split: NULL");
    ranks_ok(crun_group_begin(w));
    expect_error(crun_split(w, 0, 0, &g), CRUN_BAD_ARGUMENT, "crun_split: not between");
    ranks_ok(crun_group_end(w, NULL));
    ranks_ok(crun_split(w, -1, 0, &g));
    ck_assert_ptr_null(g);
}

TEST_LOOP(mistakes_make_no_group, 0, CONFIGS)
{
    ranks_run(&configs[_i], split_wrongly, NULL);
}

/* -- leaks ------------------------------------------------------------------------- */

TEST_LOOP(many_groups_leave_nothing, 0, 2)
{
    split_leaks_check(
        &(struct ranks_config){ .size = 2, .backend = _i == 0 ? "shm" : "tcp" }, 1000,
        64);
}
