/* SPDX-License-Identifier: MIT */
/* Which failures end the job, whatever restarts are left: by their exit code. */
#include "agent/workers/failure.h"

#include <stdlib.h>

#include "rendezvous/job/registry/exit_code.h"

/* The list contains exit codes in the form of crun's own: "2,137". */
bool failure_is_final(const struct failure *f, const struct job_config *job)
{
    const char *at = job->no_restart_on;

    if (f->kind != FAILURE_EXIT && f->kind != FAILURE_SIGNAL)
        return false;
    if (job_exit_code(f) == EXIT_CODE_FINAL)
        return true;
    while (*at) {
        char *end;

        if (strtol(at, &end, 10) == job_exit_code(f))
            return true;
        at = *end ? end + 1 : end;
    }
    return false;
}
