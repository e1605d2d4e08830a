/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_REMOTE_DETACHED_JOB_H
#define LAUNCHER_REMOTE_DETACHED_JOB_H

#include <stdio.h>

#include "rendezvous/base/err.h"

struct detached_job;
struct key;

/*
 * What --detach leaves for the user: a key file for crunctl, beside the user's own key,
 * with a key derived from the job's that can watch, stop and drain it, and no more.
 */
struct detached_job *detached_job_create(const char *run_id, const struct key *key,
                                         struct err *e) MUST_CHECK;
/* The first one is shown: ssh connected to it, so this machine reaches it. */
void detached_job_set_endpoints(struct detached_job *d, const char *endpoints);
/* How to look at the job. */
void detached_job_print(const struct detached_job *d, FILE *out);
/* It does not run: removes the file. */
void detached_job_forget(struct detached_job *d);
void detached_job_destroy(struct detached_job *d); /* NULL is fine */

#endif
