/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_CRUNCTL_CTL_WATCH_H
#define LAUNCHER_CRUNCTL_CTL_WATCH_H

#include "launcher/crunctl/ctl_client.h"

/*
 * Runs a command every o->watch_ms, with o->out as the place for its output: on the
 * full screen of a terminal, else one after the other. What is watched may be gone for
 * a while: the error is shown in its place. Returns an exit code.
 */
typedef int ctl_run_fn(const struct ctl_command *command, const struct ctl_options *o,
                       struct err *e);
int ctl_watch(const struct ctl_command *command, const struct ctl_options *o,
              ctl_run_fn *run);

#endif
