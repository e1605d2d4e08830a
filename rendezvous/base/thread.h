/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_BASE_THREAD_H
#define RENDEZVOUS_BASE_THREAD_H

#include <pthread.h>

/*
 * Start a thread that gets no signals: another thread handles them, or the program that
 * uses the library. Returns 0 or an errno value.
 */
int thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

#endif
