/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/base/err.h"
#include "rendezvous/job/registry/job.h"

struct journal;

/*
 * Jobs as journal records, and back. A record holds everything about its subject, so
 * that the last one of a kind counts. None of them lets its reader take the place of a
 * node: there is only a digest of an incarnation.
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
 *   RENDEZVOUS  its id, and the number of its newest event; about no job
 *   CLAIM    who has been first of a pair (witness_claims.h); about no job here
 *   ENDED_BY  what ended the job ("stopped by crunctl"); follows each STATE once known
 *   OWNER    the key file or the user that a job belongs to: when it is made
 *
 * Without a journal nothing is kept.
 */
void job_records_put_job(struct journal *j, const struct job *job);
void job_records_put_state(struct journal *j, const struct job *job);
void job_records_put_failure(struct journal *j, const struct job *job);
void job_records_put_node(struct journal *j, const struct job *job, uint32_t index);
void job_records_put_place(struct journal *j, const struct job *job, uint32_t index);
void job_records_put_drop(struct journal *j, const struct job *job, uint32_t index);
void job_records_put_past(struct journal *j, const struct job *job, uint32_t index);
void job_records_put_end(struct journal *j, const struct job *job);
void job_records_put_rendezvous(struct journal *j, const struct id128 *id,
                                uint64_t last_event);
struct pair_claim;
void job_records_put_claim(struct journal *j, const struct pair_claim *c);
/* What is known of hosts whose nodes may be gone. */
void job_records_put_hosts(struct journal *j, const struct job *job);
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
/* The id of the rendezvous; zero: it is in no record. */
struct id128 job_records_reader_rendezvous(const struct job_records_reader *reader,
                                           uint64_t *last_event);
struct claims;
void job_records_reader_move_claims(struct job_records_reader *reader,
                                    struct claims *to);
/* Writes what was read with the fewest records, which mean the same; frees the reader.
 */
void job_records_reader_dump(struct job_records_reader *reader, struct journal *to);
/* The jobs, restored; frees the reader. */
struct job *job_records_reader_finish(struct job_records_reader *reader);
