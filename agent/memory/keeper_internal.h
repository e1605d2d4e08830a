/* SPDX-License-Identifier: MIT */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "agent/memory/keeper.h"
#include "agent/memory/memory_table.h"

/*
 * Shared by the files of the keeper: keeper.c (what the agent calls),
 * memory_for_workers.c (the workers' socket), memory_for_agents.c (the port for other
 * agents), memory_copier.c (copies for the neighbour), memory_fetcher.c (parts of
 * others), memory_flush.c (the end). The first two run in the agent's loop and never
 * wait, the others in threads.
 */
struct event;

enum memory_thread {
    MEMORY_PEER,
    MEMORY_COPIER,
    MEMORY_FETCHER,
    MEMORY_FLUSHER,
    MEMORY_VERIFIER,
    MEMORY_THREADS
};

/* What a thread has for the agent's loop. */
struct memory_note {
    STAILQ_ENTRY(memory_note) entry;
    enum { NOTE_VERIFIED, NOTE_FETCHED, NOTE_SAID, NOTE_FLUSHED } kind;
    int code;
    uint64_t flush; /* FLUSHED: which; 0: that of the end */
    char text[MEMORY_HELD_SIZE];
};

struct memory_keeper {
    struct memory_keeper_config config;
    struct memory_keeper_callbacks calls;
    char path[64];
    uint16_t port;
    int listener, port_listener, notes_ready; /* -1: none */
    struct event *on_worker, *on_peer, *on_notes;
    LIST_HEAD(memory_clients, memory_client) clients;

    pthread_mutex_t notes_lock;
    STAILQ_HEAD(memory_notes, memory_note) notes;

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    struct memory_table table;
    struct memory_epoch now; /* the epoch that runs, or did */
    atomic_bool stop;
    bool runs, restored /* was told */;
    bool can_hold;          /* all workers of the epoch */
    uint64_t held_until_ms; /* without a flush; 0: nothing is held */
    uint64_t flush;         /* the one for which parts are read; 0: none */
    pid_t flush_child;      /* its command; 0: none */
    char command[MEMORY_COMMAND_BYTES];
    uint64_t copy_again_ms; /* the neighbour could not be reached: not before then */
    LIST_HEAD(memory_links, memory_link) links;
    unsigned threads[MEMORY_THREADS];
    char *holders; /* of `now` */
    struct memory_want *want;
    size_t want_count;
};

/* Have the agent's loop call back. With the lock or without. */
void memory_keeper_note(struct memory_keeper *k, struct memory_note note);
void memory_keeper_say(struct memory_keeper *k, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* A thread of its own, if there are not too many of its kind. With the lock, as `run`
 * returns, so that nothing comes to be done between its last look and its end. */
int memory_keeper_spawn(struct memory_keeper *k, enum memory_thread kind,
                        void (*run)(void *), void *arg) MUST_CHECK;
/* The file becomes at least so long, if there is memory for it. With the lock. */
int memory_keeper_grow(struct memory_keeper *k, struct memory_file *f, uint64_t bytes,
                       struct err *e) MUST_CHECK;
struct id128 memory_keeper_job(struct memory_keeper *k);

/* -- memory_for_workers.c
 * -------------------------------------------------------------- */

void memory_for_workers_accept(struct memory_keeper *k);
/* Clients that wait for a part are answered, if there is an answer now. */
void memory_for_workers_look(struct memory_keeper *k);
void memory_for_workers_close(struct memory_keeper *k);

/* -- memory_for_agents.c
 * ---------------------------------------------------------------- */

/* The port for other agents of the job: takes their copies, and gives what is here. */
void memory_for_agents_accept(struct memory_keeper *k);

/* -- memory_copier.c --------------------------------------------------------------- */

/* Begins an epoch: its neighbour gets what the workers commit, and is asked what it has
 * already. With the lock. */
void memory_copier_begin(struct memory_keeper *k);

/* -- memory_fetcher.c: parts of the set to restore. With the lock -------------------
 */

/* Begins an epoch: fetches the parts that the workers restore and that are not here. */
void memory_fetcher_begin(struct memory_keeper *k);
/* Fetches a part that is not here; a note tells of the end. False: why it cannot be
 * fetched. */
bool memory_fetcher_want(struct memory_keeper *k, uint32_t rank, bool shared,
                         const char **why);

/* -- memory_verify.c --------------------------------------------------------------- */

/* A thread: the newest part of each worker is whole, or dropped. */
void memory_verify(void *keeper);

/* -- memory_flush.c ---------------------------------------------------------------- */

/* Runs the program's command with what is here of that set, unless files have it. A
 * note tells the result. flush 0: at the end, for grace_ms. False: it does not begin.
 */
bool memory_flush_start(struct memory_keeper *k, const struct memory_set *set,
                        uint64_t number, uint32_t grace_ms);
/* Nothing is held any more, and the command that reads it ends. With the lock. */
void memory_flush_let_go(struct memory_keeper *k);
