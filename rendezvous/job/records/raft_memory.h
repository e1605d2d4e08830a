/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <raft.h>

/*
 * What libraft calls to keep its state: in memory, where a process that starts again is
 * a new server with a new id, so that nothing has to outlive it; or on a disk too. The
 * library keeps the entries itself. It expects an answer to each request after its call
 * has returned: answers wait until raft_memory_answer.
 */
struct raft_disk;
struct raft_memory_answer;

struct raft_memory {
    struct raft_io io;      /* io.impl is this */
    struct raft_disk *disk; /* NULL: none */
    uint64_t now_ms;        /* of the call under way */
    uint64_t ahead_ms;      /* its clock is ahead by this: see raft_memory_skip */
    uint64_t random;
    raft_io_tick_cb tick;
    raft_io_recv_cb receive;
    struct raft_buffer first;       /* the entry of raft_bootstrap */
    struct raft_snapshot *snapshot; /* the newest, or NULL */
    STAILQ_HEAD(, raft_memory_answer) answers;
    void (*send)(void *arg, const struct raft_message *m);
    void *arg;
};

void raft_memory_init(struct raft_memory *m, struct raft_disk *disk, uint64_t seed,
                      void (*send)(void *arg, const struct raft_message *m), void *arg);
/* After raft_close. */
void raft_memory_fini(struct raft_memory *m);

/* Gives one answer that waits. False: none does. */
bool raft_memory_answer(struct raft_memory *m);
/* To the library, so much time has passed at once. */
void raft_memory_skip(struct raft_memory *m, uint64_t ms);
