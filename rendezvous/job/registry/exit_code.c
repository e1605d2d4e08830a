/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/registry/exit_code.h"

#include <stdlib.h>

int job_exit_code(const struct failure *f)
{
    if (f->kind == FAILURE_EXIT && f->code >= 1 && f->code <= 255)
        return f->code;
    if (f->kind == FAILURE_SIGNAL && f->code >= 1 && f->code <= 127)
        return 128 + f->code;
    return 1;
}

int done_exit_code(const struct msg_done *done)
{
    bool is_fine = done->reason == JOB_REASON_SUCCESS ||
                   done->reason == JOB_REASON_RELEASED;

    if (done->exit_code >= 1 && done->exit_code <= 255)
        return done->exit_code;
    return done->exit_code == 0 && is_fine ? EXIT_SUCCESS : EXIT_FAILURE;
}
