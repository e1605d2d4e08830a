/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker-lib/core/status.h"
#include "worker-lib/training/ddp.h"

/* Parameters that got no gradient in a step: their gradients become zero, the ranks
 * count them, and crun_ddp_stats or an error names them. */

static bool is_unused(const crun_ddp *ddp, const struct ddp_parameter *p)
{
    return atomic_load_explicit(&p->ready, memory_order_relaxed) < ddp->gradients_since;
}

int32_t ddp_zero_unused(crun_ddp *ddp)
{
    int32_t n = 0;

    for (unsigned i = 0; i < ddp->parameters; i++) {
        const struct ddp_parameter *p = &ddp->parameter[i];
        void *gradient;

        if (!is_unused(ddp, p))
            continue;
        n++;
        gradient = ddp->windowed ? ddp_window_place(ddp, p)
                                 : ddp_gradient_at(ddp, p->at);
        if (gradient) /* a window that is taken later is zero */
            ddp_note(ddp,
                     ddp->ops->zero(ddp_queue(ddp), gradient, p->count * ddp->element));
    }
    return n;
}

crun_status ddp_put_unused(crun_ddp *ddp, int32_t unused)
{
    return ddp->ops->put_word(ddp_queue(ddp), ddp->unused.sum, unused);
}

/*
 * The sum over all ranks is queued, and each rank reads it DDP_NOTES steps later. This
 * also limits how far a rank's host is ahead of its GPU.
 */
crun_status ddp_read_unused(crun_ddp *ddp, int32_t *unused)
{
    struct device_note *note = ddp->unused.note[ddp->steps_synced % DDP_NOTES];

    *unused = 0;
    if (ddp->steps_synced >= DDP_NOTES) {
        const int32_t *before = ddp->ops->read_note(note);

        if (!before)
            return status_fail(CRUN_SYSTEM, "%s", crun_error_text());
        *unused = *before;
    }
    return ddp->ops->write_note(ddp_queue(ddp), note, ddp->unused.sum,
                                sizeof(*ddp->unused.sum));
}

bool ddp_names_own_unused(const crun_ddp *ddp)
{
    return ddp->ops->queued && ddp->options.find_unused;
}

/* The lowest rank without a gradient for each parameter; INT32_MAX: there is none. */
static crun_status find_unused_ranks(crun_ddp *ddp, int32_t *rank)
{
    for (unsigned i = 0; i < ddp->parameters; i++)
        rank[i] = is_unused(ddp, &ddp->parameter[i]) ? (int32_t)ddp->rank : INT32_MAX;
    if (ddp->size == 1 || ddp_names_own_unused(ddp))
        return CRUN_OK;
    return crun_all_reduce(ddp->world, rank, rank, ddp->parameters, CRUN_I32, CRUN_MIN,
                           NULL);
}

#define NAMES_BYTES 4096
#define MORE_BYTES 32 /* " and N more" */

/* Writes the names of the unused parameters. Returns the rank that lacks the first of
 * them, or -1 if all ranks have all gradients. */
static int32_t list_unused(const crun_ddp *ddp, const int32_t *rank, char *names)
{
    size_t used = 0;
    unsigned more = 0;
    int32_t first = -1;

    names[0] = '\0';
    for (unsigned i = 0; i < ddp->parameters; i++) {
        const char *name = ddp->parameter[i].name;

        if (rank[i] == INT32_MAX)
            continue;
        if (first < 0)
            first = rank[i];
        if (used + strlen(name) + MORE_BYTES > NAMES_BYTES)
            more++;
        else
            used += (size_t)sprintf(names + used, "%s%s", used ? ", " : "", name);
    }
    if (more)
        sprintf(names + used, " and %u more", more);
    return first;
}

static crun_status fail_unused(int32_t rank, const char *names)
{
    if (rank < 0)
        return status_fail(CRUN_BAD_ARGUMENT,
                           "a parameter had no gradient two steps ago, on "
                           "some rank, and has one now (with find_unused "
                           "it counts as zero)");
    return status_fail(
        CRUN_BAD_ARGUMENT,
        "no gradient in this step on rank %d for %.300s (if this is intended, "
        "find_unused takes it for zero)",
        rank, names);
}

crun_status ddp_name_unused(crun_ddp *ddp)
{
    int32_t *rank = malloc(ddp->parameters * sizeof(*rank)), first;
    crun_status s;

    if (!ddp->unused.names)
        ddp->unused.names = calloc(1, NAMES_BYTES);
    if (!rank || !ddp->unused.names) {
        free(rank);
        return status_fail(CRUN_NO_MEMORY, "no memory to name the unused parameters");
    }
    s = find_unused_ranks(ddp, rank);
    if (s == CRUN_OK) {
        first = list_unused(ddp, rank, ddp->unused.names);
        if (!ddp->options.find_unused)
            s = fail_unused(first, ddp->unused.names);
    }
    free(rank);
    return s;
}
