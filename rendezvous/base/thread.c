/* SPDX-License-Identifier: MIT */
#include "rendezvous/base/thread.h"

#include <signal.h>

int thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    int errnum;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    errnum = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return errnum;
}
