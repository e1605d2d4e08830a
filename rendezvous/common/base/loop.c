/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/loop.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"

/*
 * libevent's clock stops while the machine is suspended, clock_ms does not. So no timer
 * sleeps longer than this before it reads clock_ms again.
 */
#define NAP_MS_MAX 5000

struct deferred {
    void (*destroy)(void *object);
    void *object;
};

struct turn_end {
    void (*work)(void *arg); /* NULL: removed while the list was walked */
    void *arg;
};

struct signal_handler {
    void (*fn)(void *arg, int signo); /* NULL: none */
    void *arg;
    void (*before)(int);
};

/* What the handlers of signals leave for the loop: libevent's do not tell the sender.
 */
static struct {
    atomic_int wake; /* an eventfd of the loop, or -1 */
    struct {
        atomic_uint count;
        atomic_int code, pid;
        atomic_uint uid;
        atomic_bool was_caught;
    } of[NSIG];
} caught = { .wake = -1 };

struct loop {
    struct event_base *base;
    struct event *wait; /* bounds loop_turn */
    bool stopped;

    struct deferred *deferred;
    size_t deferred_count, deferred_size;

    struct turn_end *turn_end;
    size_t turn_end_count, turn_end_size;

    int signals; /* an eventfd, -1 until there is a handler */
    struct event *signals_event;
    struct signal_handler signal[NSIG];
};

/* Its only purpose is that the event loop returns. */
static void on_wait_over(evutil_socket_t fd, short what, void *arg)
{
}

/* In the context of the signal: atomics and write only. */
static void catch_signal(int signo, siginfo_t *info, void *context)
{
    const uint64_t one = 1;
    int saved_errno = errno, wake;

    /* as the kernel has it: a stop and an order to go on discard each other */
    if (signo == SIGCONT || signo == SIGTSTP)
        atomic_store(&caught.of[SIGCONT + SIGTSTP - signo].count, 0);
    atomic_store(&caught.of[signo].was_caught, true);
    atomic_store(&caught.of[signo].code, info->si_code);
    atomic_store(&caught.of[signo].pid, info->si_pid);
    atomic_store(&caught.of[signo].uid, info->si_uid);
    atomic_fetch_add(&caught.of[signo].count, 1);
    wake = atomic_load(&caught.wake);
    if (wake >= 0)
        (void)!write(wake, &one, sizeof(one));
    errno = saved_errno;
}

static void on_caught(evutil_socket_t fd, short what, void *arg)
{
    struct loop *loop = arg;
    uint64_t times;

    (void)!read(fd, &times, sizeof(times));
    for (int signo = 1; signo < NSIG; signo++) {
        struct signal_handler *h = &loop->signal[signo];

        if (h->fn)
            for (unsigned n = atomic_exchange(&caught.of[signo].count, 0); n > 0; n--)
                h->fn(h->arg, signo);
    }
}

struct signal_sender loop_signal_sender(int signo)
{
    return (struct signal_sender){ .is_process = atomic_load(&caught.of[signo].code) <=
                                                 0,
                                   .pid = atomic_load(&caught.of[signo].pid),
                                   .uid = atomic_load(&caught.of[signo].uid) };
}

bool loop_signal_waits(int signo)
{
    return atomic_load(&caught.of[signo].count) > 0;
}

void loop_die_of_signal(int signo)
{
    struct sigaction now;
    sigset_t blocked;

    if (!atomic_load(&caught.of[signo].was_caught) || getpid() == 1 ||
        sigaction(signo, NULL, &now) < 0 || now.sa_handler == SIG_IGN ||
        sigprocmask(SIG_BLOCK, NULL, &blocked) < 0 || sigismember(&blocked, signo))
        return;
    fflush(NULL);
    signal(signo, SIG_DFL);
    raise(signo);
}

static void *require_event(void *from_libevent)
{
    if (!from_libevent) {
        log_error("cannot make an event loop: %s", strerror(errno));
        abort(); /* no memory, or no descriptor for epoll */
    }
    return from_libevent;
}

struct loop *loop_create(void)
{
    struct loop *loop = xcalloc(1, sizeof(*loop));

    signal(SIGPIPE, SIG_IGN);
    loop->base = require_event(event_base_new());
    loop->signals = -1;
    loop->wait = require_event(evtimer_new(loop->base, on_wait_over, NULL));
    return loop;
}

static void loop_run_turn_end(struct loop *loop)
{
    size_t kept = 0;

    /* by index, and the count is read each time: work may add and remove work */
    for (size_t i = 0; i < loop->turn_end_count; i++)
        if (loop->turn_end[i].work)
            loop->turn_end[i].work(loop->turn_end[i].arg);
    for (size_t i = 0; i < loop->turn_end_count; i++)
        if (loop->turn_end[i].work)
            loop->turn_end[kept++] = loop->turn_end[i];
    loop->turn_end_count = kept;
}

static void loop_run_deferred(struct loop *loop)
{
    /* a destroyed object may defer what it owned, which is destroyed here too */
    for (size_t i = 0; i < loop->deferred_count; i++) {
        struct deferred d = loop->deferred[i];

        d.destroy(d.object);
    }
    loop->deferred_count = 0;
}

static void loop_end_turn(struct loop *loop)
{
    loop_run_turn_end(loop);
    loop_run_deferred(loop);
}

