/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"

/*
 * Starts this program on each of the nodes of the Slurm job that it is in: executes
 * srun with the same arguments, argv[1..]. Returns only with an error, or if it is to
 * print the command and no more.
 */
int srun_start(const char *source, uint32_t nodes, char **argv, bool print_only,
               struct err *e) MUST_CHECK;
