/* SPDX-License-Identifier: MIT */
/*
 * Fills the history of each job from what the registry sees: samples from heartbeats,
 * epochs from the membership's steps, and all events.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/text.h"
#include "rendezvous/history/history_json.h"
#include "rendezvous/registry/registry_internal.h"

/* -- samples ----------------------------------------------------------------------- */

/* The number that a text shows, or NaN. */
static double number_of_text(const char *text)
{
    char *end;
    double value = strtod(text, &end);

    return *text && !*end ? value : NAN;
}

/*
 * The job is where its slowest node is, and as fast. All ranks have about the same
 * loss: that of the lowest node rank that tells one is taken. What a node has told in
 * an earlier epoch does not count.
 */
static bool take_sample(const struct job *job, struct curve_point *sample)
{
    const struct membership *m = &job->membership;
    uint32_t loss_rank = MEMBERSHIP_NONE;

    *sample = (struct curve_point){ .steps_per_s = NAN, .loss = NAN };
    for (uint32_t i = m->first; i != MEMBERSHIP_NONE; i = m->node[i].next) {
        const struct msg_heartbeat *told = &job->node[i]->progress;
        double rate, loss;

        if (m->node[i].state != MEMBERSHIP_NODE_ACTIVE || told->step == 0 ||
            job->node[i]->progress_epoch != m->epoch)
            continue;
        if (sample->step == 0 || told->step < sample->step)
            sample->step = told->step;
        rate = number_of_text(told->steps_per_s);
        if (!(sample->steps_per_s <= rate)) /* one of both may be NaN */
            sample->steps_per_s = isnan(rate) ? sample->steps_per_s : rate;
        loss = number_of_text(told->loss);
        if (!isnan(loss) && m->node[i].group_rank < loss_rank) {
            loss_rank = m->node[i].group_rank;
            sample->loss = loss;
        }
    }
    return sample->step > 0;
}

void registry_note_progress(struct registry *g, struct job *job)
{
    struct curve_point sample;

    if (job->membership.state != JOB_RUNNING || g->now_ms < job->next_sample_ms)
        return;
    job->next_sample_ms = g->now_ms + CURVE_EVERY_MS;
    if (!take_sample(job, &sample))
        return;
    sample.wall_ms = g->wall_ms;
    curve_add(&job->history->curve, &sample);
}

/* -- epochs ------------------------------------------------------------------------ */

static struct timeline_epoch describe_epoch(const struct job *job, const char *text)
{
    const struct membership *m = &job->membership;
    struct timeline_epoch e = { .epoch = m->epoch,
                                .cause = m->epoch == 1 ? JOB_CAUSE_FIRST
                                                       : m->stop.cause,
                                .nodes = m->group_size,
                                .workers = m->world_size };

    e.hang = e.cause == JOB_CAUSE_FAILURE && job->failure.kind == FAILURE_HANG;
    if (m->epoch > 1)
        text_cut(text, e.text, sizeof(e.text));
    return e;
}

void registry_note_formed(struct registry *g, struct job *job, const char *text)
{
    struct timeline_epoch e = describe_epoch(job, text);

    timeline_add_formed(&job->history->timeline, &e, &job->membership.time, g->now_ms,
                        g->wall_ms);
}

void registry_note_first_step(struct registry *g, struct job *job)
{
    timeline_add_first_step(&job->history->timeline, &job->membership.time, g->now_ms,
                            g->wall_ms);
}

void registry_note_end(struct registry *g, struct job *job)
{
    timeline_add_end(&job->history->timeline, &job->membership.time, g->now_ms,
                     g->wall_ms);
}

void registry_note_start(struct registry *g, struct job *job)
{
    if (job->membership.state == JOB_RUNNING && job->membership.store_ready)
        timeline_add_start(&job->history->timeline, g->wall_ms);
}

/* -- for viewers --------------------------------------------------------------------
 */

static bool viewer_sees_text(void *arg, const char *kind)
{
    return registry_event_access(kind) <= *(const enum access *)arg;
}

struct cJSON *registry_show_history(const struct registry *g, const struct job *job,
                                    enum access sight)
{
    char instance[ID128_HEX_SIZE];
    struct history_reader reader = { .sees_text = viewer_sees_text,
                                     .arg = &sight,
                                     .run_id = job->run_id };

    if (sight == ACCESS_AGENT) /* as in JOB_STATUS */
        reader.instance = id128_format(&job->membership.instance, instance);
    timeline_refresh(&job->history->timeline, &job->membership.time, g->now_ms);
    return history_json(job->history, &reader);
}
