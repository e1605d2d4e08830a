/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/thread.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
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

struct waiting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_set;
};

static void *set_it(void *arg)
{
    struct waiting *w = arg;

    pthread_mutex_lock(&w->lock);
    w->is_set = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

TEST(a_wait_ends_with_the_change_or_in_time)
{
    struct waiting w = { .lock = PTHREAD_MUTEX_INITIALIZER };
    pthread_t thread;
    uint64_t until;

    thread_cond_init(&w.changed);
    pthread_mutex_lock(&w.lock);
    ck_assert(!thread_wait_until(&w.changed, &w.lock, 0));
    for (unsigned ms = 1; ms < 1000; ms *= 30) {
        until = clock_ms() + ms;
        while (thread_wait_until(&w.changed, &w.lock, until))
            ;
        ck_assert_uint_ge(clock_ms(), until);
    }
    ck_assert_int_eq(thread_start(&thread, set_it, &w), 0);
    while (!w.is_set)
        ck_assert(thread_wait_until(&w.changed, &w.lock, UINT64_MAX));
    pthread_mutex_unlock(&w.lock);
    pthread_join(thread, NULL);
    pthread_cond_destroy(&w.changed);
}

/* In a time namespace whose clock_ms is ahead, as after a suspend. */
static int wait_after_suspend(void)
{
    struct waiting w = { .lock = PTHREAD_MUTEX_INITIALIZER };

    alarm(30);
    thread_cond_init(&w.changed);
    pthread_mutex_lock(&w.lock);
    while (thread_wait_until(&w.changed, &w.lock, clock_ms() + 20))
        ;
    return 0;
}

TEST(a_suspend_does_not_make_waits_longer)
{
    const char *ahead = "boottime 100000 0\n";
    int fd = -1, status;
    pid_t child;

    if (unshare(CLONE_NEWTIME) == 0)
        fd = open("/proc/self/timens_offsets", O_WRONLY);
    if (fd < 0 || write(fd, ahead, strlen(ahead)) < 0) {
        printf("skipped: no time namespace here\n");
        return;
    }
    close(fd);
    child = fork();
    if (child == 0)
        _exit(wait_after_suspend());
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
