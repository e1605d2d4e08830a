/* SPDX-License-Identifier: MIT */
#ifndef AGENT_LOGS_LOG_DIRS_H
#define AGENT_LOGS_LOG_DIRS_H

#include <stdint.h>

#include "rendezvous/base/err.h"

/*
 * The folders of a run's logs, as torchrun has them:
 *
 *     <log-dir>/<run-id>_<random>/attempt_<n>/<local_rank>/{stdout.log,stderr.log,error.json}
 *     <log-dir>/latest-<host> -> <run-id>_<random>
 *
 * Nothing that is there is erased. Without a log-dir it is a fresh one below TMPDIR
 * (run_tmpdir.h), and the folders into which nothing was written go with the run. Below
 * the log-dir no symbolic link is followed.
 */
struct log_dirs;

/* Whether a tree can be made there, as far as it can be known before: the folder itself
 * is made. */
int log_dirs_prepare(const char *log_dir, struct err *e) MUST_CHECK;

/* log_dir NULL: a temporary one. NULL with e if it cannot be made. */
struct log_dirs *log_dirs_create(const char *log_dir, const char *run_id,
                                 struct err *e);
void log_dirs_destroy(struct log_dirs *t); /* NULL is fine */

/* No worker comes any more: of a temporary tree, what stayed empty goes already now. */
void log_dirs_clear(struct log_dirs *t); /* NULL is fine */

/* Absolute. */
const char *log_dirs_path(const struct log_dirs *t);

/* The folders of an attempt, which is the current one from now on. */
int log_dirs_begin(struct log_dirs *t, uint64_t attempt, uint32_t workers,
                   struct err *e) MUST_CHECK;

/* A file of the current attempt, of a worker or (LOG_DIRS_NODE) of the node: its path,
 * which the caller frees; and open to append to, or -1. */
#define LOG_DIRS_NODE UINT32_MAX
char *log_dirs_file_path(const struct log_dirs *t, uint32_t local_rank,
                         const char *name);
int log_dirs_open(const struct log_dirs *t, uint32_t local_rank, const char *name,
                  struct err *e) MUST_CHECK;

#endif
