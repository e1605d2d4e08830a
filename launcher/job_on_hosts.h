/* SPDX-License-Identifier: MIT */
#pragma once

#include "launcher/flags/options.h"

/* -H and the like: this process starts the nodes, and is none. words: the program and
 * its arguments. Returns the exit code. */
int job_on_hosts_run(const struct options *o, char **argv, const char *const *words);
