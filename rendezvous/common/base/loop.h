/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct event_base;
struct loop;

/*
 * The event loop of a program: libevent, with turns, deferred frees and timers. A turn
 * is one pass over everything that was ready. A callback never frees what may be in use
 * further up its stack: it defers that to the end of the turn.
 */
struct loop *loop_create(void);
void loop_destroy(struct loop *loop); /* NULL is fine */
struct event_base *loop_base(struct loop *loop);

/*
 * Run turns until loop_stop. Work for the end of a turn that has come up since the last
 * one is done before the first wait.
 */
void loop_run(struct loop *loop);
void loop_stop(struct loop *loop);
/* One turn that waits at most wait_ms. For tests and for short foreground waits. */
void loop_turn(struct loop *loop, uint64_t wait_ms);

/* Call destroy(object) when this turn's callbacks and end-of-turn work are done. */
void loop_defer(struct loop *loop, void (*destroy)(void *object), void *object);

/*
 * Work for the end of every turn, in the order in which it was added: for actions that
 * many callbacks of one turn need once (sync the journal, then flush connections).
 */
void loop_on_turn_end(struct loop *loop, void (*work)(void *arg), void *arg);
void loop_off_turn_end(struct loop *loop, void (*work)(void *arg), void *arg);

/* SIGPIPE is ignored from loop_create on. One handler for each signal, in one loop of
 * the process. */
void loop_on_signal(struct loop *loop, int signo, void (*fn)(void *arg, int signo),
                    void *arg);

/* The sender of a signal, for its handler: of the last one, if several came. */
struct signal_sender {
    bool is_process; /* else the kernel, such as for a key of the terminal */
    pid_t pid;       /* 0: in another pid namespace */
    uid_t uid;
};
struct signal_sender loop_signal_sender(int signo);

/* It came, and its handler has not run yet. */
bool loop_signal_waits(int signo);

/* For the end of a program, without a loop: dies of the signal if a loop has handled
 * it, as a shell wants it of a program that Ctrl-C has ended. Returns as process 1,
 * which cannot, and where the signal was ignored or blocked at the start. */
void loop_die_of_signal(int signo);

/* A one-shot timer, to be embedded.
 * loop_timer_fini comes before its memory is freed. */
struct loop_timer {
    struct event *event;
    void (*fn)(void *arg);
    void *arg;
    bool armed;
    uint64_t at_ms;
};

void loop_timer_init(struct loop_timer *t, struct loop *loop, void (*fn)(void *arg),
                     void *arg);
void loop_timer_fini(struct loop_timer *t);
/* Fire at clock_ms() >= at_ms; arming again moves it. */
void loop_timer_arm(struct loop_timer *t, uint64_t at_ms);
void loop_timer_cancel(struct loop_timer *t);
