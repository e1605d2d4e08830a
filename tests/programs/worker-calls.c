/* SPDX-License-Identifier: MIT */
/*
 * A rank that the tests of the worker library start, stop and kill:
 *
 *   check    collectives of many sizes against what they should be
 *   every    every call of the library's once
 *   loop     all_reduce until it fails
 *   abort    rank 1 aborts while the others wait
 *   late     rank 1 aborts and ends with 9, half a second later than the others
 *   crash    rank 1 aborts in a signal handler
 *   differ   rank 1 calls something else than the others
 *   halves   two groups: ranks 0 and 1 call all_reduce until it fails; rank 2 waits
 *            for rank 3, which makes no call
 *   who      prints the world's properties
 *   again    several worlds, one after another and at the same time
 *
 * CALLS_TIMEOUT is the timeout of a collective, CALLS_MEET that of crun_init. It ends
 * with 3 and one line, "rank N: STATUS: TEXT", if the library reports a failure, or
 * with crun_exit_code. CALLS_DEVICE is the GPU, or "auto".
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/worlds/any_memory.h"
#include "worker-lib/crun/worker.h"

static crun_world *world;
static crun_options options;

static void leave(int code)
{
    crun_finalize(world);
    fflush(stdout);
    if (crun_exit_code())
        _exit(crun_exit_code());
    exit(code);
}

static void report(crun_status s)
{
    if (s == CRUN_OK)
        return;
    printf("rank %d: %s: %s\n", world ? crun_rank(world) : -1, crun_status_name(s),
           crun_error_text());
    fflush(stdout);
    leave(3);
}

static void say_ready(void)
{
    printf("rank %d: ready, pid %d\n", crun_rank(world), (int)getpid());
    fflush(stdout);
}

/* -- check ------------------------------------------------------------------ */

static float input(size_t i, int rank, int turn)
{
    return 1.0f / (float)(1 + (i * 31 + (size_t)rank * 17 + (size_t)turn) % 1009);
}

/* NCCL adds more than two floats in another order. */
static bool is_sum(float got, float sum)
{
    float error = got < sum ? sum - got : got - sum;

    if (crun_device(world) >= 0 && crun_size(world) > 2)
        return error <= sum * 1e-6f;
    return memcmp(&sum, &got, sizeof(sum)) == 0;
}

static void expect_sum(const float *memory, size_t count, int turn, const char *what)
{
    float *x = malloc((count + 1) * sizeof(*x));

    memory_read(x, memory, count * sizeof(*x));
    for (size_t i = 0; i < count; i++) {
        float sum = input(i, 0, turn);

        for (int r = 1; r < crun_size(world); r++)
            sum += input(i, r, turn);
        if (!is_sum(x[i], sum)) {
            printf("rank %d: wrong: %s, %zu elements: %zu is %g, not %g\n",
                   crun_rank(world), what, count, i, (double)x[i], (double)sum);
            exit(1);
        }
    }
    free(x);
}

