/* SPDX-License-Identifier: MIT */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Start a thread that gets no signals: another thread handles them, or the program that
 * uses the library. Returns 0 or an errno value.
 */
static inline int thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    int errnum;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    errnum = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return errnum;
}

/* A condition for thread_wait_until. */
void thread_cond_init(pthread_cond_t *c);
/* With the lock. False: it is until_ms of clock_ms, which counts a suspend, as no clock
 * of a condition does. */
bool thread_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ms);
