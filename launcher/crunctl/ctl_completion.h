/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_CRUNCTL_CTL_COMPLETION_H
#define LAUNCHER_CRUNCTL_CTL_COMPLETION_H

#include <stddef.h>
#include <stdio.h>

#include "launcher/crunctl/ctl_client.h"

/* Answers what a shell asks for its completions: commands, flags, the names of this
 * machine's jobs, and of their nodes. */
void ctl_complete(const struct opt *first_flags,
                  const struct ctl_command *const *commands, char *const *words,
                  size_t count, FILE *out);

#endif
