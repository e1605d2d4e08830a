/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ui/top_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/crunctl/ui/top_view.h"
#include "rendezvous/common/base/xalloc.h"

#define OPEN_JOBS_MAX 8   /* that are open at first, */
#define OPEN_NODES_MAX 16 /* with so many nodes, if there are several */

void top_rows_fini(struct top_rows *rows)
{
    free(rows->row);
}

bool top_row_takes_cursor(const struct top_row *r)
{
    return r->kind != TOP_ROW_WHY && r->kind != TOP_ROW_CURVE;
}

char *top_row_name(const struct top_row *r, const struct top_look *look, char *buf,
                   size_t size)
{
    const struct job_view *job = &look->jobs.job[r->job];

    if (r->kind == TOP_ROW_NODE)
        return top_node_name(job, &job->node[r->node], buf, size);
    snprintf(buf, size, "%s",
             r->kind == TOP_ROW_ENDED ? "ended" : look->more[r->job].name);
    return buf;
}

static struct top_row *add_row(struct top_rows *rows, enum top_row_kind kind,
                               size_t job, size_t node)
{
    if (rows->count == rows->room) {
        rows->room = rows->room ? 2 * rows->room : 64;
        rows->row = xrealloc(rows->row, rows->room * sizeof(*rows->row));
    }
    rows->row[rows->count] = (struct top_row){ .kind = kind, .job = job, .node = node };
    return &rows->row[rows->count++];
}

static bool is_open(const struct top_view *v, const struct top_look *look, size_t job,
                    size_t live)
{
    const struct top_fold *fold = top_view_fold(v, look->more[job].name);

    if (fold)
        return fold->is_open;
    return *v->filter || v->faults_only || live == 1 ||
           (live <= OPEN_JOBS_MAX && look->jobs.job[job].nodes <= OPEN_NODES_MAX);
}

/* What the sort key of a node is; an unknown value comes last. */
static double sort_value(enum top_sort sort, const struct msg_node_status *n,
                         const struct top_job *more)
{
    const struct msg_heartbeat *p = &n->progress;
    char word[32];

    switch (sort) {
    case TOP_SORT_FAULT:
        return -(double)top_node_fault(n, more, word, sizeof(word));
    case TOP_SORT_STEP:
        return (double)p->step; /* the slowest first */
    case TOP_SORT_RATE:
        return *p->steps_per_s ? strtod(p->steps_per_s, NULL) : 1e300;
    case TOP_SORT_LOSS:
        return *p->loss ? -strtod(p->loss, NULL) : 1e300;
    case TOP_SORT_GPU:
        return p->gpus.count ? p->gpus.percent : 1e300;
    case TOP_SORT_MEMORY:
        return -(double)p->gpus.used_mib;
    default:
        return 0;
    }
}

struct sorted_row {
    struct top_row row;
    double value;
    const char *name; /* NULL: in the order of their ranks */
    uint32_t rank;
};

static int compare_sorted_rows(const void *a, const void *b)
{
    const struct sorted_row *x = a, *y = b;

    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    if (x->name && strverscmp(x->name, y->name) != 0)
        return strverscmp(x->name, y->name);
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->row.job != y->row.job)
        return x->row.job < y->row.job ? -1 : 1;
    return x->row.node < y->row.node ? -1 : x->row.node > y->row.node;
}

static bool has_filter(const struct top_view *v, const char *a, const char *b)
{
    return strcasestr(a, v->filter) || strcasestr(b, v->filter);
}

/* What the user has asked for: each node, those with its name or what it has, or those
 * with a fault. */
static bool node_is_wanted(const struct top_view *v, const struct top_look *look,
                           size_t job, size_t node, bool whole_job)
{
    const struct msg_node_status *n = &look->jobs.job[job].node[node];
    char word[32];

    return (!v->faults_only ||
            top_node_fault(n, &look->more[job], word, sizeof(word))) &&
           (whole_job || has_filter(v, n->host, n->progress.note));
}

