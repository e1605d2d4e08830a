/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_COMMON_BASE_THREAD_H
#define RENDEZVOUS_COMMON_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

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

#endif
