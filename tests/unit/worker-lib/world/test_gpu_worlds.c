/* SPDX-License-Identifier: MIT */
/*
 * Groups of ranks and of operations where each rank has a GPU; ranks are threads.
 * takes: 5 s
 * emulated GPU: NCCL is its stand-in
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "tests/worlds/any_memory.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/ranks.h"
#include "tests/worlds/split_leaks.h"

static const char *const versions[] = { "21903", "23007" };
static const unsigned sizes[] = { 2, 4, 8 };

/* -- messages ---------------------------------------------------------------------- */

#define TURNS 3
#define BIG (((size_t)4 << 20) / sizeof(int32_t) + 12345)

static int32_t *alloc_numbers(crun_world *w, size_t count)
{
    int32_t *memory;

    ranks_ok(crun_alloc(w, count * sizeof(*memory), (void **)&memory));
    return memory;
}

static void fill_numbers(int32_t *memory, size_t count, int32_t first)
{
    int32_t *numbers = malloc(count * sizeof(*numbers));

    for (size_t i = 0; i < count; i++)
        numbers[i] = first + (int32_t)i;
    memory_write(memory, numbers, count * sizeof(*numbers));
    free(numbers);
}

static void expect_numbers(const int32_t *memory, size_t count, int32_t first)
{
    int32_t *numbers = malloc(count * sizeof(*numbers));
    size_t right = 0;

    memory_read(numbers, memory, count * sizeof(*numbers));
    while (right < count && numbers[right] == first + (int32_t)right)
        right++;
    ck_assert_msg(right == count, "element %zu of %zu is %d", right, count,
                  (int)numbers[right % count]);
    free(numbers);
}

/* The messages are larger than what NCCL holds between two ranks. */
static void pass_round_ring(crun_world *w, void *arg)
{
    int rank = crun_rank(w), size = crun_size(w);
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    size_t count = 100000;
    int32_t *mine = alloc_numbers(w, count), *its = alloc_numbers(w, count), sum;

    for (int turn = 0; turn < TURNS; turn++) {
        fill_numbers(mine, count, 1000 * rank + turn);
        sum = rank;
        ranks_ok(crun_group_begin(w));
        if (turn > 0)
            ranks_ok(crun_all_reduce(w, &sum, &sum, 1, CRUN_I32, CRUN_SUM, NULL));
        ranks_ok(crun_send(w, mine, count, CRUN_I32, next));
        ranks_ok(crun_receive(w, its, count, CRUN_I32, last));
        ranks_ok(crun_group_end(w, NULL));
        expect_numbers(its, count, 1000 * last + turn);
        ck_assert_int_eq(sum, turn > 0 ? size * (size - 1) / 2 : rank);
    }
    crun_free(w, mine);
    crun_free(w, its);
}

TEST_LOOP(a_ring_of_messages_passes, 0, 6)
{
    setenv("CRUN_STANDIN_VERSION", versions[_i % 2], 1);
    ranks_run(&(struct ranks_config){ .size = sizes[_i / 2], .backend = "nccl" },
              pass_round_ring, NULL);
}

/* Rank 0's buffer is in its GPU, rank 1's is not: both must divide it alike. */
static void pass_big_messages(crun_world *w, void *arg)
{
    int rank = crun_rank(w);
    int32_t *gpu = alloc_numbers(w, BIG), *host = calloc(BIG, sizeof(*host));
    int32_t *mine = rank == 0 ? gpu : host;

    ck_assert(memory_is_of_gpu(gpu));
    for (int from = 0; from < 2; from++)
        if (rank == from) {
            fill_numbers(mine, BIG, 815 + from);
            ranks_ok(crun_send(w, mine, BIG, CRUN_I32, 1 - from));
        } else {
            ranks_ok(crun_receive(w, mine, BIG, CRUN_I32, from));
            expect_numbers(mine, BIG, 815 + from);
        }
    crun_free(w, gpu);
    free(host);
}

TEST(a_big_message_goes_between_gpu_and_host)
{
    ranks_run(&(struct ranks_config){ .size = 2, .backend = "nccl" }, pass_big_messages,
              NULL);
}

/* -- several worlds ---------------------------------------------------------------- */

