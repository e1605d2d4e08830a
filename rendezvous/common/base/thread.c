/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/thread.h"

#include <time.h>

#include "rendezvous/common/base/clock.h"

void thread_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

bool thread_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ms)
{
    uint64_t now = clock_ms(), left = until_ms > now ? until_ms - now : 0;
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(left % 1000) * 1000000;
    until.tv_sec += (time_t)(left / 1000) + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return pthread_cond_timedwait(c, lock, &until) == 0;
}
