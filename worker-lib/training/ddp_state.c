/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "worker-lib/core/status.h"
#include "worker-lib/training/ddp.h"

/* The reducer's state for checkpoints, and copies of it on their way to the host. */

static struct state_part arena_part(const struct ddp_parameter *p, float *arena,
                                    struct state_range *range)
{
    *range = (struct state_range){ 0, p->count, arena + p->at };
    return (struct state_part){
        .name = p->name,
        .type = CRUN_F32,
        .total = p->count,
        .range = range,
        .ranges = 1,
    };
}

crun_status ddp_describe_state(crun_ddp *ddp)
{
    unsigned n = 0;

    ddp->state.part = calloc(ddp->parameters + ddp->buffers, sizeof(*ddp->state.part));
    ddp->state.range = calloc(ddp->parameters + ddp->buffers,
                              sizeof(*ddp->state.range));
    if (!ddp->state.part || !ddp->state.range)
        return status_fail(CRUN_NO_MEMORY, "no memory for a list of %u parameters",
                           ddp->parameters);
    for (unsigned i = 0; i < ddp->parameters; i++, n++)
        ddp->state.part[n] = arena_part(&ddp->parameter[i], ddp->arena.values,
                                        &ddp->state.range[n]);
    for (unsigned i = 0; i < ddp->buffers; i++, n++) {
        ddp->state.part[n] = arena_part(&ddp->buffer[i], ddp->arena.buffers,
                                        &ddp->state.range[n]);
        ddp->state.part[n].in_use = true;
    }
    return CRUN_OK;
}

crun_world *ddp_world(const crun_ddp *ddp)
{
    return ddp->world;
}

const struct device_ops *ddp_device(const crun_ddp *ddp)
{
    return ddp->ops;
}

bool ddp_is_divided(const crun_ddp *ddp)
{
    return ddp->divided;
}

unsigned ddp_state(crun_ddp *ddp, const struct state_part **parts)
{
    *parts = ddp->state.part;
    return ddp->sealed ? ddp->parameters + ddp->buffers : 0;
}

crun_status ddp_state_put(crun_ddp *ddp)
{
    return ddp_narrow_values(ddp);
}

/* -- copies of the state ----------------------------------------------------------- */

crun_status ddp_copy_begin(crun_ddp *ddp, struct state_queues *queues)
{
    struct ddp_state_parts *state = &ddp->state;
    crun_status s = CRUN_OK;

    if (!state->copying)
        s = ddp->ops->make_queue(&state->copying);
    if (s == CRUN_OK)
        s = ddp->ops->follow(state->copying, ddp_queue(ddp));
    state->copied = s == CRUN_OK;
    *queues = (struct state_queues){ ddp->ops, ddp_queue(ddp), state->copying };
    return s;
}

crun_status ddp_await_copies(crun_ddp *ddp)
{
    if (!ddp->state.copied)
        return CRUN_OK;
    ddp->state.copied = false;
    return ddp->ops->follow(ddp_queue(ddp), ddp->state.copying);
}

void ddp_end_copies(crun_ddp *ddp)
{
    ddp->ops->free_queue(ddp->state.copying);
    ddp->state.copying = NULL;
    ddp->state.copied = false;
}

crun_status ddp_put(crun_ddp *ddp, void *to, const void *from, size_t bytes)
{
    return ddp->ops->put(ddp_queue(ddp), to, from, bytes);
}
