/* SPDX-License-Identifier: MIT */
/* takes: 10 s */
/* Worlds in shared memory, whose ranks are threads of this process. */
#include "worker-lib/crun/worker.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/collectives.h"
#include "tests/worlds/random_calls.h"
#include "tests/worlds/ranks.h"

#define MIB (1u << 20)

/* -- helpers ----------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    unsigned count[CRUN_STATUS_COUNT];
    char text[64][600];
} heard = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* What this rank's last call returned. */
static void note_rank(crun_world *w, crun_status s)
{
    pthread_mutex_lock(&heard.lock);
    heard.count[s]++;
    snprintf(heard.text[crun_rank(w)], sizeof(heard.text[0]), "%s",
             s == CRUN_OK ? "" : crun_error_text());
    pthread_mutex_unlock(&heard.lock);
}

static void expect_words(int rank, const char *part)
{
    ck_assert_msg(strstr(heard.text[rank], part) != NULL, "rank %d said \"%s\"", rank,
                  heard.text[rank]);
}

/* In place of the C library's: without effect, as between scheduling groups. */
static _Atomic bool in_vain;
static _Atomic unsigned yields;

int sched_yield(void)
{
    if (!in_vain)
        return (int)syscall(SYS_sched_yield);
    yields++;
    return 0;
}

/* -- cases ------------------------------------------------------------------------- */

struct dose {
    unsigned seed, calls;
    size_t count_max;
};

static void call_at_random(crun_world *w, void *arg)
{
    const struct dose *d = arg;

    ck_assert_str_eq(crun_backend(w), crun_size(w) == 1 ? "self" : "shm");
    random_calls(w, d->seed, d->calls, d->count_max);
    random_messages(w, d->seed, d->calls / 10, d->count_max);
}

TEST_LOOP(collectives_are_right_in_worlds_of_1_to_8, 1, 9)
{
    struct dose d = { .seed = (unsigned)_i, .calls = 60, .count_max = 3000 };

    ranks_run(&(struct ranks_config){ .size = (unsigned)_i }, call_at_random, &d);
}

TEST_LOOP(large_collectives_are_right, 2, 5)
{
    struct dose d = { .seed = (unsigned)_i, .calls = 10, .count_max = 200000 };

    ranks_run(&(struct ranks_config){ .size = (unsigned)_i }, call_at_random, &d);
}

static void sum_fractions(crun_world *w, void *arg)
{
    size_t count = 300001;
    float *all = arg;
    void *memory;
    float *x;

    ranks_ok(crun_alloc(w, count * sizeof(*x), &memory));
    x = memory;
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < count; i++)
            x[i] = 1.0f / (float)(i + 1 + 17 * (size_t)crun_rank(w));
        ranks_ok(crun_all_reduce(w, x, x, count, CRUN_F32, CRUN_SUM, NULL));
        if (crun_rank(w) == 0 && turn == 0)
            memcpy(all, x, count * sizeof(*x));
        rank_threads_sync();
        ck_assert(memcmp(all, x, count * sizeof(*x)) == 0);
    }
    for (size_t i = 0; i < count; i++) {
        float sum = 1.0f / (float)(i + 1);

        for (int r = 1; r < crun_size(w); r++)
            sum += 1.0f / (float)(i + 1 + 17 * (size_t)r);
        if (x[i] != sum)
            ck_abort_msg("element %zu", i);
    }
    ranks_ok(crun_barrier(w, NULL));
    crun_free(w, memory);
}

TEST(sums_are_made_in_the_order_of_ranks_everywhere)
{
    float *all = malloc(300001 * sizeof(*all));

    ranks_run(&(struct ranks_config){ .size = 5 }, sum_fractions, all);
    free(all);
}

static void call_different_things(crun_world *w, void *arg)
{
    float x[8] = { 0 };

    if (crun_rank(w) == 2)
        note_rank(w, crun_broadcast(w, x, 8, CRUN_F32, 1, NULL));
    else
        note_rank(w, crun_all_reduce(w, x, x, 8, CRUN_F32, CRUN_SUM, NULL));
    note_rank(w, crun_barrier(w, NULL));
}

TEST(different_calls_are_a_mismatch_with_both_sides_words)
{
    ranks_run(&(struct ranks_config){ .size = 3 }, call_different_things, NULL);
    ck_assert_uint_eq(heard.count[CRUN_MISMATCH], 6);
    for (int r = 0; r < 3; r++) {
        expect_words(r, "all_reduce 8 x f32 sum");
        expect_words(r, "rank 2 called broadcast 8 x f32 from rank 1");
    }
}

