/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/top/top_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/crunctl/top/top_keys.h"
#include "rendezvous/common/base/xalloc.h"

#define OPEN_JOBS_MAX 8   /* that are open at first, */
#define OPEN_NODES_MAX 16 /* with so many nodes, if there are several */
#define CTRL(letter) ((letter)&0x1f)

static const char ended_name[] = "ended";

const char *top_sort_name(enum top_sort sort)
{
    static const char *const names[TOP_SORTS] = { "faults", "name", "step",  "steps/s",
                                                  "loss",   "GPU",  "memory" };

    return names[sort];
}

void top_view_fini(struct top_view *v)
{
    free(v->fold);
}

/* -- rows ------------------------------------------------------------------------- */

static bool is_live(const struct job_view *job)
{
    return job->status.state != JOB_DONE;
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

static struct top_fold *find_fold(const struct top_view *v, const char *name)
{
    for (size_t i = 0; i < v->folds; i++)
        if (strcmp(v->fold[i].name, name) == 0)
            return &v->fold[i];
    return NULL;
}

static bool is_open(const struct top_view *v, const struct top_look *look, size_t job,
                    size_t live)
{
    const struct top_fold *fold = find_fold(v, look->more[job].name);

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

/* Takes the sorted rows, turned round if the user wants. */
static void add_sorted_rows(const struct top_view *v, struct top_rows *rows,
                            struct sorted_row *sorted, size_t count)
{
    if (count)
        qsort(sorted, count, sizeof(*sorted), compare_sorted_rows);
    for (size_t i = 0; i < count; i++) {
        const struct top_row *r = &sorted[v->reversed ? count - 1 - i : i].row;

        *add_row(rows, r->kind, r->job, r->node) = *r;
    }
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
    add_sorted_rows(v, rows, sorted, count);
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
    size_t head = rows->count;

    if (first == look->jobs.count || v->faults_only)
        return;
    add_row(rows, TOP_ROW_ENDED, first, 0)->is_open = v->ended_open;
    for (size_t i = first; i < look->jobs.count && (v->ended_open || *v->filter); i++)
        if (has_filter(v, look->jobs.job[i].name, job_view_state(&look->jobs.job[i])))
            add_row(rows, TOP_ROW_PAST, i, 0);
    if (*v->filter && rows->count == head + 1)
        rows->count = head;
}

static bool row_is_chosen(const struct top_row *r, const struct top_look *look,
                          const char *name)
{
    const struct job_view *job = &look->jobs.job[r->job];
    char own[TOP_NAME_BYTES];

    if (r->kind == TOP_ROW_ENDED)
        return strcmp(name, ended_name) == 0;
    if (r->kind == TOP_ROW_NODE)
        return strcmp(top_node_name(job, &job->node[r->node], own, sizeof(own)),
                      name) == 0;
    return (r->kind == TOP_ROW_JOB || r->kind == TOP_ROW_PAST) &&
           strcmp(look->more[r->job].name, name) == 0;
}

static bool row_takes_cursor(const struct top_row *r)
{
    return r->kind != TOP_ROW_WHY && r->kind != TOP_ROW_CURVE;
}

/* Keeps what is selected on the screen. */
static void scroll_rows(struct top_view *v, const struct top_rows *rows)
{
    size_t last = rows->count > v->height ? rows->count - v->height : 0;

    v->first = v->at < v->first ? v->at : v->first;
    if (v->height && v->at >= v->first + v->height)
        v->first = v->at - v->height + 1;
    v->first = v->first > last ? last : v->first;
}

void top_view_arrange(struct top_view *v, const struct top_look *look,
                      struct top_rows *rows)
{
    size_t live = 0, found;
    struct sorted_row *sorted;
    struct top_rows order = { .count = 0 };

    rows->count = 0;
    while (live < look->jobs.count && is_live(&look->jobs.job[live]))
        live++;
    sorted = xcalloc(live + 1, sizeof(*sorted));
    for (size_t i = 0; i < live; i++)
        sorted[i] = (struct sorted_row){ .row.job = i,
                                         .value = job_sort_value(v, look, i),
                                         .name = look->jobs.job[i].name };
    add_sorted_rows(v, &order, sorted, live);
    for (size_t i = 0; i < live; i++)
        add_live_job(v, look, order.row[i].job, live, rows);
    free(sorted);
    free(order.row);
    add_past_jobs(v, look, live, rows);
    for (found = 0; *v->chosen && found < rows->count; found++)
        if (row_is_chosen(&rows->row[found], look, v->chosen))
            break;
    v->at = !*v->chosen ? 0 : found < rows->count ? found : v->at;
    v->at = rows->count && v->at >= rows->count ? rows->count - 1 : v->at;
    while (v->at > 0 && !row_takes_cursor(&rows->row[v->at]))
        v->at--;
    scroll_rows(v, rows);
}

/* -- moving ----------------------------------------------------------------------- */

static void choose_row(struct top_view *v, const struct top_look *look,
                       const struct top_rows *rows, size_t at)
{
    const struct top_row *r = &rows->row[at];
    const struct job_view *job = &look->jobs.job[r->job];

    v->at = at;
    if (at == 0) /* the worst one, whichever that will be */
        *v->chosen = '\0';
    else if (r->kind == TOP_ROW_ENDED)
        snprintf(v->chosen, sizeof(v->chosen), "%s", ended_name);
    else if (r->kind == TOP_ROW_NODE)
        top_node_name(job, &job->node[r->node], v->chosen, sizeof(v->chosen));
    else
        memcpy(v->chosen, look->more[r->job].name, sizeof(v->chosen));
}

/* By so many rows, or to the first or last one; over those that take no cursor. */
static void move_cursor(struct top_view *v, const struct top_look *look,
                        const struct top_rows *rows, long by)
{
    long at = (long)v->at + by, last = (long)rows->count - 1, way = by < 0 ? -1 : 1;

    if (rows->count == 0)
        return;
    at = at < 0 ? 0 : at > last ? last : at;
    while (at >= 0 && at <= last && !row_takes_cursor(&rows->row[at]))
        at += way;
    if (at < 0 || at > last)
        return;
    choose_row(v, look, rows, (size_t)at);
    scroll_rows(v, rows);
}

static void scroll_page(struct top_view *v, long by)
{
    long most = v->lines > v->height ? (long)(v->lines - v->height) : 0;
    long to = (long)v->scroll + by;

    v->scroll = (size_t)(to < 0 ? 0 : to > most ? most : to);
}

/* How far a key moves; 0: it moves nothing. */
static long movement(int key, size_t height)
{
    const long page = height > 2 ? (long)height - 1 : 1, end = 1L << 30;
    const struct {
        int key;
        long by;
    } moves[] = { { TOP_KEY_UP, -1 },          { 'k', -1 },
                  { TOP_KEY_DOWN, 1 },         { 'j', 1 },
                  { TOP_KEY_PAGE_UP, -page },  { CTRL('b'), -page },
                  { TOP_KEY_PAGE_DOWN, page }, { CTRL('f'), page },
                  { CTRL('u'), -page / 2 },    { CTRL('d'), page / 2 },
                  { TOP_KEY_HOME, -end },      { 'g', -end },
                  { TOP_KEY_END, end },        { 'G', end } };

    for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++)
        if (moves[i].key == key)
            return moves[i].by;
    return 0;
}

/* -- keys ------------------------------------------------------------------------- */

static void toggle_fold(struct top_view *v, const struct top_look *look,
                        const struct top_rows *rows)
{
    const struct top_row *r = &rows->row[v->at];
    struct top_fold *fold = find_fold(v, look->more[r->job].name);
    size_t head = v->at;

    if (r->kind == TOP_ROW_ENDED || r->kind == TOP_ROW_PAST) {
        v->ended_open = !v->ended_open;
        snprintf(v->chosen, sizeof(v->chosen), "%s", ended_name);
        return;
    }
    while (head > 0 && rows->row[head].kind != TOP_ROW_JOB)
        head--;
    if (!fold) {
        v->fold = xrealloc(v->fold, (v->folds + 1) * sizeof(*v->fold));
        fold = &v->fold[v->folds++];
        memcpy(fold->name, look->more[r->job].name, sizeof(fold->name));
    }
    fold->is_open = !rows->row[head].is_open;
    choose_row(v, look, rows, head);
}

static void open_page(struct top_view *v, const struct top_look *look,
                      const struct top_rows *rows, enum top_page page)
{
    const struct top_row *r = &rows->row[v->at];
    const struct job_view *job = &look->jobs.job[r->job];

    if (r->kind == TOP_ROW_ENDED) {
        toggle_fold(v, look, rows);
        return;
    }
    v->page = r->kind == TOP_ROW_NODE ? page : TOP_JOB;
    v->scroll = 0;
    if (r->kind == TOP_ROW_NODE)
        top_node_name(job, &job->node[r->node], v->opened, sizeof(v->opened));
    else
        memcpy(v->opened, look->more[r->job].name, sizeof(v->opened));
}

static void type_filter(struct top_view *v, int key)
{
    size_t length = strlen(v->filter);

    if (key == '\r' || key == '\n' || key == TOP_KEY_ESC)
        v->types_filter = false;
    if (key == TOP_KEY_ESC || key == CTRL('u'))
        *v->filter = '\0';
    else if ((key == 0x7f || key == '\b') && length > 0)
        v->filter[length - 1] = '\0';
    else if (key > ' ' && key < 0x7f && length + 1 < sizeof(v->filter)) {
        v->filter[length] = (char)key;
        v->filter[length + 1] = '\0';
    }
    *v->chosen = '\0';
    v->at = 0;
}

static void change_sort(struct top_view *v, unsigned by)
{
    v->sort = (v->sort + by) % TOP_SORTS;
    *v->chosen = '\0';
}

static void press_in_list(struct top_view *v, const struct top_look *look,
                          const struct top_rows *rows, int key)
{
    if (key == '/')
        v->types_filter = true;
    else if (key == 's' || key == '>')
        change_sort(v, 1);
    else if (key == '<')
        change_sort(v, TOP_SORTS - 1);
    else if (key == 'r' || key == 'I')
        v->reversed = !v->reversed;
    else if (key == 'f')
        v->faults_only = !v->faults_only;
    else if (key == TOP_KEY_ESC) {
        *v->filter = '\0';
        v->faults_only = false;
    } else if (rows->count && key == ' ')
        toggle_fold(v, look, rows);
    else if (rows->count && (key == '\r' || key == '\n'))
        open_page(v, look, rows, TOP_NODE);
    else if (rows->count && (key == 'l' || key == 't'))
        open_page(v, look, rows, key == 'l' ? TOP_LOG : TOP_STACKS);
    else
        move_cursor(v, look, rows, movement(key, v->height));
}

static void press_in_page(struct top_view *v, int key)
{
    bool of_node = v->page == TOP_NODE || v->page == TOP_LOG || v->page == TOP_STACKS;

    if (key == TOP_KEY_ESC || key == 0x7f || key == '\b') {
        v->page = v->page == TOP_LOG || v->page == TOP_STACKS ? TOP_NODE : TOP_LIST;
        v->scroll = 0;
    } else if (of_node && (key == 'l' || key == 't')) {
        v->page = key == 'l' ? TOP_LOG : TOP_STACKS;
        v->scroll = 0;
    } else {
        scroll_page(v, movement(key, v->height));
    }
}

void top_view_press(struct top_view *v, const struct top_look *look,
                    const struct top_rows *rows, int key)
{
    if (v->types_filter && v->page == TOP_LIST)
        type_filter(v, key);
    else if (key == 'q' || key == 'Q' || key == CTRL('c'))
        v->quits = true;
    else if (key == '?' || key == 'h') {
        v->page = v->page == TOP_HELP ? TOP_LIST : TOP_HELP;
        v->scroll = 0;
    } else if (v->page == TOP_LIST)
        press_in_list(v, look, rows, key);
    else
        press_in_page(v, key);
}

const struct job_view *top_view_opened(const struct top_view *v,
                                       const struct top_look *look,
                                       const struct msg_node_status **node,
                                       const struct top_job **more)
{
    char name[TOP_NAME_BYTES];

    *node = NULL;
    for (size_t i = 0; i < look->jobs.count; i++) {
        const struct job_view *job = &look->jobs.job[i];
        size_t length = strlen(look->more[i].name);

        *more = &look->more[i];
        if (strncmp(v->opened, look->more[i].name, length) != 0)
            continue;
        if (v->opened[length] == '\0')
            return job;
        for (size_t n = 0; v->opened[length] == '/' && n < job->nodes; n++)
            if (strcmp(top_node_name(job, &job->node[n], name, sizeof(name)),
                       v->opened) == 0) {
                *node = &job->node[n];
                return job;
            }
    }
    return NULL;
}
