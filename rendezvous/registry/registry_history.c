/* SPDX-License-Identifier: MIT */
/*
 * Fills the history of each job from what the registry sees: samples from heartbeats,
 * epochs from the membership's steps, and all events. Each history is written to the
 * archive from time to time.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text.h"
#include "rendezvous/history/history_json.h"
#include "rendezvous/history/job_archive.h"
#include "rendezvous/registry/registry_internal.h"

static void archive_within(struct registry *g, struct job *job, uint64_t ms)
{
    if (g->now_ms + ms < job->archive_ms)
        job->archive_ms = g->now_ms + ms;
}

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
    archive_within(g, job, ARCHIVE_EVERY_MS);
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
    archive_within(g, job, ARCHIVE_EPOCH_MS);
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
    archive_within(g, job, job->membership.state == JOB_DONE ? 0 : ARCHIVE_EPOCH_MS);
}

void registry_note_start(struct registry *g, struct job *job)
{
    if (job->membership.state == JOB_RUNNING && job->membership.store_ready)
        timeline_add_start(&job->history->timeline, g->wall_ms);
}

/* -- the archive --------------------------------------------------------------------
 */

/* When the job has got its result, in wall time. */
static uint64_t ended_wall_ms(const struct registry *g, const struct job *job)
{
    uint64_t age = g->now_ms - job->membership.clock.stalled -
                   job->membership.state_since;

    return job->membership.state == JOB_DONE && g->wall_ms > age ? g->wall_ms - age : 0;
}

static void archive_job(struct registry *g, struct job *job)
{
    struct archived_job archived = { .instance = job->membership.instance,
                                     .owner = job->owner,
                                     .created_ms = job->created_wall_ms,
                                     .ended_ms = ended_wall_ms(g, job),
                                     .written_ms = g->wall_ms };
    struct msg m;

    job->archive_ms = UINT64_MAX;
    if (job->membership.epoch == 0 && job->membership.state != JOB_DONE)
        return; /* it may never become a job */
    memcpy(archived.run_id, job->run_id, sizeof(archived.run_id));
    timeline_refresh(&job->history->timeline, &job->membership.time, g->now_ms);
    registry_show_job(g, job, ACCESS_AGENT, &m);
    if (!job_archive_write(g->archive, &archived, &m.job_status, job->history))
        archive_within(g, job, ARCHIVE_EVERY_MS);
}

void registry_tick_archive(struct registry *g)
{
    unsigned writes = 0;

    for (struct job *j = g->jobs; j && g->archive; j = j->next)
        if (j->archive_ms <= g->now_ms && writes++ < ARCHIVE_WRITES_PER_TURN)
            archive_job(g, j);
}

uint64_t registry_next_archive(const struct registry *g, const struct job *job)
{
    return g->archive ? job->archive_ms : UINT64_MAX;
}

void registry_archive_last(struct registry *g, struct job *job)
{
    if (g->archive && job->archive_ms != UINT64_MAX)
        archive_job(g, job);
}

void registry_archive_all(struct registry *g)
{
    for (struct job *j = g->jobs; j; j = j->next)
        registry_archive_last(g, j);
}

/* The job has lived on in the journal. Its history may be older, or missing. */
static void restore_history(struct registry *g, struct job *job)
{
    const struct archived_job *archived = job_archive_find(g->archive,
                                                           &job->membership.instance);
    struct timeline_epoch newest = describe_epoch(job, job->text);
    struct job_history *history;
    struct err e;

    if (archived && archived->status) {
        history = job_archive_history(g->archive, archived, &e);
        if (history) {
            job_history_take_events(history, job->history);
            job_history_destroy(job->history);
            job->history = history;
        } else {
            log_warn("%s", e.text);
        }
    }
    timeline_restored(&job->history->timeline, &newest,
                      job->membership.state != JOB_RUNNING, &job->membership.time,
                      g->now_ms, g->wall_ms);
}

void registry_set_archive(struct registry *g, struct job_archive *archive)
{
    g->archive = archive;
    for (struct job *j = g->jobs; j; j = j->next)
        restore_history(g, j);
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