static void loop_forget_signals(struct loop *loop)
{
    int own = loop->signals;

    if (loop->signals < 0)
        return;
    for (int signo = 1; signo < NSIG; signo++)
        if (loop->signal[signo].fn)
            signal(signo, loop->signal[signo].before);
    atomic_compare_exchange_strong(&caught.wake, &own, -1);
    event_free(loop->signals_event);
    close(loop->signals);
}

void loop_destroy(struct loop *loop)
{
    int saved_errno = errno;

    if (!loop)
        return;
    loop_run_deferred(loop);
    loop_forget_signals(loop);
    event_free(loop->wait);
    event_base_free(loop->base);
    free(loop->deferred);
    free(loop->turn_end);
    free(loop);
    errno = saved_errno;
}

struct event_base *loop_base(struct loop *loop)
{
    return loop->base;
}

void loop_run(struct loop *loop)
{
    loop_end_turn(loop);
    while (!loop->stopped) {
        event_base_loop(loop->base, EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY);
        loop_end_turn(loop);
    }
    loop->stopped = false;
}

void loop_stop(struct loop *loop)
{
    loop->stopped = true;
}

void loop_turn(struct loop *loop, uint64_t wait_ms)
{
    struct timeval wait = { .tv_sec = (time_t)(wait_ms / 1000),
                            .tv_usec = (suseconds_t)(wait_ms % 1000 * 1000) };

    loop_end_turn(loop);
    if (wait_ms > 0)
        event_add(loop->wait, &wait);
    event_base_loop(loop->base, wait_ms > 0 ? EVLOOP_ONCE : EVLOOP_NONBLOCK);
    event_del(loop->wait);
    loop_end_turn(loop);
}

void loop_defer(struct loop *loop, void (*destroy)(void *), void *object)
{
    if (loop->deferred_count == loop->deferred_size) {
        loop->deferred_size = loop->deferred_size ? 2 * loop->deferred_size : 16;
        loop->deferred = xrealloc(loop->deferred,
                                  loop->deferred_size * sizeof(*loop->deferred));
    }
    loop->deferred[loop->deferred_count++] = (struct deferred){ destroy, object };
}

void loop_on_turn_end(struct loop *loop, void (*work)(void *), void *arg)
{
    if (loop->turn_end_count == loop->turn_end_size) {
        loop->turn_end_size = loop->turn_end_size ? 2 * loop->turn_end_size : 4;
        loop->turn_end = xrealloc(loop->turn_end,
                                  loop->turn_end_size * sizeof(*loop->turn_end));
    }
    loop->turn_end[loop->turn_end_count++] = (struct turn_end){ work, arg };
}

void loop_off_turn_end(struct loop *loop, void (*work)(void *), void *arg)
{
    for (size_t i = 0; i < loop->turn_end_count; i++)
        if (loop->turn_end[i].work == work && loop->turn_end[i].arg == arg)
            loop->turn_end[i].work = NULL;
}

void loop_on_signal(struct loop *loop, int signo, void (*fn)(void *, int), void *arg)
{
    struct sigaction action = { .sa_sigaction = catch_signal,
                                .sa_flags = SA_SIGINFO | SA_RESTART },
                     before;
    struct signal_handler *h;
    bool is_new;

    assert(signo > 0 && signo < NSIG);
    if (loop->signals < 0) {
        loop->signals = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        loop->signals_event = require_event(
            loop->signals < 0 ? NULL
                              : event_new(loop->base, loop->signals,
                                          EV_READ | EV_PERSIST, on_caught, loop));
        event_add(loop->signals_event, NULL);
    }
    h = &loop->signal[signo];
    is_new = !h->fn;
    h->fn = fn;
    h->arg = arg;
    if (!is_new)
        return;
    atomic_store(&caught.wake, loop->signals);
    atomic_store(&caught.of[signo].count, 0);
    sigfillset(&action.sa_mask);
    sigaction(signo, &action, &before);
    h->before = before.sa_handler;
}

/* Sleep until about at_ms: libevent's clock is coarse, and on_timer looks again. */
static void loop_timer_sleep(struct loop_timer *t, uint64_t now_ms)
{
    uint64_t nap_ms = t->at_ms > now_ms ? t->at_ms - now_ms : 0;
    struct timeval nap;

    if (nap_ms > NAP_MS_MAX)
        nap_ms = NAP_MS_MAX;
    nap.tv_sec = (time_t)(nap_ms / 1000);
    nap.tv_usec = (suseconds_t)(nap_ms % 1000 * 1000);
    event_add(t->event, &nap);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct loop_timer *t = arg;
    uint64_t now_ms = clock_ms();

    if (now_ms < t->at_ms) {
        loop_timer_sleep(t, now_ms);
        return;
    }
    t->armed = false;
    t->fn(t->arg); /* last: it may arm, finish or free the timer */
}

void loop_timer_init(struct loop_timer *t, struct loop *loop, void (*fn)(void *),
                     void *arg)
{
    *t = (struct loop_timer){ .fn = fn, .arg = arg };
    t->event = require_event(evtimer_new(loop->base, on_timer, t));
}

void loop_timer_fini(struct loop_timer *t)
{
    if (t->event)
        event_free(t->event);
    *t = (struct loop_timer){ 0 };
}

void loop_timer_arm(struct loop_timer *t, uint64_t at_ms)
{
    /* it is armed for that time already: needs no system call and no clock */
    if (t->armed && t->at_ms == at_ms)
        return;
    t->armed = true;
    t->at_ms = at_ms;
    loop_timer_sleep(t, clock_ms());
}

void loop_timer_cancel(struct loop_timer *t)
{
    if (!t->armed)
        return;
    t->armed = false;
    event_del(t->event);
}
