/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/show/views/job_view.h"

/*
 * The jobs that crunctl shows: as a rendezvous tells of them, or from the records of
 * this machine. What is asked returns an exit code (ctl_client.h).
 */
struct ctl_client;
struct ctl_job;
struct ctl_jobs;

#define CTL_LOCAL_ANSWER_MS 1000 /* of all cruns here together: one may be stopped */

/* One job with its nodes; or one that is over, with its history. */
int ctl_views_ask_job(struct ctl_client *c, const char *run_id, struct job_views *v,
                      struct err *e) MUST_CHECK;
/* The history of a job that was asked. */
int ctl_views_ask_history(struct ctl_client *c, struct job_view *job,
                          struct err *e) MUST_CHECK;
/* All jobs; with_past: also those that are over. Jobs of `local` are left out, which
 * may be NULL. */
int ctl_views_ask_all(struct ctl_client *c, const struct ctl_jobs *local,
                      bool with_past, struct job_views *v, struct err *e) MUST_CHECK;

/* A job of this machine that has ended. */
void ctl_views_add_ended(struct job_views *v, const struct ctl_job *job);
/* One that runs, by its crun, which has been greeted; c may be NULL. */
void ctl_views_ask_running(struct job_views *v, struct ctl_client *c,
                           const struct ctl_job *job, uint64_t until_ms);