/* The rows of the nodes that are wanted. Returns how many have a fault. */
static unsigned add_nodes(const struct top_view *v, const struct top_look *look,
                          size_t job, bool whole_job, bool open, struct top_rows *rows)
{
    const struct job_view *view = &look->jobs.job[job];
    struct sorted_row *sorted = xcalloc(view->nodes + 1, sizeof(*sorted));
    size_t count = 0;
    unsigned faults = 0;
    char word[32];

    for (size_t i = 0; i < view->nodes; i++) {
        faults += top_node_fault(&view->node[i], &look->more[job], word, sizeof(word)) >
                  0;
        if (!open || !node_is_wanted(v, look, job, i, whole_job))
            continue;
        sorted[count++] = (struct sorted_row){
            .row = { .kind = TOP_ROW_NODE, .job = job, .node = i },
            .value = sort_value(v->sort, &view->node[i], &look->more[job]),
            .name = v->sort == TOP_SORT_NAME ? view->node[i].host : NULL,
            .rank = view->node[i].group_rank < 0 ? UINT32_MAX : view->node[i].first_rank
        };
    }
    qsort(sorted, count, sizeof(*sorted), compare_sorted_rows);
    for (size_t i = 0; i < count; i++)
        add_row(rows, TOP_ROW_NODE, job,
                sorted[v->reversed ? count - 1 - i : i].row.node);
    free(sorted);
    return faults;
}

static bool job_has_why(const struct job_view *job, const struct top_job *more)
{
    const struct msg_job_status *s = &job->status;

    return job->odd_state || *s->notice || more->still_ms > 0 ||
           s->failure.kind != FAILURE_NONE;
}

/* A job with its lines; none of it, if the user has asked for something else. */
static void add_live_job(const struct top_view *v, const struct top_look *look,
                         size_t job, size_t live, struct top_rows *rows)
{
    const struct job_view *view = &look->jobs.job[job];
    bool whole_job = has_filter(v, view->name, job_view_state(view));
    bool open = is_open(v, look, job, live);
    size_t head = rows->count, begin;
    unsigned faults;

    add_row(rows, TOP_ROW_JOB, job, 0)->is_open = open;
    if (job_has_why(view, &look->more[job]))
        add_row(rows, TOP_ROW_WHY, job, 0);
    if (open && look->more[job].points > 1)
        add_row(rows, TOP_ROW_CURVE, job, 0);
    begin = rows->count;
    faults = add_nodes(v, look, job, whole_job, open, rows);
    rows->row[head].faults = faults;
    if (rows->count == begin &&
        ((v->faults_only && !top_job_fault(view, &look->more[job])) || !whole_job))
        rows->count = head;
}

static double job_sort_value(const struct top_view *v, const struct top_look *look,
                             size_t job)
{
    const struct job_view *view = &look->jobs.job[job];

    if (v->sort == TOP_SORT_FAULT)
        return -(double)top_job_fault(view, &look->more[job]);
    if (v->sort == TOP_SORT_STEP)
        return (double)job_view_step(view);
    return view->nodes ? sort_value(v->sort, &view->node[0], &look->more[job]) : 1e300;
}

static void add_past_jobs(const struct top_view *v, const struct top_look *look,
                          size_t first, struct top_rows *rows)
{
    bool open = v->ended_turned != (first == 0);
    size_t head = rows->count;

    if (first == look->jobs.count || v->faults_only)
        return;
    add_row(rows, TOP_ROW_ENDED, first, 0)->is_open = open;
    for (size_t i = first; i < look->jobs.count && (open || *v->filter); i++)
        if (has_filter(v, look->jobs.job[i].name, job_view_state(&look->jobs.job[i])))
            add_row(rows, TOP_ROW_PAST, i, 0);
    if (*v->filter && rows->count == head + 1)
        rows->count = head;
}

void top_rows_fill(struct top_rows *rows, const struct top_look *look,
                   const struct top_view *v)
{
    struct sorted_row *sorted;
    size_t live = 0;

    rows->count = 0;
    while (live < look->jobs.count && look->jobs.job[live].status.state != JOB_DONE)
        live++;
    sorted = xcalloc(live + 1, sizeof(*sorted));
    for (size_t i = 0; i < live; i++)
        sorted[i] = (struct sorted_row){ .row.job = i,
                                         .value = job_sort_value(v, look, i),
                                         .name = look->jobs.job[i].name };
    qsort(sorted, live, sizeof(*sorted), compare_sorted_rows);
    for (size_t i = 0; i < live; i++)
        add_live_job(v, look, sorted[v->reversed ? live - 1 - i : i].row.job, live,
                     rows);
    free(sorted);
    add_past_jobs(v, look, live, rows);
}
