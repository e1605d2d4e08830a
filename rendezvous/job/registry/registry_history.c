/* SPDX-License-Identifier: MIT */
/*
 * Fills the history of each job from what the registry sees: samples from heartbeats,
 * epochs from the membership's steps, and all events. Each history is written to the
 * archive from time to time.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/real.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/events/event_kinds.h"
#include "rendezvous/job/history/history_json.h"
#include "rendezvous/job/history/job_archive.h"
#include "rendezvous/job/registry/limits.h"
#include "rendezvous/job/registry/registry_internal.h"

static void archive_within(struct registry *g, struct job *job, uint64_t ms)
{
    if (g->now_ms + ms < job->archive_ms)
        job->archive_ms = g->now_ms + ms;
}

/* -- samples ----------------------------------------------------------------------- */

static void sample_gpus(struct curve_point *sample, const struct msg_gpus *g,
                        uint32_t *with_percent)
{
    double *value = sample->value, watts = g->watts;

    if (g->count == 0)
        return;
    value[CURVE_GPU_USED_MIB] = real_max(value[CURVE_GPU_USED_MIB], g->used_mib);
    value[CURVE_GPU_WATTS] = isnan(value[CURVE_GPU_WATTS])
                                 ? watts
                                 : value[CURVE_GPU_WATTS] + watts;
    if (g->percent < 0)
        return;
    *with_percent += g->count;
    if (isnan(value[CURVE_GPU_PERCENT]))
        value[CURVE_GPU_PERCENT] = g->percent;
    value[CURVE_GPU_PERCENT] += (g->percent - value[CURVE_GPU_PERCENT]) * g->count /
                                *with_percent;
}

