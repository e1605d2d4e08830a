/* SPDX-License-Identifier: MIT */
#pragma once

struct job;

/*
 * Sets the ranks of roles (ROLE_RANK, ROLE_WORLD_SIZE) in job->node[] for the members
 * of the epoch: the workers of one role are numbered in the order of their ranks.
 */
void worker_roles_count(struct job *j);
