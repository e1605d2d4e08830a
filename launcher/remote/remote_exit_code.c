/* SPDX-License-Identifier: MIT */
#include "launcher/remote/remote_internal.h"

#include <sysexits.h>

/* Node rank 0's, which is the job's, unless another one has lost output; of a job that
 * has lost node rank 0, that of the others. */
int remote_exit_code(const struct remote *r)
{
    bool lost_output = false;
    int worst = 0;

    if (r->code >= 0)
        return r->code;
    if (r->has_lost)
        return EX_UNAVAILABLE;
    for (size_t i = 0; i < r->count; i++) {
        int code = r->host[i].state == HOST_EXITED ? r->host[i].code : 0;

        worst = code > worst ? code : worst;
        lost_output |= code == EX_IOERR;
    }
    if (r->first && r->first->state == HOST_EXITED)
        return r->first->code == 0 && lost_output ? EX_IOERR : r->first->code;
    return worst;
}
