/* SPDX-License-Identifier: MIT */
#include "worker-lib/core/stuck.h"

#include <math.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/thread.h"
#include "worker-lib/crun/worker.h"

#define EXIT_AFTER_S 5
#define EXIT_AFTER_S_MAX 1e9

static _Atomic bool process_is_stuck;

/* $CRUN_STUCK_EXIT; 0: never. */
static double stuck_exit_seconds(void)
{
    const char *text = getenv("CRUN_STUCK_EXIT");
    double seconds = text ? (double)clock_parse_duration(text) / 1000 : -1;

    if (!text || !*text || seconds < 0)
        return EXIT_AFTER_S;
    return fmin(seconds, EXIT_AFTER_S_MAX);
}

static sem_t stuck;

/* The program's threads may wait for the GPU, in calls of CUDA that never return. */
static void *exit_when_stuck(void *arg)
{
    double seconds = stuck_exit_seconds();
    struct timespec left = { .tv_sec = (time_t)seconds };

    while (sem_wait(&stuck) != 0)
        ;
    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) != 0)
        ;
    _exit(CRUN_EXIT_STUCK);
    return arg;
}

static void start_stuck_thread(void)
{
    pthread_t thread;

    sem_init(&stuck, 0, 0);
    if (stuck_exit_seconds() > 0 && thread_start(&thread, exit_when_stuck, NULL) == 0)
        pthread_detach(thread);
}

void stuck_prepare(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, start_stuck_thread);
}

void stuck_set(void)
{
    stuck_prepare();
    if (!atomic_exchange(&process_is_stuck, true))
        sem_post(&stuck);
}

int crun_exit_code(void)
{
    return atomic_load(&process_is_stuck) ? CRUN_EXIT_STUCK : 0;
}
