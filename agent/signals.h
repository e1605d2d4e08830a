/* SPDX-License-Identifier: MIT */
#ifndef AGENT_SIGNALS_H
#define AGENT_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

#include "agent/config/config.h"

struct loop;
struct msg;

/*
 * The signals that crun takes, from a person or a scheduler: those of
 * --signals-to-handle, and SIGUSR1, by which a scheduler says that this node is to be
 * taken away soon; it is told as SIGTERM, unless it is one of the former.
 *
 * What one asks for hangs on those before it. Schedulers signal twice as a matter of
 * course, so that a node which leaves is only told to hurry, and the job goes on, and
 * one that ends its job by it still ends it in good order: the third one kills. SIGINT
 * is a person's, at any node, and ends the job; the second one kills it.
 */
enum signal_wish {
    SIGNAL_NOTHING_NEW,
    SIGNAL_LEAVE, /* this node leaves in good order */
    SIGNAL_HURRY, /* and waits for no checkpoint; its workers have little time */
    SIGNAL_GO,    /* and they are killed */
    SIGNAL_END,   /* the job ends in good order */
    SIGNAL_KILL,  /* and at once */
    SIGNAL_WISH_COUNT
};

struct signals {
    sigset_t ignored; /* when crun was started */
    bool stays;       /* this node cannot leave: the rendezvous is here */
    bool preempted;
    unsigned leaves, ends; /* so many times asked for */
    void (*fn)(void *arg, int signo, enum signal_wish wish);
    void *arg;
};

/* s is to outlive the loop. */
void signals_watch(struct signals *s, struct loop *loop, const struct config *config);

/* What this one asks for, and from then on it has come; SIGUSR1 here is any other. */
enum signal_wish signals_wish(struct signals *s, int signo);
/* The same for the SIGUSR1 of a scheduler. It may come several times, and SIGTERM after
 * it, all of which is one wish. */
enum signal_wish signals_wish_preempted(struct signals *s);

/* How the rendezvous is told; false where it need not be. */
bool signals_report(enum signal_wish wish, int exit_code, const char *reason,
                    struct msg *m);

/*
 * Which signal the workers get to end: the one that we got, elsewhere (0) TERM; and
 * TERM as well where the one we got was ignored when crun was started (a shell's job in
 * the background ignores INT), because then it means nothing to the workers either.
 */
int signals_for_workers(const struct signals *s, int signo);

#endif
