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
struct logtree;

/* Whether a tree can be made there, as far as it can be known before: the folder itself
 * is made. */
int logtree_prepare(const char *log_dir, struct err *e) MUST_CHECK;

/* log_dir NULL: a temporary one. NULL with e if it cannot be made. */
struct logtree *logtree_create(const char *log_dir, const char *run_id, struct err *e);
void logtree_destroy(struct logtree *t); /* NULL is fine */

/* No worker comes any more: of a temporary tree, what stayed empty goes already now. */
void logtree_clear(struct logtree *t); /* NULL is fine */

/* Absolute. */
const char *logtree_path(const struct logtree *t);

/* The folders of an attempt, which is the current one from now on. */
int logtree_begin(struct logtree *t, uint64_t attempt, uint32_t workers,
                  struct err *e) MUST_CHECK;

/* A file of the current attempt, of a worker or (LOGTREE_NODE) of the node: its path,
 * which the caller frees; and open to append to, or -1. */
#define LOGTREE_NODE UINT32_MAX
char *logtree_file_path(const struct logtree *t, uint32_t local_rank, const char *name);
int logtree_open(const struct logtree *t, uint32_t local_rank, const char *name,
                 struct err *e) MUST_CHECK;

#endif
