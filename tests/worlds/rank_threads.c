/* SPDX-License-Identifier: MIT */
#include "tests/worlds/rank_threads.h"

#include <check.h>
#include <pthread.h>

struct rank_thread {
    unsigned rank;
    rank_thread_fn *fn;
    void *arg;
    pthread_t thread;
};

/* Unlike one in shared memory, a thread sanitizer sees it. */
static pthread_barrier_t barrier;

void rank_threads_sync(void)
{
    pthread_barrier_wait(&barrier);
}

static void *rank_thread_main(void *arg)
{
    struct rank_thread *t = arg;

    t->fn(t->rank, t->arg);
    return NULL;
}

void rank_threads_run(unsigned size, rank_thread_fn *fn, void *arg)
{
    struct rank_thread t[RANK_THREADS_MAX];

    ck_assert_uint_le(size, RANK_THREADS_MAX);
    pthread_barrier_init(&barrier, NULL, size);
    for (unsigned r = 0; r < size; r++) {
        t[r] = (struct rank_thread){ .rank = r, .fn = fn, .arg = arg };
        ck_assert_int_eq(pthread_create(&t[r].thread, NULL, rank_thread_main, &t[r]),
                         0);
    }
    for (unsigned r = 0; r < size; r++)
        pthread_join(t[r].thread, NULL);
    pthread_barrier_destroy(&barrier);
}