bool registry_take_sample(const struct job *job, struct curve_point *sample)
{
    const struct membership *m = &job->membership;
    uint32_t loss_rank = MEMBERSHIP_NONE, with_percent = 0;

    *sample = (struct curve_point){ .step = 0 };
    for (unsigned i = 0; i < CURVE_VALUES; i++)
        sample->value[i] = NAN;
    MEMBERSHIP_EACH(i, m) {
        const struct msg_heartbeat *told = &job->node[i]->progress;
        double loss;

        if (m->node[i].state != MEMBERSHIP_NODE_ACTIVE || told->step == 0 ||
            job->node[i]->progress_epoch != m->epoch)
            continue;
        if (sample->step == 0 || told->step < sample->step)
            sample->step = told->step;
        sample->value[CURVE_RATE] = real_min(sample->value[CURVE_RATE],
                                             real_of_text(told->steps_per_s));
        sample_gpus(sample, &told->gpus, &with_percent);
        loss = real_of_text(told->loss);
        if (!isnan(loss) && m->node[i].group_rank < loss_rank) {
            loss_rank = m->node[i].group_rank;
            sample->value[CURVE_LOSS] = loss;
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
    if (!registry_take_sample(job, &sample))
        return;
    sample.wall_ms = g->wall_ms;
    curve_add(&job->history->curve, &sample);
    archive_within(g, job, ARCHIVE_EVERY_MS);
}

/* -- epochs ------------------------------------------------------------------------ */

static struct past_epoch describe_epoch(const struct job *job, const char *text)
{
    const struct membership *m = &job->membership;
    struct past_epoch e = { .epoch = m->epoch,
                            .cause = m->epoch == 1 ? JOB_CAUSE_FIRST : m->stop.cause,
                            .nodes = m->group_size,
                            .workers = m->world_size };

    e.hang = e.cause == JOB_CAUSE_FAILURE && job->failure.kind == FAILURE_HANG;
    if (m->epoch > 1)
        text_cut(text, e.text, sizeof(e.text));
    return e;
}

void registry_note_formed(struct registry *g, struct job *job, const char *text)
{
    struct past_epoch e = describe_epoch(job, text);

    epochs_add_formed(&job->history->epochs, &e, &job->membership.time, g->now_ms,
                      g->wall_ms);
    archive_within(g, job, ARCHIVE_EPOCH_MS);
}

void registry_note_first_step(struct registry *g, struct job *job)
{
    epochs_add_first_step(&job->history->epochs, &job->membership.time, g->now_ms,
                          g->wall_ms);
}

void registry_note_end(struct registry *g, struct job *job)
{
    epochs_add_end(&job->history->epochs, &job->membership.time, g->now_ms, g->wall_ms);
    archive_within(g, job, job->membership.state == JOB_DONE ? 0 : ARCHIVE_EPOCH_MS);
}

void registry_note_start(struct registry *g, struct job *job)
{
    if (job->membership.state == JOB_RUNNING && job->membership.store_ready)
        epochs_add_start(&job->history->epochs, g->wall_ms);
}

/* -- the archive --------------------------------------------------------------------
 */

/* When the job has got its result, in wall time. */
static uint64_t ended_wall_ms(const struct registry *g, const struct job *job)
{
    uint64_t age = registry_state_age_ms(g, job);

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
    epochs_refresh(&job->history->epochs, &job->membership.time, g->now_ms);
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
    struct past_epoch newest = describe_epoch(job, job->text);
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
    epochs_restored(&job->history->epochs, &newest,
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
    return event_kind_access(kind) <= *(const enum access *)arg;
}

static cJSON *show_history_to(const struct job_history *h, const char *run_id,
                              const struct id128 *instance, enum access sight)
{
    char text[ID128_HEX_SIZE];
    struct history_reader reader = { .sees_text = viewer_sees_text,
                                     .arg = &sight,
                                     .run_id = run_id };

    if (sight == ACCESS_AGENT) /* as in JOB_STATUS */
        reader.instance = id128_format(instance, text);
    return history_json(h, &reader);
}

struct cJSON *registry_show_history(const struct registry *g, const struct job *job,
                                    enum access sight)
{
    epochs_refresh(&job->history->epochs, &job->membership.time, g->now_ms);
    return show_history_to(job->history, job->run_id, &job->membership.instance, sight);
}

/* -- jobs that are over -------------------------------------------------------------
 */

static bool job_is_here(const struct registry *g, const struct id128 *instance)
{
    for (const struct job *j = g->jobs; j; j = j->next)
        if (id128_equal(&j->membership.instance, instance))
            return true;
    return false;
}

/* A job that is kept, exists for the viewer, and is not here any more. */
static bool is_past_job(const struct registry *g, const struct job_owner *viewer,
                        const struct archived_job *archived)
{
    return archived->status && job_owner_admits(&archived->owner, viewer) &&
           !job_is_here(g, &archived->instance);
}

static const struct archived_job *find_past_job(const struct registry *g,
                                                const char *run_id,
                                                const struct job_owner *viewer)
{
    for (unsigned i = 0; g->archive && i < job_archive_count(g->archive); i++) {
        const struct archived_job *archived = job_archive_at(g->archive, i);

        if (strcmp(archived->run_id, run_id) == 0 && is_past_job(g, viewer, archived))
            return archived;
    }
    return NULL;
}

bool registry_has_past_job(const struct registry *g, const char *run_id,
                           const struct job_owner *viewer)
{
    return find_past_job(g, run_id, viewer) != NULL;
}

/* -1: its file makes no sense any more. */
static int show_archived(const struct registry *g, const struct archived_job *archived,
                         enum access sight, struct msg *m, struct err *e)
{
    *m = (struct msg){ .type = MSG_JOB_STATUS };
    if (job_archive_status(archived, g->wall_ms, &m->job_status, e) < 0)
        return -1;
    proto_redact(m, sight);
    if (m->job_status.state == JOB_DONE)
        return 0;
    m->job_status.state = JOB_DONE; /* the journal does not know it */
    m->job_status.reason = JOB_REASON_LOST;
    m->job_status.exit_code = 1;
    snprintf(m->job_status.text, sizeof(m->job_status.text),
             "its rendezvous was started again without its journal");
    return 0;
}

bool registry_next_past_job(const struct registry *g, unsigned *at,
                            const struct job_owner *viewer, enum access sight,
                            struct msg *m)
{
    struct err e;

    while (g->archive && *at < job_archive_count(g->archive)) {
        const struct archived_job *archived = job_archive_at(g->archive, (*at)++);

        if (!is_past_job(g, viewer, archived) ||
            show_archived(g, archived, sight, m, &e) < 0)
            continue;
        m->job_status.failure = (struct failure){ .kind = FAILURE_NONE }; /* in brief */
        return true;
    }
    return false;
}

struct cJSON *registry_show_past_job(const struct registry *g, const char *run_id,
                                     const struct job_owner *viewer, enum access sight,
                                     struct msg *m, struct err *e)
{
    const struct archived_job *archived = find_past_job(g, run_id, viewer);
    struct job_history *h = NULL;
    cJSON *history;

    err_set(e, "there is no job \"%s\" here", run_id);
    if (archived && show_archived(g, archived, sight, m, e) == 0)
        h = job_archive_history(g->archive, archived, e);
    if (!h)
        return NULL;
    history = show_history_to(h, archived->run_id, &archived->instance, sight);
    job_history_destroy(h);
    return history;
}

/* -- crunctl asks -------------------------------------------------------------------
 */

/* l->next: the place in the archive from which the page goes on. */
static bool send_some_past_jobs(struct registry *g, struct registry_peer *p,
                                struct ctl_list *l)
{
    unsigned place = (unsigned)l->next;
    struct msg m;

    while (ctl_list_has_room(p)) {
        if (!registry_next_past_job(g, &place, &p->owner, registry_sight(p), &m)) {
            l->next = 0;
            return true;
        }
        if (l->at == l->page_end)
            return true; /* the next page begins with it */
        l->next = place;
        l->at++;
        m.sequence = l->sequence;
        registry_send(p, &m);
    }
    return false;
}

/* Characters are not torn: a piece is a text of its own. */
static bool send_some_history(struct registry *g, struct registry_peer *p,
                              struct ctl_list *l)
{
    struct msg m = { .type = MSG_HISTORY, .sequence = l->sequence };

    while (l->text[l->sent]) {
        if (!ctl_list_has_room(p))
            return false;
        text_cut(l->text + l->sent, m.history.text, sizeof(m.history.text));
        if (!*m.history.text) /* not UTF-8 */
            break;
        l->sent += strlen(m.history.text);
        registry_send(p, &m);
    }
    return true;
}

/* JOB_STATUS is in m. Frees the history. */
static void begin_history_list(struct registry *g, struct registry_peer *p,
                               struct msg *m, cJSON *history)
{
    struct ctl_list l = { .send_some = send_some_history, .sequence = m->sequence };
    char *text = text_printable_json(cJSON_PrintUnformatted(history));

    cJSON_Delete(history);
    l.text = text ? text : xstrdup("{}");
    registry_send(p, m);
    ctl_list_begin(g, p, &l);
}

void registry_on_show_history(struct registry *g, struct registry_peer *p,
                              const struct msg *m)
{
    const char *run_id = m->show_history.run_id;
    const struct job *job = registry_find(g, p, run_id);
    struct ctl_list l = { .send_some = send_some_past_jobs,
                          .sequence = m->sequence,
                          .next = m->show_history.from,
                          .page_end = STATUS_PER_PAGE };
    enum access sight = registry_sight(p);
    struct msg status;
    cJSON *history;
    struct err e;

    if (!*run_id) {
        ctl_list_begin(g, p, &l);
        return;
    }
    if (job) {
        registry_show_job(g, job, sight, &status);
        history = registry_show_history(g, job, sight);
    } else {
        history = registry_show_past_job(g, run_id, &p->owner, sight, &status, &e);
    }
    status.sequence = m->sequence;
    if (history)
        begin_history_list(g, p, &status, history);
    else
        registry_refuse(p, m, REFUSED_UNKNOWN, false, "%s", e.text);
}