/* Rows and columns of a square of ranks. */
static void sum_in_three_worlds(crun_world *w, void *arg)
{
    int rank = crun_rank(w);
    int32_t *x = alloc_numbers(w, 3), sums[3];
    crun_world *in[3] = { w };
    crun_work *work[3];

    ranks_ok(crun_split(w, rank / 2, 0, &in[1]));
    ranks_ok(crun_split(w, rank % 2, 0, &in[2]));
    for (int turn = 0; turn < 10; turn++) {
        memory_write(x, (int32_t[]){ rank, rank, rank }, 3 * sizeof(*x));
        for (int i = 0; i < 3; i++)
            ranks_ok(
                crun_all_reduce(in[i], x + i, x + i, 1, CRUN_I32, CRUN_SUM, &work[i]));
        for (int i = 3; i-- > 0;)
            ranks_ok(crun_wait(work[i]));
        memory_read(sums, x, sizeof(sums));
        ck_assert_int_eq(sums[0], 6);
        ck_assert_int_eq(sums[1], rank / 2 * 4 + 1);
        ck_assert_int_eq(sums[2], rank % 2 * 2 + 2);
    }
    crun_free(w, x);
    crun_finalize(in[2]);
    crun_finalize(in[1]);
}

TEST_LOOP(worlds_that_share_ranks_take_turns, 0, 2)
{
    setenv("CRUN_STANDIN_VERSION", versions[_i], 1);
    ranks_run(&(struct ranks_config){ .size = 4, .backend = "nccl" },
              sum_in_three_worlds, NULL);
}

/* Each rank's GPU waits for an operation that the other one has queued behind. */
static void sum_in_different_orders(crun_world *w, void *arg)
{
    int rank = crun_rank(w);
    int32_t *x = alloc_numbers(w, 2);
    crun_world *in[2] = { w };
    crun_work *work[2] = { NULL };
    crun_status s = CRUN_OK;

    ranks_ok(crun_split(w, 0, 0, &in[1]));
    for (int i = 0; i < 2; i++) {
        int which = rank == 0 ? i : 1 - i;

        if (s == CRUN_OK)
            s = crun_all_reduce(in[which], x + which, x + which, 1, CRUN_I32, CRUN_SUM,
                                &work[i]);
    }
    for (int i = 0; i < 2; i++)
        if (work[i] && crun_wait(work[i]) != CRUN_OK && s == CRUN_OK)
            s = CRUN_TIMEOUT;
    if (s == CRUN_OK)
        s = crun_barrier(w, NULL);
    ck_assert_msg(s == CRUN_TIMEOUT, "%s: %s", crun_status_name(s), crun_error_text());
    rank_threads_sync();
    crun_free(w, x);
    crun_finalize(in[1]);
}

TEST(worlds_in_different_orders_end_by_the_timeout)
{
    ranks_run(&(struct ranks_config){ .size = 2, .backend = "nccl", .timeout_s = 1 },
              sum_in_different_orders, NULL);
}

/* -- failures ---------------------------------------------------------------------- */

/* The last rank does not come; its group waits, and so does the other group. */
static void miss_rank(crun_world *w, void *arg)
{
    int rank = crun_rank(w), size = crun_size(w);
    crun_world *half;

    ranks_ok(crun_split(w, rank < size / 2, 0, &half));
    rank_threads_sync();
    if (rank != size - 1 && rank != 0) {
        crun_status s = crun_barrier(half, NULL);

        ck_assert_msg(s == CRUN_TIMEOUT && strstr(crun_error_text(), "barrier"),
                      "%s: %s", crun_status_name(s), crun_error_text());
    }
    rank_threads_sync();
    crun_finalize(half);
}

TEST(a_timeout_in_a_group_ends_the_family)
{
    ranks_run(&(struct ranks_config){ .size = 4, .backend = "nccl", .timeout_s = 1 },
              miss_rank, NULL);
}

/* -- leaks ------------------------------------------------------------------------- */

/* It keeps the structs of two communicators, to recognise a later use. */
#define STANDIN_BYTES 2048

TEST(many_groups_leave_nothing)
{
    split_leaks_check(&(struct ranks_config){ .size = 2, .backend = "nccl" }, 50,
                      STANDIN_BYTES);
}
