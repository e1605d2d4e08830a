/* SPDX-License-Identifier: MIT */
#include <stddef.h>
#include <stdio.h>

#include "launcher/crunctl/ctl_client.h"

/* crunctl stop: end a job on all its nodes. */
static int cmd_stop_run(struct ctl_client *c, const struct ctl_options *o,
                        const char *word, struct err *e)
{
    struct msg m = { .type = MSG_STOP_JOB, .stop_job = { .now = o->now } };

    ctl_client_user(m.stop_job.user, sizeof(m.stop_job.user));
    snprintf(m.stop_job.run_id, sizeof(m.stop_job.run_id), "%s",
             o->run_id ? o->run_id : "");
    return ctl_client_order(c, &m, e);
}

static const struct opt table[] = {
    { .name = "now",
      .help = "Without giving the workers time to finish.",
      .set = opt_set_true,
      .offset = offsetof(struct ctl_options, now) },
    CTL_COMMON_FLAGS,
    { .name = NULL },
};

const struct ctl_command ctl_stop = {
    .name = "stop",
    .takes_job = true,
    .summary = "end a job on all its nodes",
    .table = table,
    .access = ACCESS_OPERATE,
    .run = cmd_stop_run,
};
