/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "launcher/flags/options.h"
#include "rendezvous/common/base/err.h"
#include "rendezvous/common/environment/scheduler.h"

/* The shell of a Slurm job starts the nodes itself: its flags give a node's place. */
bool srun_is_left_to_script(const struct options *o, const struct scheduler_node *n);
/* The shell of a job of several nodes, or one that is on none of them: crun is started
 * by srun. */
bool srun_is_needed(const struct scheduler_node *n);

/*
 * Starts this program on each of the nodes of the Slurm job that it is in: executes
 * srun with the same arguments, argv[1..]. Returns only with an error, or if it is to
 * print the command and no more.
 */
int srun_start(const char *source, uint32_t nodes, char **argv, bool print_only,
               struct err *e) MUST_CHECK;
