/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rendezvous/common/base/err.h"

/*
 * The folders of a run's logs, as torchrun makes them:
 *
 *     <log-dir>/<run-id>_<random>/attempt_<n>/<local_rank>/{stdout.log,stderr.log,error.json}
 *     <log-dir>/latest-<host> -> <run-id>_<random>
 *
 * Nothing is erased, unless only some attempts are to be kept. Only the user can read
 * the folders and files, unless another mode is chosen. Without a log-dir, they are in
 * a new folder below TMPDIR (run_tmpdir.h), and empty folders are removed with the run.
 * Below the log-dir no symbolic link is followed.
 */
struct log_dirs;

/* Makes the log folder itself and checks that logs can be created in it. */
int log_dirs_prepare(const char *log_dir, struct err *e) MUST_CHECK;

/* log_dir NULL: a temporary one. The mode is that of files, 0 for the user only; users
 * who can read the files can read the folders too. Returns NULL, and e, if it cannot be
 * made. */
struct log_dirs *log_dirs_create(const char *log_dir, const char *run_id, mode_t mode,
                                 struct err *e);
void log_dirs_destroy(struct log_dirs *d); /* NULL is fine */

/* No worker will follow: in a temporary tree, removes empty folders. */
void log_dirs_remove_empty(struct log_dirs *d); /* NULL is fine */

/* From now on, of its attempts the first and the newest `count` are kept; 0: all. */
void log_dirs_keep(struct log_dirs *d, uint32_t count);
/* The oldest attempt that is not to be kept stays until this call, or the next
 * attempt. NULL is fine. */
void log_dirs_drop_old(struct log_dirs *d);

/* The absolute path of the run's folder. */
const char *log_dirs_path(const struct log_dirs *d);

/* Makes the folders of an attempt, which becomes the current one. */
int log_dirs_begin(struct log_dirs *d, uint64_t attempt, uint32_t workers,
                   struct err *e) MUST_CHECK;

/* A file of the current attempt, of a worker or (LOG_DIRS_NODE) of the node: its path,
 * which the caller frees; and a descriptor to append to, or -1. */
#define LOG_DIRS_NODE UINT32_MAX
char *log_dirs_file_path(const struct log_dirs *d, uint32_t local_rank,
                         const char *name);
int log_dirs_open(const struct log_dirs *d, uint32_t local_rank, const char *name,
                  struct err *e) MUST_CHECK;
/* The folder of such a file, or -1; the caller closes it. */
int log_dirs_folder(const struct log_dirs *d, uint32_t local_rank);
/* Renames a file of that folder to <name>.1, and returns a descriptor of a new one with
 * the mode of the old one and that first line; -1: it cannot. */
int log_dirs_renew(int folder, const char *name, int old, const char *line,
                   size_t size);
