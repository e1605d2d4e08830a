/* SPDX-License-Identifier: MIT */
#ifndef AGENT_LOGS_H
#define AGENT_LOGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/config.h"
#include "rendezvous/base/err.h"

struct logs;
struct loop;

/*
 * What the workers write: it takes their two streams from pipes or ptys and brings them
 * to files, to the console with or without a prefix, and to the last 64 KiB of standard
 * error that are kept for the failure report. A worker never blocks, dies or slows down
 * because of a full disk, a blocked terminal or a flood: what cannot be kept is
 * dropped, counted and told.
 */
struct logs_calls {
    /* Both streams of the worker have ended, or were given up on (see logs_drain). */
    void (*ended)(void *arg, uint32_t local_rank);
    void *arg;
};

struct logs *logs_create(struct loop *loop, const struct config *config,
                         const struct logs_calls *calls);
void logs_destroy(struct logs *l); /* NULL is fine; flushes for at most a second */

/* The run's folder <log-dir>/<run-id>_<random>, and `latest-<host>` pointing to it.
 * Made at the first use. NULL with e if it cannot be. */
const char *logs_directory(struct logs *l, struct err *e);

/*
 * Begin attempt `attempt` (the epoch - 1): the folder attempt_<n>/<local_rank> of each
 * worker. Nothing that is there is erased. ranks: global rank of local rank 0.
 */
int logs_begin(struct logs *l, uint64_t attempt, uint32_t first_rank,
               struct err *e) MUST_CHECK;

/*
 * The three descriptors that the worker is to have as 0, 1 and 2, and whether its
 * output is a terminal. They are the caller's to close after the spawn. With
 * pass-through (console is not a terminal, nothing redirected) a worker may be given
 * crun's own.
 */
int logs_open(struct logs *l, uint32_t local_rank, int fd[3], bool *is_tty,
              struct err *e) MUST_CHECK;

/* The worker has exited: its streams must end within grace_ms, whoever holds them. */
void logs_drain(struct logs *l, uint32_t local_rank, uint32_t grace_ms);

/* The last of what it wrote to standard error (or to its terminal): whole lines, at
 * most size - 1 bytes. Returns text. */
char *logs_tail(const struct logs *l, uint32_t local_rank, char *text, size_t size);

/* Path of the worker's error file and of its standard error's file; "" if there is
 * none. */
const char *logs_error_file(const struct logs *l, uint32_t local_rank);
const char *logs_stderr_file(const struct logs *l, uint32_t local_rank);

#endif
