/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/memory/keeper.h"
#include "rendezvous/common/base/loop.h"

/* Agents with a keeper each, in one loop, and workers on real sockets. */
#define MEMORY_PATIENCE_MS 60000

struct memory_agent {
    struct memory_keeper *keeper;
    struct memory_keeper_config config;
    struct id128 job;
    char holders[512]; /* of the next epoch */
    char held[MEMORY_HELD_SIZE], said[MEMORY_HELD_SIZE], flushed[MEMORY_HELD_SIZE];
    unsigned held_count, said_count, restored_count, flushed_count;
    uint64_t step, flush;
    int code;
};

struct memory_worker {
    int fd;
    int slot[MEMORY_SLOTS];
    uint32_t rank;
    struct memory_answer hello;
};

/* The loop, once. */
struct loop *memory_world(void);
void memory_world_end(void);
/* Turns until *count is at least that. */
void memory_until(const unsigned *count, unsigned wanted);

void memory_agent_open(struct memory_agent *a, uint32_t workers, uint32_t copies);
void memory_agent_close(struct memory_agent *a);
/* An epoch whose ranks begin with first_rank, of `world`. */
void memory_agent_begin(struct memory_agent *a, uint64_t epoch, uint32_t first_rank,
                        uint32_t world, const struct memory_set *restore,
                        const struct memory_agent *neighbour);
/* Ends it and returns what is held. */
const char *memory_agent_end(struct memory_agent *a);

/* Sends the question and turns the loop until the answer is there. False: the
 * connection was closed. */
bool memory_ask(struct memory_worker *w, const struct memory_ask *ask,
                struct memory_answer *answer, int *fds);
int memory_dial(const struct memory_agent *a);
void memory_worker_open(struct memory_worker *w, const struct memory_agent *a,
                        uint64_t epoch, uint32_t local_rank, uint32_t rank);
void memory_worker_close(struct memory_worker *w);
/* Writes a part whose bytes the set and the rank decide, and commits it. */
void memory_worker_save(struct memory_worker *w, uint32_t slot,
                        const struct memory_set *set, size_t own, size_t shared);
/* Whether fd has that part, with the right bytes. */
bool memory_is_part(int fd, const struct memory_set *set, uint32_t rank, size_t own,
                    size_t shared);
/* Asks for a part of the restore set: a descriptor, or -1. */
int memory_worker_open_part(struct memory_worker *w, uint32_t rank, bool shared);
/* header.kept, as the worker sees it. */
bool memory_worker_is_kept(const struct memory_worker *w, uint32_t slot);
