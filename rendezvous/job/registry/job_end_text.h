/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/job/registry/job.h"

/* What people read of a job's failures and of its end. */

/* "rank 5 on a100-04 exited with code 85". Returns buf. */
char *job_describe_failure(const struct failure *f, char *buf, size_t size);
/* Notes what ends the job, unless it ends already. */
void job_set_ended_by(struct job *j, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* What that is. The journal does not keep it. */
const char *job_ended_by_text(const struct job *job);
/* Why its epoch stops, for the logs of the agents. */
const char *job_stop_text(const struct job *job);

/* Adds lines about ranks to the failure of an epoch that hung, if there is room. */
void job_add_hang_line(struct job *j, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds a line to the failures that followed, if there is room; the events have all. */
void job_add_afterwards(struct job *job, const struct failure *f);

/* Sets job->text: the root cause, again after it has changed. */
void job_set_failure_text(struct job *job);
/* Sets job->text: the result. */
void job_set_result_text(struct job *job);
/* Sets job->change: the nodes for which a planned stop is made. */
void job_set_change_text(struct job *job);
