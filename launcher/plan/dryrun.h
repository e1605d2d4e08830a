/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdio.h>

#include "agent/config.h"

/*
 * Prints the processes that this node would start, if all nodes joined with as many
 * workers: for each rank the environment that crun adds to base, and the command line,
 * in the syntax of a shell.
 */
void dryrun_print(const struct config *config, const char *const *base, FILE *out);
