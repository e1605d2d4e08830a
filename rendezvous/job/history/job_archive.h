/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/job/history/job_history.h"
#include "rendezvous/wire/protocol/job_owner.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * The jobs of a rendezvous on disk, each with its history in a small file of its own,
 * STATE_DIR/history/<wall ms of its creation>-<instance>.json: the newest
 * ARCHIVE_JOBS_MAX of them, of ARCHIVE_BYTES_MAX together. A file is replaced as a
 * whole, and survives a kill of its writer. It is not synced: it is for people, and
 * what a power failure tears is left out. What cannot be written is told once, and is
 * no error.
 */
struct job_archive;

struct archived_job {
    char run_id[RUN_ID_MAX + 1];
    struct id128 instance;
    struct job_owner owner;
    uint64_t created_ms, ended_ms; /* wall times; 0: it had not ended */
    uint64_t written_ms;
    size_t size;  /* of its file */
    char *status; /* the body of its JOB_STATUS; NULL: the file is not readable */
    size_t status_size;
};

/* The folder is made if it is missing. NULL: it cannot be used. */
struct job_archive *job_archive_open(const char *state_dir, struct err *e) MUST_CHECK;
void job_archive_close(struct job_archive *a); /* NULL is fine */

/* Its times, its owner, its run id and its instance; the rest is ignored. False: it
 * could not be written. */
bool job_archive_write(struct job_archive *a, const struct archived_job *job,
                       const struct msg_job_status *status,
                       const struct job_history *history);

/* 0 is the newest. */
unsigned job_archive_count(const struct job_archive *a);
const struct archived_job *job_archive_at(const struct job_archive *a, unsigned i);
const struct archived_job *job_archive_find(const struct job_archive *a,
                                            const struct id128 *instance);

/* What its file says of it, with ages as of wall_ms. -1: it is not readable. */
int job_archive_status(const struct archived_job *job, uint64_t wall_ms,
                       struct msg_job_status *status, struct err *e) MUST_CHECK;
/* NULL: it is not readable. The caller owns it. */
struct job_history *job_archive_history(const struct job_archive *a,
                                        const struct archived_job *job,
                                        struct err *e) MUST_CHECK;
