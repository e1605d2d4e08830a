/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/fakes/cuda/emulated_kernels.h"
#include "tests/worlds/check_main.h"

/* Functions that the tests of the emulated GPU share. */
#define PATIENCE_US 10000000
#define WAIT_UNTIL(what)                                                               \
    do {                                                                               \
        for (int us = 0; !(what) && us < PATIENCE_US; us += 1000)                      \
            usleep(1000);                                                              \
        ck_assert_msg(what, "%s does not become true", #what);                         \
    } while (0)

static inline void expect_code(cudaError_t code, cudaError_t wanted)
{
    ck_assert_msg(code == wanted, "%s, not %s", cudaGetErrorName(code),
                  cudaGetErrorName(wanted));
}

static inline void must_do(cudaError_t code)
{
    expect_code(code, cudaSuccess);
}

static inline cudaStream_t make_queue(void)
{
    cudaStream_t s;

    must_do(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

static inline cudaEvent_t make_mark(void)
{
    cudaEvent_t e;

    must_do(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    return e;
}

static inline int *make_ints(size_t count)
{
    void *memory;

    must_do(cudaMalloc(&memory, count * sizeof(int)));
    return memory;
}

static inline void put_int(int *to, int value)
{
    must_do(cudaMemcpyAsync(to, &value, sizeof(value), cudaMemcpyDefault, NULL));
    must_do(cudaStreamSynchronize(NULL));
}

static inline int read_int(const int *from)
{
    int value;

    must_do(cudaMemcpyAsync(&value, from, sizeof(value), cudaMemcpyDefault, NULL));
    return value;
}

static inline int *make_zero(void)
{
    int *i = make_ints(1);

    put_int(i, 0);
    return i;
}

/* A kernel that waits for the test, then reads a number and adds to it. */
struct waiter {
    int *number;
    _Atomic int begun, runs, seen, released;
    _Atomic bool open, blind, stopped;
};

static inline void run_waiter(void *arg)
{
    struct waiter *w = arg;
    int *there;

    atomic_fetch_add(&w->begun, 1);
    if (w->number) {
        there = cuda_emulated_view(w->number);
        atomic_store(&w->blind, !there);
        atomic_store(&w->seen, there ? *there : -1);
    }
    while (!atomic_load(&w->open) && !cuda_emulated_stopped())
        usleep(500);
    atomic_store(&w->stopped, !atomic_load(&w->open));
    atomic_fetch_add(&w->runs, 1);
}

static inline void release_waiter(void *arg)
{
    atomic_fetch_add(&((struct waiter *)arg)->released, 1);
}

static inline void queue_waiter(cudaStream_t s, struct waiter *w)
{
    must_do(cuda_emulated_queue_waiting(s, run_waiter, release_waiter, w));
}
