/* SPDX-License-Identifier: MIT */
/* Which nodes of a job are slow: how busy each is, beside the median of all. */
#include "rendezvous/job/registry/job.h"

#include "rendezvous/job/registry/limits.h"

#define BUSY_MAX 1000

/* Of two in the middle the lower one, so that one of two nodes can be slow. */
static uint32_t median_usual_busy(const struct job *j)
{
    uint32_t nodes_with[BUSY_MAX + 1] = { 0 }, nodes = 0, below = 0, busy = 0;
    const struct membership *m = &j->membership;

    MEMBERSHIP_EACH(i, m) {
        uint32_t usual = j->node[i]->progress.usual_busy;

        if (usual == 0 || usual > BUSY_MAX || m->node[i].group_rank == MEMBERSHIP_NONE)
            continue;
        nodes_with[usual]++;
        nodes++;
    }
    while (nodes && below + nodes_with[busy] <= (nodes - 1) / 2)
        below += nodes_with[busy++];
    return busy;
}

void job_note_busy(struct job *j, uint64_t now_ms)
{
    if (j->usual_busy_at && now_ms - j->usual_busy_at < BUSY_COMPARED_MS)
        return;
    j->usual_busy = median_usual_busy(j);
    j->usual_busy_at = now_ms;
}

uint32_t job_slowness(const struct job *j, uint32_t index)
{
    uint32_t usual = j->usual_busy;

    if (usual == 0 || j->membership.node[index].group_rank == MEMBERSHIP_NONE)
        return 0;
    return (100 * j->node[index]->progress.busy + usual / 2) / usual;
}
