/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdio.h>

#include "launcher/crunctl/ui/terminal.h"
#include "rendezvous/show/views/job_view.h"

/* All of them: how many are in which state, each job with its nodes, and those that
 * have ended in a table: all, or beside jobs that run, the newest few. */
void job_views_print(const struct job_views *v, bool all, const struct terminal *t,
                     FILE *out);

/* One job, in full. */
void job_view_print(const struct job_view *job, const struct terminal *t, FILE *out);

/* Nodes of a job that runs in step are heard from at different times. The step that all
 * of them may have; 0: they differ by more than that. */
uint64_t job_view_common_step(const struct job_view *job);

enum text_style job_state_style(const char *state); /* of a job or a node */

/* "12 s ago, ran for 4.1 s, exit code 1: why". Returns buf. */
char *job_view_describe_end(const struct job_view *job, char *buf, size_t size);
