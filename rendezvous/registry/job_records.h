/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_REGISTRY_JOB_RECORDS_H
#define RENDEZVOUS_REGISTRY_JOB_RECORDS_H

#include "rendezvous/base/err.h"
#include "rendezvous/registry/job.h"

struct journal;

/*
 * Jobs as journal records, and back. A record holds everything about its subject, so
 * that the last one of a kind counts:
 *
 *   JOB      run id, configuration, instance, time: when a job is made
 *   STATE    epoch, state, budget, result, store: at every change
 *   FAILURE  the root cause and what followed: when it is known
 *   NODE     host, addresses, pid: when a node joins
 *   PLACE    state and slot of a node: at every change
 *   DROP     a node is gone
 *   END      a job is forgotten
 *   SLOT     the last holder of a slot: in a snapshot; otherwise PLACE contains it
 *   PAST     the troubles of a host: at each
 *   OWNER    the key file or the user that a job belongs to: when it is made
 */
void job_records_put_job(struct journal *j, const struct job *job);
void job_records_put_state(struct journal *j, const struct job *job);
void job_records_put_failure(struct journal *j, const struct job *job);
void job_records_put_node(struct journal *j, const struct job *job, uint32_t index);
void job_records_put_place(struct journal *j, const struct job *job, uint32_t index);
void job_records_put_drop(struct journal *j, const struct job *job, uint32_t index);
void job_records_put_past(struct journal *j, const struct job *job, uint32_t index);
void job_records_put_end(struct journal *j, const struct job *job);
/* All of a job, for a snapshot. */
void job_records_put_all(struct journal *j, const struct job *job);

/*
 * Apply one record to the list of jobs; in the end job_records_reader_finish restores
 * the membership of each job. -1: the record makes no sense.
 */
struct job_records_reader;
struct job_records_reader *job_records_reader_create(uint64_t now_ms);
int job_records_read(void *reader, unsigned type, const void *data, size_t size,
                     struct err *e) MUST_CHECK;
/* The jobs, restored; frees the reader. */
struct job *job_records_reader_finish(struct job_records_reader *reader);

#endif