static void differ_in(crun_world *w, void *arg)
{
    const int *what = arg;
    bool other = crun_rank(w) == 1;
    float x[16] = { 0 };

    note_rank(w, crun_all_reduce(w, x, x, what[0] && other ? 8 : 7,
                                 what[1] && other ? CRUN_I32 : CRUN_F32,
                                 what[2] && other ? CRUN_MAX : CRUN_SUM, NULL));
}

TEST_LOOP(counts_types_and_operations_are_compared, 0, 3)
{
    int what[3] = { _i == 0, _i == 1, _i == 2 };

    ranks_run(&(struct ranks_config){ .size = 2 }, differ_in, what);
    ck_assert_uint_eq(heard.count[CRUN_MISMATCH], 2);
}

static void send_what_was_not_asked_for(crun_world *w, void *arg)
{
    double x[4] = { 0 };

    if (crun_rank(w) == 0)
        ck_assert_int_eq(crun_send(w, x, 3, CRUN_F64, 1), CRUN_OK);
    else
        note_rank(w, crun_receive(w, x, 4, CRUN_F32, 0));
}

TEST(a_message_of_another_kind_is_a_mismatch)
{
    ranks_run(&(struct ranks_config){ .size = 2 }, send_what_was_not_asked_for, NULL);
    ck_assert_uint_eq(heard.count[CRUN_MISMATCH], 1);
    expect_words(1, "4 x f32");
    expect_words(1, "3 x f64");
}

static void stay_away(crun_world *w, void *arg)
{
    pthread_barrier_t *end = arg;

    if (crun_rank(w) != 1)
        note_rank(w, crun_barrier(w, NULL));
    pthread_barrier_wait(end);
    if (crun_rank(w) == 1)
        note_rank(w, crun_barrier(w, NULL));
}

TEST(a_rank_that_does_not_come_is_named_when_the_deadline_passes)
{
    pthread_barrier_t end;

    pthread_barrier_init(&end, NULL, 3);
    ranks_run(&(struct ranks_config){ .size = 3, .timeout_s = 0.2 }, stay_away, &end);
    ck_assert_uint_eq(heard.count[CRUN_TIMEOUT], 3);
    expect_words(0, "waited 0.2 s in barrier #1 for rank 1");
    expect_words(1, "for rank 1"); /* it is told when it comes */
}

static void leave_early(crun_world *w, void *arg)
{
    if (crun_rank(w) == 0)
        note_rank(w, crun_barrier(w, NULL));
}

TEST(a_rank_that_has_left_is_lost)
{
    ranks_run(&(struct ranks_config){ .size = 2 }, leave_early, NULL);
    ck_assert_uint_eq(heard.count[CRUN_PEER_LOST], 1);
    expect_words(0, "rank 1 has left");
}

static void abort_while_others_wait(crun_world *w, void *arg)
{
    const bool *in_signal = arg;

    if (crun_rank(w) == 2) {
        if (*in_signal)
            crun_abort_signal(w);
        else
            crun_abort(w, "the data is gone");
    }
    note_rank(w, crun_barrier(w, NULL));
}

TEST_LOOP(an_abort_ends_the_others_wait, 0, 2)
{
    bool in_signal = _i;

    ranks_run(&(struct ranks_config){ .size = 4 }, abort_while_others_wait, &in_signal);
    ck_assert_uint_eq(heard.count[CRUN_ABORTED], 4);
    expect_words(0,
                 in_signal ? "rank 2: crun_abort_signal" : "rank 2: the data is gone");
    expect_words(2, in_signal ? "crun_abort_signal" : "the data is gone");
}

static void allocate(crun_world *w, void *arg)
{
    void *a, *b, *huge = &huge;

    for (int i = 0; i < 200; i++) {
        ranks_ok(crun_alloc(w, MIB, &a));
        ck_assert(((uintptr_t)a & 4095) == 0);
        for (size_t k = 0; k < MIB; k += 4096)
            ck_assert_int_eq(((char *)a)[k], 0);
        memset(a, 1, MIB);
        ranks_ok(crun_alloc(w, 1, &b));
        /* not in the same order, nor at the same time */
        crun_free(w, crun_rank(w) % 2 ? a : b);
        crun_free(w, crun_rank(w) % 2 ? b : a);
    }
    ck_assert_int_eq(crun_alloc(w, SIZE_MAX / 16, &huge), CRUN_NO_MEMORY);
    ck_assert_ptr_null(huge);
    ranks_ok(crun_alloc(w, 1, &a));
    crun_free(w, a);
    ranks_ok(crun_barrier(w, NULL));
    ck_assert_int_eq(crun_alloc(w, crun_rank(w) ? 4096 : 8192, &a), CRUN_MISMATCH);
}

