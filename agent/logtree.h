/* SPDX-License-Identifier: MIT */
#ifndef AGENT_LOGTREE_H
#define AGENT_LOGTREE_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/base/err.h"

/*
 * The folders of a run's logs, as torchrun has them:
 *
 *     <log-dir>/<run-id>_<random>/attempt_<n>/<local_rank>/{stdout.log,stderr.log,error.json}
 *     <log-dir>/latest-<host> -> <run-id>_<random>
 *
 * Nothing that is there is erased. Below the log-dir no symbolic link is followed.
 *
 * Without a log-dir it is a fresh one below TMPDIR, "crun_XXXXXX", and the folders into
 * which nothing was written go with the run. As most runs write nothing, and making and
 * removing a folder for each worker takes as long as a good part of a launch, a worker
 * has one there only if it has a log; else its error file is attempt_<n>/error_<local
 * rank>.json.
 */
struct logtree;

/* log_dir NULL: a temporary one. NULL with e if it cannot be made. */
struct logtree *logtree_create(const char *log_dir, const char *run_id, struct err *e);
void logtree_destroy(struct logtree *t); /* NULL is fine */

/* Absolute. */
const char *logtree_path(const struct logtree *t);

/* The folder of an attempt, which is the current one from now on, and those of workers
 * where not even a temporary tree can do without: wants_log[local rank]. */
int logtree_begin(struct logtree *t, uint64_t attempt, uint32_t workers,
                  const bool *wants_log, struct err *e) MUST_CHECK;

/* Where a worker may leave its error; the caller frees. */
char *logtree_error_path(const struct logtree *t, uint32_t local_rank);

/* A file of the current attempt, of a worker or (LOGTREE_NODE) of the node: its path,
 * which the caller frees; and open to append to, or -1. */
#define LOGTREE_NODE UINT32_MAX
char *logtree_file_path(const struct logtree *t, uint32_t local_rank, const char *name);
int logtree_open(const struct logtree *t, uint32_t local_rank, const char *name,
                 struct err *e) MUST_CHECK;

#endif
