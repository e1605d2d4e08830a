/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rendezvous/job/registry/job.h"

/*
 * Which nodes belong together. Jobs without --rdzv-id all have the run id "none", and
 * meet where they use the default port. So the nodes also say their user and their
 * batch job, and nodes of two jobs are not merged.
 *
 * All of it is only what a node says of itself: it protects against mistakes. A key
 * protects against others.
 */
/* Whether a node with `theirs` may be of that job. If not, why is what differs: "this
 * node is of user bob". same_key: the node has shown the key of the job. */
bool job_identity_admits(const struct job *job, const struct job_config *theirs,
                         bool same_key, char *why, size_t size);

/* job "26.0" (train.py) of user alice, Slurm job 26, started 14:03:22. Returns buf. */
char *job_identity_describe(const struct job *job, char *buf, size_t size);
