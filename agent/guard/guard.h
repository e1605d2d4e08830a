/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GUARD_GUARD_H
#define AGENT_GUARD_GUARD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/guard/fence.h"
#include "rendezvous/base/err.h"

struct loop;
struct guard;
struct status_pages;

/*
 * The agent's handle on its guard: a small process, started by exec before the agent
 * has any thread, that is the parent of the workers. It starts and signals them, reaps
 * whatever is orphaned below it, and ends them all when the agent is gone. No network,
 * no policy. (guard_main.h is the guard itself, guard_wire.h what the two say.)
 */
struct guard_exit {
    uint32_t local_rank;
    pid_t pid;
    int status;         /* as waitpid gives it */
    bool out_of_memory; /* the kernel's doing, where a cgroup tells */
    uint64_t at_ms;     /* clock_ms */
};

struct guard_worker_calls {
    void (*started)(void *arg, uint32_t local_rank, pid_t pid);
    /* The program could not be executed: errnum, and in `what` which call failed. An
     * exit follows all the same. */
    void (*exec_failed)(void *arg, uint32_t local_rank, int errnum, const char *what);
    void (*exited)(void *arg, const struct guard_exit *exit);
    /* No worker and no descendant of one is left alive. */
    void (*empty)(void *arg);
    void *arg;
};

struct guard_calls {
    struct guard_worker_calls workers;
    /* The fence has passed: the workers are being ended, and none is started. */
    void (*fenced)(void *arg);
    /* The guard itself has died; its workers have died with it. Last. */
    void (*died)(void *arg, const char *why);
    void *arg;
};

struct guard_spawn {
    uint32_t local_rank;
    const char *const *argv; /* argv[0] is the file to execute, found already */
    const char *const *env;
    int fd[3];        /* become 0, 1 and 2; still the caller's */
    bool is_tty;      /* fd[1] or fd[2] is a pty: it becomes the controlling one */
    const void *cpus; /* cpu_set_t to run on, or NULL: as crun was started */
    size_t cpus_size;
    int numa_node; /* memory of this node only; -1: anywhere */
};

/*
 * Start it, with a status page for each of so many workers, at first before the agent
 * changes anything of its own that the workers are to have as crun was started with:
 * rlimits, umask, affinity, ignored signals. (SIGPIPE and SIGCHLD are never ignored in
 * a worker.) After died and guard_stop another one may be started; it finds the ignored
 * signals and the limit of open files as the first did.
 *
 * From here on SIGCHLD of the agent and its children are the guard's: the agent may
 * have no other child that it waits for. CRUN_NO_CGROUP=1 leaves cgroups alone.
 */
struct guard *guard_start(struct loop *loop, const struct guard_calls *calls,
                          uint32_t workers, struct err *e) MUST_CHECK;

/* Ask for a worker; started, perhaps exec_failed, and exited come later. Where there
 * was no process at all (what is "clone" or "receive") started does not, and pid is 0.
 */
int guard_spawn(struct guard *g, const struct guard_spawn *spawn,
                struct err *e) MUST_CHECK;

/* Sends signo to the process group of each worker that has not exited (the others are
 * left to guard_sweep); CONT follows a signal that asks for an end. */
void guard_signal_all(struct guard *g, int signo);
/* Sends signo to the process of that worker alone. */
void guard_signal_worker(struct guard *g, uint32_t local_rank, int signo);
/* KILL every worker and every descendant, until none is left: then empty is called. */
void guard_kill(struct guard *g);
/* End the guard itself, which does not answer: died follows. */
void guard_force(struct guard *g);
/* In died: whether something cannot be killed, and lives on; e is set, else emptied. */
bool guard_left_behind(const struct guard *g, struct err *e);
/* After the last exit: is anything left? empty is called when not, perhaps before this
 * returns; leftovers get TERM, and KILL after grace_ms. Of several questions only the
 * last one is answered. */
void guard_sweep(struct guard *g, uint32_t grace_ms);

/* Until when the workers may live if nothing more is said; once at every heartbeat. */
void guard_fence(struct guard *g, const struct fence_terms *terms);

/* How strong the containment is: "cgroup"; "session+warden" where there can be none; or
 * "session" if that turned out as the first workers came, and no warden stands by. */
const char *guard_containment(const struct guard *g);
pid_t guard_pid(const struct guard *g);
/* What all that the workers start is known by, see launch_lock.h; "": nothing. */
const char *guard_launch(const struct guard *g);
/* Until guard_stop; perhaps none. */
const struct status_pages *guard_pages(const struct guard *g);

/* It may end, and is heard of no more: guard_stop is left to wait for it. */
void guard_let_go(struct guard *g); /* NULL is fine */
/* End it and wait for it; workers still alive are killed. A callback may do this. */
void guard_stop(struct guard *g); /* NULL is fine */

#endif
