/* SPDX-License-Identifier: MIT */
#pragma once

#include "launcher/crunctl/ctl_client.h"

/* A command asks the rendezvous that the user named; else a job of this machine, one
 * that runs or one that has ended; else the rendezvous at the usual place. */
int ctl_target_run(const struct ctl_command *command, const struct ctl_options *o,
                   struct err *e);
