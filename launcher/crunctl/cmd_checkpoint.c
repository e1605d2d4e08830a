/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "launcher/crunctl/ctl_client.h"

#define WRITTEN_MS 3700000 /* more than the rendezvous waits */

/* crunctl checkpoint: have the newest step that is in memory written to files. */
static int cmd_checkpoint_run(struct ctl_client *c, const struct ctl_options *o,
                              const char *word, struct err *e)
{
    struct msg m = { .type = MSG_FLUSH_JOB };

    if (!ctl_client_welcome(c)->flush) {
        err_set(e,
                "the rendezvous of the job is older than this crunctl, and writes no "
                "checkpoints");
        return CTL_EXIT_REFUSED;
    }
    snprintf(m.flush_job.run_id, sizeof(m.flush_job.run_id), "%s",
             o->run_id ? o->run_id : "");
    ctl_client_set_timeout(c, WRITTEN_MS);
    return ctl_client_order(c, &m, e);
}

static const struct opt table[] = {
    CTL_COMMON_FLAGS,
    { .name = NULL },
};

const struct ctl_command ctl_checkpoint = {
    .name = "checkpoint",
    .takes_job = true,
    .summary = "write the newest step in memory to files",
    .table = table,
    .access = ACCESS_OPERATE,
    .run = cmd_checkpoint_run,
};
