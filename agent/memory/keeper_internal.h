/* SPDX-License-Identifier: MIT */
#ifndef AGENT_MEMORY_KEEPER_INTERNAL_H
#define AGENT_MEMORY_KEEPER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "agent/memory/keeper.h"
#include "agent/memory/memory_table.h"

/*
 * Shared by the files of the keeper: keeper.c (the agent's side, and the thread),
 * memory_service.c (the workers' socket), memory_budget.c.
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

struct memory_client;
LIST_HEAD(memory_clients, memory_client);

struct memory_keeper {
    struct memory_keeper_config config;
    struct memory_keeper_callbacks calls;
    char path[64];
    int listener;                      /* for workers */
    struct event *on_first, *on_notes; /* in the agent's loop */
    int epoll, wake, notes_ready;      /* -1: there is no thread yet */
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

/* -- memory_service.c: for the thread ---------------------------------------------- */

void memory_service_accept(struct memory_keeper *k);
void memory_service_ready(struct memory_keeper *k, struct memory_client *c,
                          uint32_t events);
/* Clients that wait for a part are answered, if there is an answer now. */
void memory_service_look(struct memory_keeper *k);
/* At the end of a turn. */
void memory_service_free(struct memory_keeper *k);
void memory_service_close(struct memory_keeper *k);

#endif
