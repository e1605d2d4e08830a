/* SPDX-License-Identifier: MIT */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/config.h"

struct loop;
struct failure;
struct signal_sender;
struct msg;

/*
 * The signals that crun handles, from a person or a scheduler: those of
 * --signals-to-handle, and SIGUSR1, with which a scheduler announces that this node
 * will be taken away soon. It is reported as SIGTERM, unless it is one of the former.
 *
 * The action of a signal depends on those before it. The second signal only makes a
 * leaving node hurry, and ends a job still in good order; the third one kills. A
 * scheduler may send one signal twice, to the job and to its step: within two seconds
 * equal signals count as one. SIGINT comes from a person, at any node, and ends the
 * job; the second one kills it, however soon.
 */
enum signal_action {
    SIGNAL_NO_CHANGE,
    SIGNAL_LEAVE,        /* this node leaves in good order */
    SIGNAL_LEAVE_FAST,   /* it waits for no checkpoint; its workers have little time */
    SIGNAL_LEAVE_KILLED, /* its workers are killed */
    SIGNAL_END,          /* the job ends in good order */
    SIGNAL_KILL,         /* the job ends at once */
    SIGNAL_ACTION_COUNT
};

/* "SIGTERM from pid 4711 (slurmstepd)"; LEAVE and END have as much room. */
#define SIGNAL_SENDER_MAX_BYTES 63

struct signals {
    sigset_t ignored;       /* ignored when crun was started */
    bool cannot_leave;      /* this node hosts the rendezvous, and none keeps it */
    bool all_are_preempted; /* it hosts it, and SIGUSR1 is sent to all nodes */
    bool preempted;
    unsigned leaves, ends;     /* how often each was requested */
    uint64_t counted_ms[NSIG]; /* when each signal counted last; 0: never */
    char sender[SIGNAL_SENDER_MAX_BYTES + 1]; /* of the last one, for people */
    pid_t launcher; /* the far side that started this node; 0: none has */
    bool typed;     /* the last one, on our terminal */
    bool announces; /* the last one: SIGUSR1, of a scheduler that takes the node away */
    void (*fn)(void *arg, int signo, enum signal_action action);
    /* SIGTSTP and SIGCONT, if SIGTSTP is not one of --signals-to-handle */
    void (*suspend)(void *arg, int signo);
    void *arg;
};

/* s must outlive the loop. */
void signals_watch(struct signals *s, struct loop *loop, const struct config *config);

/* The action of this signal, which is counted. SIGUSR1 is like any other here. */
enum signal_action signals_action(struct signals *s, int signo, uint64_t now_ms);
/* The same for SIGUSR1 of a scheduler. Several of them count as one. A SIGTERM after it
 * does not hurry a node that leaves; in a job that ends, it ends the wait for the
 * checkpoint. */
enum signal_action signals_action_preempted(struct signals *s);

/* Names a signal and the process that has sent it: "SIGTERM from pid 4711
 * (slurmstepd)", "Ctrl-C". Returns buf. */
char *signals_describe(int signo, const struct signal_sender *sender, char *buf,
                       size_t size);

/* The report of the action for the rendezvous; false if there is none. */
bool signals_report(enum signal_action action, int exit_code, const char *reason,
                    struct msg *m);

/* Whether a worker ended by a signal that a scheduler sends to all processes. */
bool signals_ended(const struct failure *f);

/*
 * The signal that ends the workers: the signal that crun got; TERM if it got none (0),
 * or if it was ignored when crun was started (a shell's background job ignores INT),
 * because then the workers ignore it too.
 */
int signals_for_workers(const struct signals *s, int signo);
