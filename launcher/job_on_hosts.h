/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_JOB_ON_HOSTS_H
#define LAUNCHER_JOB_ON_HOSTS_H

#include "launcher/flags/options.h"

/* -H and the like: this process starts the nodes, and is none. words: the program and
 * its arguments. Returns the exit code. */
int job_on_hosts_run(const struct options *o, char **argv, const char *const *words);

#endif
