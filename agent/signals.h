/* SPDX-License-Identifier: MIT */
#ifndef AGENT_SIGNALS_H
#define AGENT_SIGNALS_H

#include <signal.h>

#include "agent/config.h"

struct loop;

/*
 * The signals that crun takes, from a person or a scheduler: those of
 * --signals-to-handle, and SIGUSR1, by which a scheduler says that this node is to be
 * taken away soon; it is told as SIGTERM, unless it is one of the former.
 */
struct signals {
    sigset_t ignored; /* when crun was started */
    void (*fn)(void *arg, int signo);
    /* SIGUSR1; it may come several times, and other signals after it. */
    void (*preempted)(void *arg);
    void *arg;
};

/* s is to outlive the loop. */
void signals_watch(struct signals *s, struct loop *loop, const struct config *config);

/*
 * Which signal the workers get to end: the one that we got, elsewhere (0) TERM; and
 * TERM as well where the one we got was ignored when crun was started (a shell's job in
 * the background ignores INT), because then it means nothing to the workers either.
 */
int signals_for_workers(const struct signals *s, int signo);

#endif
