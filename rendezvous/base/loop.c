/* SPDX-License-Identifier: MIT */
#include "rendezvous/base/loop.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/xalloc.h"

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
    struct event *event;
    void (*fn)(void *arg, int signo);
    void *arg;
};

struct loop {
    struct event_base *base;
    struct event *wait; /* bounds loop_turn */
    bool stopped;

    struct deferred *deferred;
    size_t deferred_count, deferred_size;

    struct turn_end *turn_end;
    size_t turn_end_count, turn_end_size;

    struct signal_handler signal[NSIG];
};

/* Its only purpose is that the event loop returns. */
static void on_wait_over(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
}

static void on_signal(evutil_socket_t signo, short what, void *arg)
{
    struct loop *loop = arg;
    struct signal_handler *h = &loop->signal[signo];

    (void)what;
    h->fn(h->arg, (int)signo);
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

void loop_destroy(struct loop *loop)
{
    int saved_errno = errno;

    if (!loop)
        return;
    loop_run_deferred(loop);
    for (size_t i = 0; i < NSIG; i++)
        if (loop->signal[i].event)
            event_free(loop->signal[i].event);
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
    struct signal_handler *h;

    assert(signo > 0 && signo < NSIG);
    h = &loop->signal[signo];
    h->fn = fn;
    h->arg = arg;
    if (!h->event) {
        h->event = require_event(evsignal_new(loop->base, signo, on_signal, loop));
        event_add(h->event, NULL);
    }
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

    (void)fd;
    (void)what;
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
