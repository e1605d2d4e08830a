/* SPDX-License-Identifier: MIT */
#pragma once

#include "tests/worlds/check_main.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#include "worker-lib/crun/worker.h"

/*
 * A world whose ranks are threads of the test, in place of the library's own: a test
 * that the Makefile links with it has no backend and no engine. A collective is done
 * when it is launched, so that ranks which launch in different orders are noticed at
 * once, and the test can look at what was launched.
 */
#define STUB_RANKS_MAX 8
#define STUB_LAUNCHES_MAX 256

struct stub_launch {
    const char *what;
    const void *in;
    size_t count;
    bool waited;
};

/* What the ranks of one world share. */
struct stub_ranks {
    int size;
    const void *in[STUB_RANKS_MAX];
    struct stub_launch now[STUB_RANKS_MAX];
    _Atomic unsigned came; /* to collectives, all ranks together */
};

struct device_ops;

struct crun_world {
    int rank;
    struct stub_ranks *ranks;
    struct stub_launch launch[STUB_LAUNCHES_MAX];
    unsigned launches;
    unsigned calls; /* of the reducer and the optimizers; a group is one */
    const struct device_ops *device; /* NULL: device_cpu */
    int fail_after;                  /* so many more launches, if not 0 */
    useconds_t takes_us;             /* each collective, when all are there */
    _Atomic bool ended;              /* by another rank, which no call has noticed */
};

typedef void world_stub_fn(crun_world *w, void *arg);

/* Call fn in a thread for each rank. */
void world_stub_run(int size, world_stub_fn *fn, void *arg);

/* A test of that name: what follows is run by each of `size` ranks, which it knows as
 * w; in a loop, for each number _i below `count`. */
#define STUB_RANKS_TEST(name, size) STUB_RANKS_LOOP(name, 1, size)
#define STUB_RANKS_LOOP(name, count, size)                                             \
    static void name##_rank(crun_world *w, void *arg);                                 \
    TEST_LOOP(name, 0, count)                                                          \
    {                                                                                  \
        world_stub_run(size, name##_rank, NULL);                                       \
    }                                                                                  \
    static void name##_rank(crun_world *w, void *arg)
