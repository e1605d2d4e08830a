/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/id128.h"
#include "rendezvous/common/base/memory_slot.h"

struct key_ring;
struct loop;

/*
 * Keeps the checkpoints that this node's workers have in memory, and copies of those of
 * another node. It has threads of its own, from the first connection on: nothing in the
 * agent's loop waits for it, and a job that never uses it costs a socket or two. All
 * functions and callbacks are for the thread of that loop.
 */
struct memory_keeper;

struct memory_keeper_config {
    struct loop *loop;
    uint32_t workers;
    uint32_t copies;       /* on other nodes: 0 or 1; 0: no port for other agents */
    uint64_t limit;        /* bytes in all; 0: what is free */
    uint64_t copy_rate;    /* bytes a second; 0: any */
    struct key_ring *keys; /* NULL: none. Must outlive the keeper */
};

#define MEMORY_HELD_SIZE 512     /* texts of the held parts, as in memory_table.h */
#define MEMORY_ADDRESS_BYTES 272 /* "HOST:PORT" */

struct memory_keeper_callbacks {
    /* After memory_keeper_end: the parts that are whole and sound. */
    void (*held)(void *arg, const char *text);
    /* Once an epoch, when a worker has restored: from memory, or with step 0. It calls
     * no function of the keeper. */
    void (*restored)(void *arg, uint64_t step);
    /* A line for the user. */
    void (*said)(void *arg, const char *line);
    /* After memory_keeper_flush: 0, and what was done; 1: why not; -1: nothing was to
     * be written. flush 0: at the end. */
    void (*flushed)(void *arg, uint64_t flush, int code, const char *text);
    void *arg;
};

struct memory_keeper *memory_keeper_open(const struct memory_keeper_config *config,
                                         const struct memory_keeper_callbacks *calls,
                                         struct err *e) MUST_CHECK;
/* Ends all transfers. */
void memory_keeper_close(struct memory_keeper *k);

const char *memory_keeper_path(const struct memory_keeper *k); /* CRUN_MEMORY */
uint16_t memory_keeper_port(const struct memory_keeper *k);    /* 0: none */

struct memory_epoch {
    struct id128 job; /* what proves an agent of it to another */
    uint64_t epoch;
    uint32_t first_rank, world; /* the workers here have the ranks from it on */
    struct memory_set restore;  /* world 0: files */
    /* "ADDRESS:PORT" of the agent that keeps copies of their parts, or "" */
    char neighbour[MEMORY_ADDRESS_BYTES];
    /* Agents with parts of what is restored, and which: "ADDRESS:PORT=0-3,6" and then
     * "+" if the shared section is there, separated by spaces; or NULL. */
    const char *holders;
};
void memory_keeper_begin(struct memory_keeper *k, const struct memory_epoch *epoch);
/* No worker lives any more. `held` may be called before this returns. */
void memory_keeper_end(struct memory_keeper *k);
/* The text of the parts that are held. */
void memory_keeper_held(struct memory_keeper *k, char *text, size_t size);

/* For users: nothing is decided by them. */
struct memory_figures {
    uint64_t step;   /* of the newest checkpoint of all workers of this node; 0: none */
    uint64_t copied; /* of the newest of which the neighbour has a copy */
    uint64_t bytes;  /* of memory that all parts here take */
    uint64_t age_ms; /* so long ago `step` was saved */
};
void memory_keeper_figures(struct memory_keeper *k, struct memory_figures *figures);

/* The job is over: have the program's command write this set to files, if it is newer
 * than what they have. `flushed` may be called before this returns. */
void memory_keeper_flush(struct memory_keeper *k, const struct memory_set *set,
                         uint32_t grace_ms);
/*
 * The same while it runs, in two steps. After the first one, what is here and its text
 * stay as they are, but for newer parts that the workers are about to commit. The
 * second one is of a set that is whole on the nodes that have all done the first. A
 * hold ends with it, with the epoch, or by itself. `flush` is not 0.
 */
int memory_keeper_hold(struct memory_keeper *k, char *text, size_t size,
                       struct err *e) MUST_CHECK;
void memory_keeper_flush_held(struct memory_keeper *k, uint64_t flush,
                              const struct memory_set *set);
void memory_keeper_let_go(struct memory_keeper *k);
