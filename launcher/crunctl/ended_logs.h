/* SPDX-License-Identifier: MIT */
#pragma once

#include "launcher/crunctl/ctl_client.h"

/* crunctl logs of a job of this machine that has ended: the log files of its last
 * attempt here. Returns an exit code, with e. */
int ended_logs_show(const struct ctl_options *o, const struct ctl_job *job,
                    struct err *e);
