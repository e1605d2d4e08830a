/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_DRYRUN_H
#define LAUNCHER_DRYRUN_H

#include <stdio.h>

#include "agent/config/config.h"

/*
 * What this node would start, if all nodes had as many workers and all of them came:
 * for each rank the environment that crun adds to base, and the command line. As a
 * shell would read it.
 */
void dryrun_print(const struct config *config, const char *const *base, FILE *out);

#endif
