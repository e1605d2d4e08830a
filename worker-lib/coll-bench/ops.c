/* SPDX-License-Identifier: MIT */
#include "worker-lib/coll-bench/ops.h"

#include <string.h>

#include "worker-lib/coll-bench/values.h"

#define ROOT 0

static crun_status bench_all_reduce(const struct bench *b)
{
    return crun_all_reduce(b->world, b->in, b->out, b->count, b->type, b->reduce, NULL);
}

static crun_status bench_broadcast(const struct bench *b)
{
    return crun_broadcast(b->world, b->out, b->count, b->type, ROOT, NULL);
}

static crun_status bench_reduce_scatter(const struct bench *b)
{
    return crun_reduce_scatter(b->world, b->in, b->out, b->count, b->type, b->reduce,
                               NULL);
}

static crun_status bench_all_gather(const struct bench *b)
{
    return crun_all_gather(b->world, b->in, b->out, b->count, b->type, NULL);
}

static crun_status bench_all_to_all(const struct bench *b)
{
    return crun_all_to_all(b->world, b->in, b->out, b->count, b->type, NULL);
}

static crun_status bench_barrier(const struct bench *b)
{
    return crun_barrier(b->world, NULL);
}

/* Ping-pong between ranks 0 and 1, 2 and 3, ...; a last rank without a partner does
 * nothing. */
static crun_status bench_send_receive(const struct bench *b)
{
    int rank = crun_rank(b->world), other = rank ^ 1;
    crun_status s;

    if (other >= crun_size(b->world))
        return CRUN_OK;
    if (rank < other)
        s = crun_send(b->world, b->in, b->count, b->type, other);
    else
        s = crun_receive(b->world, b->out, b->count, b->type, other);
    if (s != CRUN_OK)
        return s;
    return rank < other ? crun_receive(b->world, b->out, b->count, b->type, other)
                        : crun_send(b->world, b->in, b->count, b->type, other);
}

/* -- expected results -------------------------------------------------------------- */

static long expect_reduced(const struct bench *b, size_t i)
{
    return (long)reduced_value(crun_size(b->world), i, b->reduce);
}

static long expect_root_value(const struct bench *b, size_t i)
{
    return (long)rank_value(ROOT, i, b->reduce);
}

static long expect_own_part_reduced(const struct bench *b, size_t i)
{
    return expect_reduced(b, (size_t)crun_rank(b->world) * b->count + i);
}

static long expect_gathered(const struct bench *b, size_t i)
{
    return (long)rank_value((int)(i / b->count), i % b->count, b->reduce);
}

static long expect_all_to_all(const struct bench *b, size_t i)
{
    size_t place = (size_t)crun_rank(b->world) * b->count + i % b->count;

    return (long)rank_value((int)(i / b->count), place, b->reduce);
}

static long expect_partner_value(const struct bench *b, size_t i)
{
    int other = crun_rank(b->world) ^ 1;

    return other < crun_size(b->world) ? (long)rank_value(other, i, b->reduce) : -1;
}

/* -- bus bandwidth ----------------------------------------------------------------- */

static double bus_once(int ranks)
{
    return 1;
}

static double bus_one_way(int ranks)
{
    return (double)(ranks - 1) / ranks;
}

static double bus_both_ways(int ranks)
{
    return 2 * bus_one_way(ranks);
}

static const struct bench_op ops[] = {
    { .name = "all_reduce",
      .in_place = true,
      .run = bench_all_reduce,
      .expected = expect_reduced,
      .bus = bus_both_ways,
      .calls = 1 },
    { .name = "broadcast",
      .in_place = true,
      .alone = true,
      .run = bench_broadcast,
      .expected = expect_root_value,
      .bus = bus_once,
      .calls = 1 },
    { .name = "reduce_scatter",
      .per_rank = true,
      .wide_in = true,
      .run = bench_reduce_scatter,
      .expected = expect_own_part_reduced,
      .bus = bus_one_way,
      .calls = 1 },
    { .name = "all_gather",
      .per_rank = true,
      .wide_out = true,
      .run = bench_all_gather,
      .expected = expect_gathered,
      .bus = bus_one_way,
      .calls = 1 },
    { .name = "all_to_all",
      .per_rank = true,
      .wide_in = true,
      .wide_out = true,
      .run = bench_all_to_all,
      .expected = expect_all_to_all,
      .bus = bus_one_way,
      .calls = 1 },
    { .name = "barrier", .run = bench_barrier, .bus = bus_once, .calls = 1 },
    { .name = "sendrecv",
      .run = bench_send_receive,
      .expected = expect_partner_value,
      .bus = bus_once,
      .calls = 2 },
};

const struct bench_op *bench_find(const char *name)
{
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        if (strcmp(ops[i].name, name) == 0)
            return &ops[i];
    return NULL;
}

const char *bench_names(void)
{
    return "all_reduce, broadcast, reduce_scatter, all_gather, all_to_all, barrier or "
           "sendrecv";
}

size_t bench_in_count(const struct bench *b)
{
    return b->op->wide_in ? b->count * (size_t)crun_size(b->world) : b->count;
}

size_t bench_out_count(const struct bench *b)
{
    return b->op->wide_out ? b->count * (size_t)crun_size(b->world) : b->count;
}

void bench_fill(const struct bench *b)
{
    int rank = crun_rank(b->world);

    if (b->in != b->out)
        memset(b->out, 0xff, bench_out_count(b) * crun_dtype_size(b->type));
    for (size_t i = 0; i < bench_in_count(b); i++)
        store_value(b->in, i, b->type, rank_value(rank, i, b->reduce));
}

size_t bench_errors(const struct bench *b)
{
    size_t errors = 0;

    for (size_t i = 0; b->op->expected && i < bench_out_count(b); i++) {
        long expected = b->op->expected(b, i);

        if (expected >= 0 && !stored_value_is(b->out, i, b->type, (unsigned)expected))
            errors++;
    }
    return errors;
}
