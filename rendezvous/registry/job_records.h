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
 *   SLOT     who had it last: in a snapshot, else the members' PLACE says it
 *   PAST     what troubles a host has made: at each
 */
void record_job(struct journal *j, const struct job *job);
void record_state(struct journal *j, const struct job *job);
void record_failure(struct journal *j, const struct job *job);
void record_node(struct journal *j, const struct job *job, uint32_t index);
void record_place(struct journal *j, const struct job *job, uint32_t index);
void record_drop(struct journal *j, const struct job *job, uint32_t index);
void record_past(struct journal *j, const struct job *job, uint32_t index);
void record_end(struct journal *j, const struct job *job);
/* All of a job, for a snapshot. */
void record_all(struct journal *j, const struct job *job);

/*
 * Apply one record to the list of jobs; in the end record_finish wakes each job's
 * round. -1 if the record makes no sense.
 */
struct record_reader;
struct record_reader *record_reader_create(uint64_t now_ms);
int record_read(void *reader, unsigned type, const void *data, size_t size,
                struct err *e) MUST_CHECK;
/* The jobs, restored; frees the reader. */
struct job *record_reader_finish(struct record_reader *reader);

#endif
