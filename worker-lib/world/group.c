/* SPDX-License-Identifier: MIT */
/* Groups of operations: between crun_group_begin and crun_group_end calls are recorded.
 */
#include "worker-lib/core/status.h"
#include "worker-lib/world/world_internal.h"

crun_status crun_group_begin(crun_world *w)
{
    if (!w)
        return status_fail(CRUN_BAD_ARGUMENT, "crun_group_begin: there is no world");
    if (w->recording)
        return status_fail(
            CRUN_BAD_ARGUMENT,
            "crun_group_begin: the previous group has no crun_group_end");
    w->recording = op_group_create();
    w->recorded = CRUN_OK;
    return w->recording ? CRUN_OK : status_fail(CRUN_NO_MEMORY, "no memory");
}

crun_status crun_group_end(crun_world *w, crun_work **work)
{
    struct op op = { .kind = OP_GROUP };

    if (work)
        *work = NULL;
    if (!w || !w->recording)
        return status_fail(CRUN_BAD_ARGUMENT,
                           "crun_group_end: there is no crun_group_begin");
    op.group = w->recording;
    w->recording = NULL;
    if (w->recorded == CRUN_OK)
        return world_call(w, op, work);
    op_group_drop(op.group);
    return status_fail_with(w->recorded, &w->recorded_error);
}

crun_status world_refuse_in_group(const crun_world *w, const char *call)
{
    if (!w || !w->recording)
        return CRUN_OK;
    return status_fail(CRUN_BAD_ARGUMENT,
                       "%s: not between crun_group_begin and crun_group_end", call);
}

static crun_status record_op(crun_world *w, const struct op *op, crun_work **work)
{
    crun_status s = world_check_call(w, op);

    if (s == CRUN_OK && work)
        s = status_fail(
            CRUN_BAD_ARGUMENT,
            "crun_%s: in a group, work must be NULL (crun_group_end has it)",
            op_name(op->kind));
    if (s == CRUN_OK && !op_group_add(w->recording, op))
        s = status_fail(CRUN_NO_MEMORY, "no memory for crun_%s in a group",
                        op_name(op->kind));
    return s;
}

crun_status world_call_or_record(crun_world *w, struct op op, crun_work **work)
{
    if (!w || !w->recording)
        return world_call(w, op, work);
    if (work)
        *work = NULL;
    if (w->recorded != CRUN_OK)
        return status_fail_with(w->recorded, &w->recorded_error);
    w->recorded = record_op(w, &op, work);
    if (w->recorded != CRUN_OK)
        err_set(&w->recorded_error, "%s", crun_error_text());
    return w->recorded;
}
