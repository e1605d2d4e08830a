/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/thread.h"

#include <signal.h>
#include <stdbool.h>

#include "tests/worlds/check_main.h"

static void *read_mask(void *arg)
{
    pthread_sigmask(SIG_SETMASK, NULL, arg);
    return arg;
}

TEST(a_thread_gets_no_signals_and_its_creator_gets_them_again)
{
    sigset_t before, after, inside;
    pthread_t thread;
    void *result;

    sigemptyset(&before);
    sigaddset(&before, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    ck_assert_int_eq(thread_start(&thread, read_mask, &inside), 0);
    ck_assert_int_eq(pthread_join(thread, &result), 0);
    ck_assert_ptr_eq(result, &inside);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    ck_assert(sigismember(&after, SIGUSR1));
    ck_assert(!sigismember(&after, SIGTERM));
    ck_assert(sigismember(&inside, SIGTERM));
    ck_assert(sigismember(&inside, SIGINT));
    ck_assert(sigismember(&inside, SIGCHLD));
}