TEST(memory_is_zeroed_and_comes_back)
{
    ranks_run(&(struct ranks_config){ .size = 3 }, allocate, NULL);
}

/* One part is shared and the other not: all must go the same way. */
static void mix_memory(crun_world *w, void *arg)
{
    size_t count = 100000;
    void *memory, *second;
    int32_t *mine = malloc(count * 4), *x;

    ranks_ok(crun_alloc(w, count * 4 + 64, &memory));
    ranks_ok(crun_alloc(w, count * 4, &second));
    for (int turn = 0; turn < 3; turn++) {
        x = crun_rank(w) == turn  ? mine
            : crun_rank(w) > turn ? (int32_t *)memory + crun_rank(w)
                                  : (int32_t *)second;
        for (size_t i = 0; i < count; i++)
            x[i] = (int32_t)i + crun_rank(w);
        ranks_ok(crun_all_reduce(w, x, x, count, CRUN_I32, CRUN_SUM, NULL));
        for (size_t i = 0; i < count; i++)
            if (x[i] != 3 * (int32_t)i + 3)
                ck_abort_msg("element %zu", i);
        crun_free(w, turn == 1 && crun_rank(w) == 0 ? memory : NULL);
    }
    free(mine);
}

TEST(ranks_may_use_different_memory)
{
    ranks_run(&(struct ranks_config){ .size = 3 }, mix_memory, NULL);
}

static void sleep_long(crun_world *w, void *arg)
{
    struct timespec cpu;
    uint64_t used_ms;

    if (crun_rank(w) == 1)
        nanosleep(&(struct timespec){ .tv_nsec = 600000000 }, NULL);
    ranks_ok(crun_barrier(w, NULL));
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    used_ms = (uint64_t)cpu.tv_sec * 1000 + (uint64_t)cpu.tv_nsec / 1000000;
    ck_assert_uint_lt(used_ms, 300);
}

/* All ranks that are started from now on share one core. */
static void share_a_core(void)
{
    cpu_set_t mask;
    size_t core = 0;

    ck_assert_int_eq(sched_getaffinity(0, sizeof(mask), &mask), 0);
    while (!CPU_ISSET(core, &mask))
        core++;
    CPU_ZERO(&mask);
    CPU_SET(core, &mask);
    ck_assert_int_eq(sched_setaffinity(0, sizeof(mask), &mask), 0);
}

TEST_LOOP(a_long_wait_sleeps, 0, 2)
{
    if (_i)
        share_a_core();
    ranks_run(&(struct ranks_config){ .size = 2 }, sleep_long, NULL);
}

static void sum_while_crowded(crun_world *w, void *arg)
{
    const cpu_set_t *mask = arg;
    cpu_set_t own;

    call_at_random(w, &(struct dose){ .seed = 5, .calls = 30, .count_max = 3000 });
    ck_assert_int_eq(sched_getaffinity(0, sizeof(own), &own), 0);
    ck_assert(CPU_EQUAL(&own, mask));
}

TEST_LOOP(ranks_may_share_cores_and_keep_their_masks, 0, 2)
{
    cpu_set_t mask;

    if (_i)
        share_a_core();
    ck_assert_int_eq(sched_getaffinity(0, sizeof(mask), &mask), 0);
    ranks_run(&(struct ranks_config){ .size = 6 }, sum_while_crowded, &mask);
}

static void meet_often(crun_world *w, void *arg)
{
    rank_threads_sync();
    in_vain = true;
    for (int i = 0; i < 300; i++)
        ranks_ok(crun_barrier(w, NULL));
    rank_threads_sync();
    in_vain = false;
}

/* Else each of some thousand waits has hundreds of them. */
TEST(yields_in_vain_are_given_up)
{
    share_a_core();
    ranks_run(&(struct ranks_config){ .size = 4 }, meet_often, NULL);
    ck_assert_uint_lt(yields, 5000);
}
