/* SPDX-License-Identifier: MIT */
#include "worker-lib/engine/world_failure.h"

static void notify_failure(struct world_failure *f)
{
    if (!atomic_exchange(&f->notified, true))
        f->failed(f->arg);
}

void world_failure_abort(struct world_failure *f, crun_status s, const char *reason,
                         bool quiet)
{
    abort_set(f->aborted, s, reason);
    f->backend->calls->abort(f->backend);
    if (!quiet)
        notify_failure(f);
}

crun_status world_failure_error(struct world_failure *f, struct err *e)
{
    crun_status s = abort_error(f->aborted, e);

    if (atomic_load(&f->has_details))
        *e = f->details;
    notify_failure(f); /* the word may have been set in a signal handler */
    return s;
}

crun_status world_failure_settle(struct world_failure *f, crun_status s, struct err *e)
{
    bool is_reason;

    if (s == CRUN_OK || s == CRUN_BAD_ARGUMENT || s == CRUN_UNSUPPORTED)
        return s;
    is_reason = abort_set_error(f->aborted, s, e) || e->code == ERROR_ABORTED;
    f->backend->calls->abort(f->backend);
    notify_failure(f);
    if (abort_get(f->aborted) == CRUN_OK) /* it is being set by another thread */
        return s;
    /* the backend may also know the rank that it waited for */
    if (is_reason && !atomic_load(&f->has_details)) {
        f->details = *e;
        atomic_store(&f->has_details, true);
    }
    return world_failure_error(f, e);
}
