/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ui/top_stall.h"

#include <stdlib.h>

#define STILL_MS 10000 /* heartbeats come every 5 s */
#define STILL_PACES 3  /* a job that is slow is given more */
#define RATED_MS 15000 /* the rate that a node tells is that of so much time */

/* The least that a node which runs workers is silent; 0 if one of them is not. */
static uint64_t silent_ms(const struct job_view *job)
{
    uint64_t least = 0;

    for (size_t i = 0; i < job->nodes; i++) {
        const struct msg_node_status *n = &job->node[i];

        if (n->group_rank < 0 || n->state != NODE_RUNNING)
            continue;
        if (n->progress.silent_ms == 0)
            return 0;
        if (!least || n->progress.silent_ms < least)
            least = n->progress.silent_ms;
    }
    return least;
}

/* The first look, which may be at a hang: what a node tells of its steps. */
static void begin_by_rate(struct top_stall *s, const struct job_view *job)
{
    if (job->status.state_ms < RATED_MS) /* it may be of the epoch before */
        return;
    for (size_t i = 0; i < job->nodes && !s->has_moved; i++) {
        const struct msg_heartbeat *p = &job->node[i].progress;
        double rate = strtod(p->steps_per_s, NULL);

        if (!job_view_takes_part(&job->node[i]) || !p->first_step || !*p->steps_per_s)
            continue;
        s->has_moved = true;
        s->pace_ms = rate > 0 ? (uint64_t)(1000 / rate) : 0;
        s->moved_ms -= rate > 0 ? 0 : RATED_MS;
    }
}

uint64_t top_stall_note(struct top_stall *s, const struct job_view *job,
                        uint64_t now_ms)
{
    uint64_t step = job_view_step(job), still_ms, enough_ms;
    bool is_first = s->epoch == 0;

    if (job->status.state != JOB_RUNNING || job->status.epoch != s->epoch) {
        *s = (struct top_stall){ .epoch = job->status.epoch, .moved_ms = now_ms };
        s->step = step; /* of the epoch before */
        if (!is_first || job->status.state != JOB_RUNNING)
            return 0;
        begin_by_rate(s, job);
    }
    if (step != s->step) {
        if (s->has_moved && now_ms - s->moved_ms > s->pace_ms)
            s->pace_ms = now_ms - s->moved_ms;
        s->has_moved = step != 0;
        s->step = step;
        s->moved_ms = now_ms;
        return 0;
    }
    still_ms = now_ms - s->moved_ms;
    enough_ms = s->pace_ms * STILL_PACES > STILL_MS ? s->pace_ms * STILL_PACES
                                                    : STILL_MS;
    if (s->has_moved && still_ms >= enough_ms)
        return still_ms;
    return silent_ms(job);
}
