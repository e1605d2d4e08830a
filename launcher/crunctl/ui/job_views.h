/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_CRUNCTL_UI_JOB_VIEWS_H
#define LAUNCHER_CRUNCTL_UI_JOB_VIEWS_H

#include <stdio.h>

#include "launcher/crunctl/ui/terminal.h"
#include "rendezvous/show/views/job_view.h"

/* All of them: how many are in which state, each job with its nodes, and those that
 * have ended in a table. */
void job_views_print(const struct job_views *v, const struct terminal *t, FILE *out);

/* One job, in full. */
void job_view_print(const struct job_view *job, const struct terminal *t, FILE *out);

#endif
