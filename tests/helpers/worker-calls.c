/* SPDX-License-Identifier: MIT */
/*
 * A rank that the tests of the worker library start, stop and kill:
 *
 *     worker-calls check            collectives of many sizes against what they should
 * be worker-calls loop             all_reduce until it fails worker-calls abort rank 1
 * aborts while the others wait worker-calls crash            rank 1 aborts in a signal
 * handler worker-calls who              what the world says of itself
 *
 * CALLS_TIMEOUT is the timeout of a collective, CALLS_MEET that of crun_init. It ends
 * with 3 and one line, "rank N: STATUS: TEXT", if the library reports a failure.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker-lib/crun/worker.h"

static crun_world *world;

static void report(crun_status s)
{
    if (s == CRUN_OK)
        return;
    printf("rank %d: %s: %s\n", world ? crun_rank(world) : -1, crun_status_name(s),
           crun_error_text());
    fflush(stdout);
    crun_finalize(world);
    exit(3);
}

static void say_ready(void)
{
    printf("rank %d: ready, pid %d\n", crun_rank(world), (int)getpid());
    fflush(stdout);
}

/* -- check --------------------------------------------------------------------------
 */

static float input(size_t i, int rank, int turn)
{
    return 1.0f / (float)(1 + (i * 31 + (size_t)rank * 17 + (size_t)turn) % 1009);
}

static void expect_sum(const float *x, size_t count, int turn, const char *what)
{
    for (size_t i = 0; i < count; i++) {
        float sum = input(i, 0, turn);

        for (int r = 1; r < crun_size(world); r++)
            sum += input(i, r, turn);
        if (memcmp(&sum, &x[i], sizeof(sum)) != 0) {
            printf("rank %d: wrong: %s, %zu elements: %zu is %g, not %g\n",
                   crun_rank(world), what, count, i, (double)x[i], (double)sum);
            exit(1);
        }
    }
}

/* With a GPU results are on their way, and a barrier is behind them. */
static void until_here(void)
{
    if (crun_device(world) >= 0)
        report(crun_barrier(world, NULL));
}

static void sum_in(float *x, size_t count, int turn, bool later)
{
    crun_work *work[3] = { NULL };
    size_t part = count / 3;

    for (size_t i = 0; i < count; i++)
        x[i] = input(i, crun_rank(world), turn);
    if (!later) {
        report(crun_all_reduce(world, x, x, count, CRUN_F32, CRUN_SUM, NULL));
        until_here();
        return;
    }
    for (size_t k = 0; k < 3; k++)
        report(crun_all_reduce(world, x + k * part, x + k * part,
                               k < 2 ? part : count - 2 * part, CRUN_F32, CRUN_SUM,
                               &work[k]));
    for (size_t k = 3; k-- > 0;)
        report(crun_wait(work[k]));
    until_here();
}

static void check_all(void)
{
    static const size_t counts[] = { 0, 1, 5, 1000, 4097, 65536, 300001 };
    int turn = 0;

    for (size_t n = 0; n < sizeof(counts) / sizeof(counts[0]); n++)
        for (int way = 0; way < 4; way++, turn++) {
            size_t bytes = (counts[n] + 1) * sizeof(float);
            bool shared = way & 1, later = way & 2;
            void *memory = NULL;

            if (shared)
                report(crun_alloc(world, bytes, &memory));
            else
                memory = malloc(bytes);
            sum_in(memory, counts[n], turn, later);
            expect_sum(memory, counts[n], turn, shared ? "shared" : "ordinary");
            if (shared)
                crun_free(world, memory);
            else
                free(memory);
        }
    printf("rank %d: right\n", crun_rank(world));
}

/* -- failures -----------------------------------------------------------------------
 */

static void loop(void)
{
    float x[2000] = { 0 };

    report(crun_barrier(world, NULL));
    say_ready();
    for (;;) {
        report(crun_all_reduce(world, x, x, 2000, CRUN_F32, CRUN_SUM, NULL));
        usleep(1000);
    }
}

static void abort_all(void)
{
    if (crun_rank(world) == 1)
        crun_abort(world, "the loss is NaN");
    report(crun_barrier(world, NULL));
}

static void on_crash(int number)
{
    (void)number;
    crun_abort_signal(world);
    _exit(4);
}

static void crash(void)
{
    signal(SIGSEGV, on_crash);
    if (crun_rank(world) == 1)
        raise(SIGSEGV);
    report(crun_barrier(world, NULL));
}

static void who(void)
{
    printf("rank %d of %d, local %d of %d, node %d of %d, %d restarts, %s\n",
           crun_rank(world), crun_size(world), crun_local_rank(world),
           crun_local_size(world), crun_node(world), crun_nodes(world),
           crun_restarts(world), crun_backend(world));
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    { "check", check_all }, { "loop", loop }, { "abort", abort_all },
    { "crash", crash },     { "who", who },
};

int main(int argc, char **argv)
{
    const char *timeout = getenv("CALLS_TIMEOUT"), *meet = getenv("CALLS_MEET");
    crun_options options = { .timeout_s = timeout ? atof(timeout) : 60,
                             .init_timeout_s = meet ? atof(meet) : 60 };

    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        if (argc != 2 || strcmp(argv[1], scenarios[i].name) != 0)
            continue;
        report(crun_init(&world, &options));
        scenarios[i].run();
        crun_finalize(world);
        return 0;
    }
    fprintf(stderr, "usage: worker-calls check|loop|abort|crash|who\n");
    return 2;
}
