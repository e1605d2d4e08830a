/* SPDX-License-Identifier: MIT */
#pragma once

#include "launcher/flags/options.h"

/* Runs the node of this machine, or has srun start all nodes of a Slurm job. words: the
 * program and its arguments. Returns the exit code. */
int job_here_run(struct options *o, char **argv, const char *const *words);