static void sum_in(float *x, size_t count, int turn, bool later)
{
    crun_work *work[3] = { NULL };
    size_t part = count / 3;
    float *mine = malloc((count + 1) * sizeof(*mine));

    for (size_t i = 0; i < count; i++)
        mine[i] = input(i, crun_rank(world), turn);
    memory_write(x, mine, count * sizeof(*mine));
    free(mine);
    if (!later) {
        report(crun_all_reduce(world, x, x, count, CRUN_F32, CRUN_SUM, NULL));
        return;
    }
    for (size_t k = 0; k < 3; k++)
        report(crun_all_reduce(world, x + k * part, x + k * part,
                               k < 2 ? part : count - 2 * part, CRUN_F32, CRUN_SUM,
                               &work[k]));
    for (size_t k = 3; k-- > 0;)
        report(crun_wait(work[k]));
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

/* -- every call ------------------------------------------------------------- */

#define RANKS_MAX 16
#define SHARED 1000
#define PART 5

static void expect(float got, float wanted, const char *what)
{
    if (got == wanted)
        return;
    printf("rank %d: wrong: %s: %g is not %g\n", crun_rank(world), what, (double)got,
           (double)wanted);
    exit(1);
}

/* Round the ring, rank 0 beginning. */
static void pass_on(void)
{
    int rank = crun_rank(world), size = crun_size(world);
    float mine = (float)rank, its = -1;

    for (int turn = 0; size > 1 && turn < 2; turn++)
        if ((turn == 0) == (rank == 0))
            report(crun_send(world, &mine, 1, CRUN_F32, (rank + 1) % size));
        else
            report(crun_receive(world, &its, 1, CRUN_F32, (rank + size - 1) % size));
    if (size > 1)
        expect(its, (float)((rank + size - 1) % size), "receive");
}

/* The same in a group, in which the order does not matter. */
static void pass_on_together(void)
{
    int rank = crun_rank(world), size = crun_size(world);
    float mine = (float)rank, its = (float)(size - 1), sum = 1;

    report(crun_group_begin(world));
    if (size > 1) {
        report(crun_receive(world, &its, 1, CRUN_F32, (rank + size - 1) % size));
        report(crun_send(world, &mine, 1, CRUN_F32, (rank + 1) % size));
    }
    report(crun_all_reduce(world, &sum, &sum, 1, CRUN_F32, CRUN_SUM, NULL));
    report(crun_group_end(world, NULL));
    expect(its, (float)((rank + size - 1) % size), "receive in a group");
    expect(sum, (float)size, "all_reduce in a group");
}

static void divide(void)
{
    int rank = crun_rank(world), size = crun_size(world), color = rank % 3 - 1;
    float sum = 1, members = 0;
    crun_world *group;

    for (int r = 0; r < size; r++)
        members += r % 3 - 1 == color;
    report(crun_split(world, color, -rank, &group));
    if (group) {
        report(crun_all_reduce(group, &sum, &sum, 1, CRUN_F32, CRUN_SUM, NULL));
        expect(sum, members, "all_reduce of a group of ranks");
    }
    crun_finalize(group);
}

static void every(void)
{
    float in[RANKS_MAX * PART], out[RANKS_MAX * PART], *shared = NULL;
    int size = crun_size(world);
    float all = (float)size;

    for (int i = 0; i < size * PART; i++)
        in[i] = 1;
    report(crun_alloc(world, SHARED * sizeof(float), (void **)&shared));
    report(crun_all_reduce(world, shared, shared, SHARED, CRUN_F32, CRUN_SUM, NULL));
    report(crun_all_reduce(world, in, out, PART, CRUN_F32, CRUN_SUM, NULL));
    expect(out[PART - 1], all, "all_reduce");
    report(crun_broadcast(world, shared, SHARED, CRUN_F32, 0, NULL));
    report(crun_reduce_scatter(world, in, out, PART, CRUN_F32, CRUN_MAX, NULL));
    expect(out[PART - 1], 1, "reduce_scatter");
    report(crun_all_gather(world, in, out, PART, CRUN_F32, NULL));
    expect(out[size * PART - 1], 1, "all_gather");
    report(crun_all_to_all(world, in, out, PART, CRUN_F32, NULL));
    expect(out[size * PART - 1], 1, "all_to_all");
    pass_on();
    pass_on_together();
    divide();
    report(crun_barrier(world, NULL));
    crun_free(world, shared);
    report(crun_barrier(world, NULL));
    printf("rank %d: done\n", crun_rank(world));
}

/* -- failures --------------------------------------------------------------- */

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

static void add_in_halves(void)
{
    int rank = crun_rank(world);
    float x[2000] = { 0 };
    crun_world *half;

    report(crun_split(world, rank / 2, 0, &half));
    report(crun_barrier(world, NULL));
    say_ready();
    while (rank == 3)
        pause();
    for (;;) {
        crun_status s = crun_all_reduce(half, x, x, 2000, CRUN_F32, CRUN_SUM, NULL);

        if (s != CRUN_OK) {
            crun_finalize(half);
            report(s);
        }
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

static void end_late(void)
{
    float x = 1;

    if (crun_rank(world) == 1) {
        fprintf(stderr, "worker-calls: loss is NaN\n");
        crun_abort(world, "loss is NaN");
        usleep(500000);
        leave(9);
    }
    while (crun_all_reduce(world, &x, &x, 1, CRUN_F32, CRUN_MEAN, NULL) == CRUN_OK)
        continue;
    fprintf(stderr, "worker-calls: %s\n", crun_error_text());
    leave(3);
}

static void differ(void)
{
    float x[2] = { 0 };

    report(crun_all_reduce(world, x, x, crun_rank(world) == 1 ? 2 : 1, CRUN_F32,
                           CRUN_SUM, NULL));
    report(crun_barrier(world, NULL));
}

/* Creates the next world before it finalizes the present one, three times. */
static void again(void)
{
    crun_world *beside;
    float x = 1;

    for (int i = 0; i < 3; i++) {
        report(crun_init(&beside, &options));
        report(crun_all_reduce(beside, &x, &x, 1, CRUN_F32, CRUN_MEAN, NULL));
        report(crun_all_reduce(world, &x, &x, 1, CRUN_F32, CRUN_MEAN, NULL));
        crun_finalize(world);
        world = beside;
    }
    printf("rank %d: %g\n", crun_rank(world), (double)x);
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
    { "check", check_all }, { "every", every }, { "loop", loop },
    { "abort", abort_all }, { "crash", crash }, { "differ", differ },
    { "who", who },         { "again", again }, { "halves", add_in_halves },
    { "late", end_late },
};

int main(int argc, char **argv)
{
    const char *timeout = getenv("CALLS_TIMEOUT"), *meet = getenv("CALLS_MEET");

    options = (crun_options){ .timeout_s = timeout ? atof(timeout) : 60,
                              .device = getenv("CALLS_DEVICE"),
                              .init_timeout_s = meet ? atof(meet) : 60 };

    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        if (argc != 2 || strcmp(argv[1], scenarios[i].name) != 0)
            continue;
        report(crun_init(&world, &options));
        scenarios[i].run();
        leave(0);
    }
    fprintf(stderr, "usage: worker-calls check|every|loop|abort|crash|differ|who|again|"
                    "halves|late\n");
    return 2;
}
