/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_REGISTRY_JOB_RECORDS_H
#define RENDEZVOUS_REGISTRY_JOB_RECORDS_H

#include "rendezvous/base/err.h"
#include "rendezvous/registry/job.h"

struct journal;

/*
 * Jobs as journal records, and back. A record holds the whole of what it is about, so
 * that the last one of its kind wins:
 *
 *   JOB      run id, configuration, instance, when: at creation
 *   STATE    epoch, state, budget, result, store: at every change
 *   FAILURE  the root cause and what followed: when it is known
 *   NODE     who it is: at joining
 *   PLACE    its state and slot: at every change
 *   DROP     the node is gone
 *   END      the job is forgotten
 *   SLOT     who had it last: in a snapshot alone, otherwise the PLACE of a member says
 * it PAST     what troubles a host has made: at each
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
