/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/views/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/history/curve.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/show/views/limits.h"
#include "rendezvous/show/views/metrics_table.h"
#include "rendezvous/show/views/sample_writer.h"

/* -- what is told of --------------------------------------------------------------- */

/* The jobs and nodes of one text, with their labels, in the order of the text. */
struct metric_sources {
    struct labelled_source {
        struct metric_source source;
        char *labels;
    } * job, *node;
    size_t jobs, nodes;
};

/* What the nodes of the job tell of its progress, as crunctl status sums it up. */
static void sum_up_progress(struct metric_source *s)
{
    const struct membership *m = &s->job->membership;
    struct curve_point sample;

    registry_take_sample(s->job, &sample);
    s->step = sample.step ? sample.step : m->time.top_step;
    s->steps_per_s = sample.value[CURVE_RATE];
    s->loss = sample.value[CURVE_LOSS];
    MEMBERSHIP_EACH(i, m) {
        s->nodes_in[job_node_state(s->job, i)]++;
        if (s->job->node[i]->progress.steps > s->steps)
            s->steps = s->job->node[i]->progress.steps;
    }
}

/* A node that has come back under another life has its name twice until the older life
 * is lost: only the connected one, or the later one, is told of. */
static bool node_is_superseded(const struct job *job, uint32_t node)
{
    const struct membership *m = &job->membership;
    bool is_later = false;

    if (m->node[node].connected)
        return false;
    MEMBERSHIP_EACH(i, m) {
        if (i != node && (is_later || m->node[i].connected) &&
            strcmp(job->node[i]->host, job->node[node]->host) == 0)
            return true;
        is_later |= i == node;
    }
    return false;
}

static char *make_labels(const struct job *job, const char *host)
{
    char labels[2048] = "", uid[16];

    sample_add_label(labels, sizeof(labels), "run_id", job->run_id);
    snprintf(uid, sizeof(uid), "%u", (unsigned)job->owner.uid);
    if (*job->owner.key_file)
        sample_add_label(labels, sizeof(labels), "owner", job->owner.key_file);
    else if (job->owner.uid != PEER_UID_UNKNOWN)
        sample_add_label(labels, sizeof(labels), "owner", uid);
    if (host)
        sample_add_label(labels, sizeof(labels), "node", host);
    return xstrdup(labels);
}

static void add_job_source(struct metric_sources *all, const struct metrics_view *v,
                           struct job *job)
{
    const struct membership *m = &job->membership;
    struct labelled_source *j = &all->job[all->jobs++];

    j->source = (struct metric_source){ .view = v,
                                        .job = job,
                                        .told = job_report_time(job, v->now_ms) };
    j->labels = make_labels(job, NULL);
    sum_up_progress(&j->source);
    MEMBERSHIP_EACH(i, m) {
        struct labelled_source *n = &all->node[all->nodes];

        if (node_is_superseded(job, i))
            continue;
        n->source = (struct metric_source){ .view = v, .job = job, .node = i };
        n->labels = make_labels(job, job->node[i]->host);
        all->nodes++;
    }
}

static void collect_sources(struct metric_sources *all, const struct metrics_view *v)
{
    size_t jobs = 0, nodes = 0;

    for (const struct job *j = registry_jobs(v->registry); j; j = j->next) {
        jobs++;
        nodes += j->membership.tally.live;
    }
    *all = (struct metric_sources){ .job = xcalloc(jobs + 1, sizeof(*all->job)),
                                    .node = xcalloc(nodes + 1, sizeof(*all->node)) };
    for (struct job *j = registry_own_jobs(v->registry); j; j = j->next)
        if ((!v->viewer || job_owner_admits(&j->owner, v->viewer)) &&
            (j->membership.state != JOB_DONE ||
             v->now_ms - j->done_ms < METRICS_ENDED_SHOWN_MS))
            add_job_source(all, v, j);
}

/* -- the text ---------------------------------------------------------------------- */

static void write_metric(struct sample_writer *w, const struct metric *m,
                         const struct labelled_source *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        w->labels = list[i].labels;
        m->write(w, &list[i].source);
    }
}

void metrics_write(const struct metrics_view *view, FILE *out)
{
    const struct labelled_source program = { .source = { .view = view },
                                             .labels = (char *)"" };
    struct sample_writer w = { .out = out };
    struct metric_sources all;

    collect_sources(&all, view);
    for (unsigned i = 0; i < metrics_count; i++) {
        const struct metric *m = &metrics_table[i];

        if (m->subject == METRIC_OF_DAEMON && !view->is_daemon)
            continue;
        sample_begin_family(&w, m->name, m->type, m->help);
        w.label = m->label;
        if (m->subject == METRIC_OF_JOB)
            write_metric(&w, m, all.job, all.jobs);
        else if (m->subject == METRIC_OF_NODE)
            write_metric(&w, m, all.node, all.nodes);
        else
            write_metric(&w, m, &program, 1);
    }
    sample_end(&w);
    for (size_t i = 0; i < all.jobs; i++)
        free(all.job[i].labels);
    for (size_t i = 0; i < all.nodes; i++)
        free(all.node[i].labels);
    free(all.job);
    free(all.node);
}
