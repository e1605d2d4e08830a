/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/guard/fence.h"
#include "rendezvous/common/base/err.h"

struct loop;
struct guard;
struct progress_store;
struct status_pages;

/*
 * The agent's handle on its guard: a small process, forked before the agent has any
 * thread, that is the parent of the workers. It starts and signals them, reaps
 * orphans below it, and ends them all when the agent is gone. It has no network and
 * makes no decisions. (guard_main.h is the guard itself, guard_wire.h its messages.)
 */
struct guard_exit {
    uint32_t local_rank;
    pid_t pid;
    int status;         /* as waitpid gives it */
    bool out_of_memory; /* killed for lack of memory, if the cgroup reports it */
    uint64_t at_ms;     /* clock_ms */
};

struct guard_worker_calls {
    void (*started)(void *arg, uint32_t local_rank, pid_t pid);
    /* The program could not be executed: errnum, and in `what` the call that failed.
     * The exit is reported too. */
    void (*exec_failed)(void *arg, uint32_t local_rank, int errnum, const char *what);
    void (*exited)(void *arg, const struct guard_exit *exit);
    /* guard_sweep has ended a process of that name and session. */
    void (*leftover)(void *arg, pid_t session, const char *name);
    /* No worker and no descendant of a worker is left alive. */
    void (*empty)(void *arg);
    void *arg;
};

/* About the template (guard_template); not called unless one is started. */
struct guard_template_calls {
    void (*ready)(void *arg, pid_t pid);
    /* fault: why the guard has ended it, or NULL; status: as waitpid gives it. */
    void (*ended)(void *arg, int status, const char *fault);
    /* The program could not be executed, as in guard_worker_calls; ended follows. */
    void (*exec_failed)(void *arg, int errnum, const char *what);
    /* A worker was forked from it, or was not: why. */
    void (*warm)(void *arg, uint32_t local_rank);
    void (*cold)(void *arg, uint32_t local_rank, const char *why);
    void *arg;
};

struct guard_calls {
    struct guard_worker_calls workers;
    struct guard_template_calls template;
    /* The fence has passed: the workers are being ended, and none can be started. */
    void (*fenced)(void *arg);
    /* The guard has died, and its workers with it. No other call follows. */
    void (*died)(void *arg, const char *why);
    void *arg;
};

struct guard_spawn {
    uint32_t local_rank;
    const char *const *argv; /* argv[0] is the path of the file to execute */
    const char *const *env;
    int fd[3];        /* become 0, 1 and 2; the caller keeps and closes its own */
    bool is_tty;      /* fd[1] or fd[2] is a pty: it becomes the controlling one */
    const void *cpus; /* cpu_set_t to run on, or NULL: the one of crun */
    size_t cpus_size;
    int numa_node; /* allocate memory on this node only; -1: anywhere */
};

/*
 * Starts a guard, with a status page for each of that many workers. Call it first
 * before the agent changes anything that workers inherit from crun: rlimits, umask,
 * affinity, ignored signals. (A worker never inherits ignored SIGPIPE or SIGCHLD.)
 * After died and guard_stop another guard may be started; it gets the ignored signals
 * and the limit of open files of the first.
 *
 * From here on the guard module owns SIGCHLD and all children of the agent.
 * CRUN_NO_CGROUP=1 turns cgroups off.
 */
/* Guards that are started later, and their workers, ignore the signal. */
void guard_ignore_signal(int signo);

struct guard *guard_start(struct loop *loop, const struct guard_calls *calls,
                          uint32_t workers, struct err *e) MUST_CHECK;

/* Requests a worker: started, perhaps exec_failed, and exited follow. If no process
 * could be made (`what` is "clone" or "receive") started does not follow, and pid is
 * 0. */
int guard_spawn(struct guard *g, const struct guard_spawn *spawn,
                struct err *e) MUST_CHECK;

/*
 * Starts a template: a process that imports what the workers need, so that they can be
 * forked from it (guard_template.h has its protocol). Workers that are requested before
 * the first one is ready wait for it; while a later one is not ready, and after any
 * fault, workers start without it. There is at most one at a time.
 */
struct guard_template {
    const char *const *argv; /* the workers', as far as they have it in common */
    const char *const *env;
    int fd[3];          /* as in guard_spawn */
    uint32_t ready_ms;  /* for its imports, from one message to the next */
    uint32_t answer_ms; /* for a fork */
};

int guard_start_template(struct guard *g, const struct guard_template *template,
                         struct err *e) MUST_CHECK;

/* Sends signo to the process of that worker alone; or (GUARD_ALL) to the process group
 * of each worker that has not exited (the others are left to guard_sweep), and CONT
 * after a signal that asks for an end. */
#define GUARD_ALL UINT32_MAX
void guard_signal(struct guard *g, uint32_t local_rank, int signo);
/* Kills every worker and every descendant until none is left; then calls empty. */
void guard_kill(struct guard *g);
/* Kills a guard that does not answer: died follows. */
void guard_force(struct guard *g);
/* Within died: true, and e set, if some processes cannot be killed; else e is empty. */
bool guard_has_leftovers(const struct guard *g, struct err *e);
/* After the last exit: calls empty when nothing is left, perhaps before this returns.
 * Leftovers get TERM after term_delay_ms, and KILL after further grace_ms. Of several
 * calls only the last one is answered. */
void guard_sweep(struct guard *g, uint32_t term_delay_ms, uint32_t grace_ms);

/* Sets until when the workers may live if no later fence is set. Sent at every
 * heartbeat. */
void guard_fence(struct guard *g, const struct fence_terms *terms);

/* How the workers are contained: "cgroup"; "session+warden" (a session each, and a
 * reaper, see orphan_reaper.h) without cgroups; "session" if the cgroup turned out to
 * take no workers, so that there is no reaper either. */
const char *guard_containment(const struct guard *g);
pid_t guard_pid(const struct guard *g);
/* The tag in the environment of all processes that the workers start (launch_lock.h);
 * "": none. */
const char *guard_launch_tag(const struct guard *g);
/* Valid until guard_stop; may hold no page. */
const struct status_pages *guard_pages(const struct guard *g);

/* As status_pages_set_store. */
void guard_set_store(struct guard *g, const struct progress_store *store);

/* Lets the guard end and ignores it from here on; guard_stop waits for its end. */
void guard_disconnect(struct guard *g); /* NULL is fine */
/* Ends the guard and waits for that; workers still alive are killed. May be called in a
 * callback. */
void guard_stop(struct guard *g); /* NULL is fine */
