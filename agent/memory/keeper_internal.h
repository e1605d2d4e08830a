/* SPDX-License-Identifier: MIT */
#ifndef AGENT_MEMORY_KEEPER_INTERNAL_H
#define AGENT_MEMORY_KEEPER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "agent/memory/keeper.h"
#include "agent/memory/memory_table.h"

/*
 * Shared by the files of the keeper: keeper.c (the agent's side, and the thread),
 * memory_service.c (the workers' socket), memory_peers.c (the port for other agents),
 * memory_copier.c (copies for the neighbour), memory_fetcher.c (parts of others),
 * memory_flush.c (the end).
 */
struct event;

/* What a callback tells the agent's loop. */
enum memory_note_kind { NOTE_HELD, NOTE_RESTORED, NOTE_SAID, NOTE_FLUSHED };

struct memory_note {
    STAILQ_ENTRY(memory_note) entry;
    enum memory_note_kind kind;
    uint64_t step;
    enum memory_source from;
    int code;
    char text[MEMORY_HELD_SIZE];
};

#define MEMORY_ADDRESS_BYTES 272 /* "HOST:PORT" */

struct memory_client;
struct memory_holder;
struct memory_link;
struct memory_want;
LIST_HEAD(memory_links, memory_link);
LIST_HEAD(memory_clients, memory_client);

struct memory_keeper {
    struct memory_keeper_config config;
    struct memory_keeper_callbacks calls;
    char path[64];
    int listener, port_listener; /* for workers, and other agents; -1: none */
    uint16_t port;
    struct event *on_first, *on_first_peer, *on_notes; /* in the agent's loop */
    int epoll, wake, notes_ready;                      /* -1: there is no thread yet */
    pthread_t thread;
    bool started, has_thread;
    struct memory_clients clients, closed; /* of the thread alone, as their number */
    unsigned client_count;

    pthread_mutex_t notes_lock;
    STAILQ_HEAD(memory_notes, memory_note) notes;

    pthread_mutex_t lock; /* of all below */
    struct memory_table table;
    struct id128 instance;
    bool stop, ending, runs; /* an epoch runs */
    uint64_t epoch;
    uint32_t first_rank, world;
    struct memory_set restore;
    bool restored; /* was told */
    char command[MEMORY_COMMAND_BYTES];
    char neighbour[MEMORY_ADDRESS_BYTES]; /* "": none */
    uint64_t copy_again_ms;               /* it could not be reached: not before then */
    struct memory_links links;
    unsigned peers, copiers, fetchers, flushers; /* threads, beside the keeper's own */
    pthread_cond_t changed; /* their number, parts, or the neighbour */
    struct memory_holder *holder;
    size_t holder_count;
    bool holders_used, set_has_shared; /* by the epoch that runs; as the holders tell */
    struct memory_want *want;
    size_t want_count;
    char fetched_from[MEMORY_ADDRESS_BYTES];
};

/* Have the agent's loop call back. Any thread may call, with the lock or without. */
void memory_keeper_note(struct memory_keeper *k, struct memory_note note);
void memory_keeper_say(struct memory_keeper *k, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Wakes the thread up: what it waits for may have come. */
void memory_keeper_wake(struct memory_keeper *k);

/* Adds fd to what the thread waits for. */
int memory_keeper_watch(struct memory_keeper *k, int fd, void *ptr, uint32_t events);
/* Whether so many more bytes may be taken. With the lock. */
int memory_keeper_grant(struct memory_keeper *k, uint64_t more,
                        struct err *e) MUST_CHECK;

/* A thread of its own, if there are not `max` in *count. With the lock. */
int memory_keeper_spawn(struct memory_keeper *k, unsigned *count, unsigned max,
                        void *(*run)(void *), void *arg) MUST_CHECK;
/* Its last call: with the lock, which it gives back. */
void memory_keeper_leave(struct memory_keeper *k, unsigned *count);
/* A transfer that has used the file is over. */
void memory_keeper_release(struct memory_keeper *k, struct memory_file *f);
struct id128 memory_keeper_job(struct memory_keeper *k);
bool memory_keeper_stops(struct memory_keeper *k);

/* -- memory_service.c: for the thread ---------------------------------------------- */

void memory_service_accept(struct memory_keeper *k);
void memory_service_ready(struct memory_keeper *k, struct memory_client *c,
                          uint32_t events);
/* Clients that wait for a part are answered, if there is an answer now. */
void memory_service_look(struct memory_keeper *k);
/* At the end of a turn. */
void memory_service_free(struct memory_keeper *k);
void memory_service_close(struct memory_keeper *k);

/* -- memory_peers.c ---------------------------------------------------------------- */

/* The port for other agents of the job: takes their copies, and gives what is here.
 * Each connection has a thread. */
void memory_peers_accept(struct memory_keeper *k);

/* -- memory_copier.c --------------------------------------------------------------- */

/* A thread that sends what the workers commit to the neighbour, once there is one. With
 * the lock, which its work does not hold. */
void memory_copier_start(struct memory_keeper *k);

/* -- memory_fetcher.c -------------------------------------------------------------- */

/*
 * Gets parts of the set to restore from the agents that hold them. All with the lock.
 */

/* An agent that holds these ranks: "0-3", and "+" if it has the shared section. */
void memory_fetcher_add_holder(struct memory_keeper *k, const char *address,
                               const char *held);
/* Begins an epoch: fetches the parts that the workers restore and that are not here. */
void memory_fetcher_begin(struct memory_keeper *k);
/* Fetches a part that is not here, and wakes the keeper's thread up at the end. Any
 * status but MEMORY_OK: why it cannot be fetched. */
enum memory_status memory_fetcher_want(struct memory_keeper *k, uint32_t rank,
                                       bool shared, const char **why);
void memory_fetcher_fini(struct memory_keeper *k);

/* -- memory_flush.c ---------------------------------------------------------------- */

/* Runs the program's command with what is here of that set, unless files have it, in a
 * thread of its own. A note tells the result. */
void memory_flush_start(struct memory_keeper *k, const struct memory_set *set,
                        uint32_t grace_ms);

#endif
