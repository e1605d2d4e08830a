/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ui/top_frame.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/crunctl/ui/status_tables.h"
#include "launcher/crunctl/ui/top_graph.h"
#include "launcher/crunctl/ui/top_line.h"
#include "launcher/crunctl/ui/top_page.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/wire/protocol/proto.h"

#define NAME_MIN 12
#define NAME_MAX 32
#define BAR_COLUMNS 4
#define GRAPH_MAX 60
#define CURVES_TEXT 50 /* what is beside the curves of a job */
#define NOTE_COLUMNS 24

/* -- columns ---------------------------------------------------------------------- */

enum column { NAME, STATE, RANKS, STEP, RATE, LOSS, GPU, MEMORY, NOTE, COLUMNS };

/* From the left, as far as there is room. */
static const struct {
    const char *heading;
    unsigned width;
    bool is_number; /* to the right */
    enum top_sort sort;
} columns[COLUMNS] = {
    [NAME] = { "NAME", NAME_MIN, false, TOP_SORT_NAME },
    [STATE] = { "STATE", 11, false, TOP_SORT_FAULT },
    [RANKS] = { "RANKS", 9, false, TOP_SORTS },
    [STEP] = { "STEP", 9, true, TOP_SORT_STEP },
    [RATE] = { "STEPS/S", 7, true, TOP_SORT_RATE },
    [LOSS] = { "LOSS", 9, true, TOP_SORT_LOSS },
    [GPU] = { "GPU", BAR_COLUMNS + 5, false, TOP_SORT_GPU },
    [MEMORY] = { "MEM", 5, true, TOP_SORT_MEMORY },
    [NOTE] = { "NOTE", 12, false, TOP_SORTS },
};

struct frame {
    const struct top_view *view;
    const struct top_look *look;
    const struct terminal *terminal;
    FILE *out;
    unsigned width[COLUMNS]; /* 0: it is left out */
};

/* Whether a column has anything, and how wide the names are. */
static void note_contents(const struct top_look *look, bool *has, unsigned *name)
{
    for (size_t j = 0; j < look->jobs.count; j++) {
        const struct job_view *job = &look->jobs.job[j];
        size_t width = strlen(job->name) + 2;

        *name = width > *name ? (unsigned)width : *name;
        for (size_t i = 0; i < job->nodes; i++) {
            const struct msg_heartbeat *p = &job->node[i].progress;

            width = strlen(job->node[i].host) + 4;
            *name = width > *name ? (unsigned)width : *name;
            has[STEP] |= p->step > 0;
            has[RATE] |= *p->steps_per_s != '\0';
            has[LOSS] |= *p->loss != '\0';
            has[GPU] |= p->gpus.count > 0;
        }
    }
    has[MEMORY] = has[GPU];
}

/* The last column takes the rest. */
static void fit_columns(struct frame *f)
{
    bool has[COLUMNS] = {
        [NAME] = true, [STATE] = true, [RANKS] = true, [NOTE] = true
    };
    unsigned name = NAME_MIN, left = f->terminal->columns + 1;
    unsigned name_max = left / 4 < NAME_MAX ? left / 4 : NAME_MAX;

    note_contents(f->look, has, &name);
    for (unsigned c = 0; c < COLUMNS; c++) {
        unsigned width = c != NAME         ? columns[c].width
                         : name > name_max ? name_max
                                           : name;

        if (!has[c])
            continue;
        if (width >= left)
            return;
        f->width[c] = c == NOTE ? left - 1 : width;
        left -= f->width[c] + 1;
    }
}

static void put_cells(const struct frame *f, struct top_line *l,
                      char cell[COLUMNS][128], const enum text_style *style)
{
    for (unsigned c = 0; c < COLUMNS; c++)
        if (f->width[c])
            top_line_cell(l, style[c],
                          columns[c].is_number ? -(int)f->width[c] : (int)f->width[c],
                          cell[c]);
}

/* -- numbers ---------------------------------------------------------------------- */

/* "18,230", "1,000k" */
static void format_count(uint64_t n, char *buf, size_t size)
{
    const char *unit = n >= 10000000 ? "k" : "";
    uint64_t shown = n >= 10000000 ? n / 1000 : n;

    if (shown >= 1000000)
        snprintf(buf, size, "%" PRIu64 ",%03" PRIu64 ",%03" PRIu64 "%s",
                 shown / 1000000, shown / 1000 % 1000, shown % 1000, unit);
    else if (shown >= 1000)
        snprintf(buf, size, "%" PRIu64 ",%03" PRIu64 "%s", shown / 1000, shown % 1000,
                 unit);
    else
        snprintf(buf, size, "%" PRIu64 "%s", shown, unit);
}

static void put_gpus(const struct frame *f, const struct msg_gpus *g,
                     char cell[COLUMNS][128])
{
    char bar[TOP_GRAPH_BYTES(BAR_COLUMNS)];

    if (g->count && g->percent >= 0)
        snprintf(cell[GPU], sizeof(cell[GPU]), "%s%4" PRId32 "%%",
                 top_graph_bar(g->percent / 100.0, BAR_COLUMNS, f->terminal->utf8, bar,
                               sizeof(bar)),
                 g->percent);
    if (g->total_mib)
        snprintf(cell[MEMORY], sizeof(cell[MEMORY]), "%.*fG", g->used_mib < 10 * 1024,
                 g->used_mib / 1024.0);
}

/* Of all nodes: the mean use, and the fullest memory. */
static struct msg_gpus sum_up_gpus(const struct job_view *job)
{
    struct msg_gpus sum = { .percent = -1 };
    int64_t percent = 0, known = 0;

    for (size_t i = 0; i < job->nodes; i++) {
        const struct msg_gpus *g = &job->node[i].progress.gpus;

        sum.count += g->count;
        if (g->count && g->percent >= 0) {
            percent += (int64_t)g->percent * g->count;
            known += g->count;
        }
        if (g->used_mib >= sum.used_mib) {
            sum.used_mib = g->used_mib;
            sum.total_mib = g->total_mib ? g->total_mib : sum.total_mib;
        }
    }
    sum.percent = known ? (int32_t)(percent / known) : -1;
    return sum;
}

/* The first that tells it, of the ranks' order. */
static const struct msg_node_status *telling_node(const struct job_view *job)
{
    for (size_t i = 0; i < job->nodes; i++)
        if (job->node[i].group_rank >= 0 && *job->node[i].progress.steps_per_s)
            return &job->node[i];
    return NULL;
}

/* -- rows ------------------------------------------------------------------------- */

static const char *fold_mark(const struct frame *f, const struct top_row *r)
{
    if (f->terminal->utf8)
        return r->is_open ? "▾" : "▸";
    return r->is_open ? "-" : "+";
}

static enum text_style fault_style(unsigned fault)
{
    return fault >= 4 ? STYLE_BAD : fault ? STYLE_WARN : STYLE_PLAIN;
}

static void print_curve(struct top_line *l, const char *title, const float *value,
                        unsigned points, size_t width, bool from_zero, const char *now)
{
    char graph[TOP_GRAPH_BYTES(GRAPH_MAX)];
    unsigned known = 0;

    for (unsigned i = 0; i < points; i++)
        known += !isnan(value[i]);
    if (known < 2)
        return;
    top_line_add(l, STYLE_DIM, "%s ", title);
    top_line_add(l, STYLE_GOOD, "%s",
                 top_graph_curve(value, points, width, from_zero, l->terminal->utf8,
                                 graph, sizeof(graph)));
    top_line_add(l, STYLE_PLAIN, " %s  ", now);
}

/* How far it is, if it tells how many steps there are. */
static void print_progress(struct top_line *l, const struct job_view *job, double rate)
{
    uint64_t step = job_view_step(job), steps = job_view_steps(job);
    char left[32];

    if (!step || steps < step)
        return;
    top_line_add(l, STYLE_PLAIN, "%" PRIu64 " %%", step * 100 / steps);
    if (rate > 0 && steps > step)
        top_line_add(
            l, STYLE_DIM, ", %s left",
            clock_format_duration((uint64_t)(1000 * (double)(steps - step) / rate),
                                  left, sizeof(left)));
}

/* Its rate, its loss and how far it is, in the rest of the line. */
static void print_curves(const struct frame *f, struct top_line *l,
                         const struct top_row *r)
{
    const struct job_view *job = &f->look->jobs.job[r->job];
    const struct top_job *more = &f->look->more[r->job];
    const struct msg_node_status *told = telling_node(job);
    size_t left = f->terminal->columns - l->used, width = 4;

    if (left > CURVES_TEXT + 2 * width)
        width = (left - CURVES_TEXT) / 2 < GRAPH_MAX ? (left - CURVES_TEXT) / 2
                                                     : GRAPH_MAX;
    print_curve(l, "steps/s", more->rate, more->points, width, true,
                told ? told->progress.steps_per_s : "");
    print_curve(l, "loss", more->loss, more->points, width, false,
                told ? told->progress.loss : "");
    print_progress(l, job, told ? strtod(told->progress.steps_per_s, NULL) : 0);
}

static void print_curve_row(const struct frame *f, struct top_line *l,
                            const struct top_row *r)
{
    top_line_reach(l, 2);
    print_curves(f, l, r);
}

static void print_job_row(const struct frame *f, struct top_line *l,
                          const struct top_row *r)
{
    const struct job_view *job = &f->look->jobs.job[r->job];
    const struct msg_node_status *told = telling_node(job);
    const struct msg_gpus gpus = sum_up_gpus(job);
    const struct msg_job_status *s = &job->status;
    char cell[COLUMNS][128] = { "" }, age[32];
    enum text_style style[COLUMNS] = { [NAME] = STYLE_BOLD };
    struct frame own = *f;
    bool has_room;

    snprintf(cell[NAME], sizeof(cell[NAME]), "%s %s", fold_mark(f, r), job->name);
    if (r->faults && s->state == JOB_RUNNING && !job->odd_state)
        snprintf(cell[STATE], sizeof(cell[STATE]), "%u fault%s", r->faults,
                 text_plural(r->faults));
    else
        snprintf(cell[STATE], sizeof(cell[STATE]), "%s", job_view_state(job));
    style[STATE] = r->faults ? STYLE_WARN : job_state_style(job_view_state(job));
    if (!job->is_silent && s->workers)
        snprintf(cell[RANKS], sizeof(cell[RANKS]), "%" PRIu32, s->workers);
    if (job_view_step(job))
        format_count(job_view_step(job), cell[STEP], sizeof(cell[STEP]));
    if (told) {
        snprintf(cell[RATE], sizeof(cell[RATE]), "%s", told->progress.steps_per_s);
        snprintf(cell[LOSS], sizeof(cell[LOSS]), "%s", told->progress.loss);
    }
    put_gpus(f, &gpus, cell);
    clock_format_duration(s->state_ms, age, sizeof(age));
    if (s->restarts)
        snprintf(cell[NOTE], sizeof(cell[NOTE]), "restart %" PRIu32 " of %" PRIu32,
                 s->restarts, s->max_restarts);
    else if (!job->is_silent)
        snprintf(cell[NOTE], sizeof(cell[NOTE]), "for %s", age);
    has_room = !r->is_open && f->width[NOTE] > NOTE_COLUMNS + CURVES_TEXT;
    if (has_room)
        own.width[NOTE] = NOTE_COLUMNS;
    put_cells(&own, l, cell, style);
    if (has_room)
        print_curves(f, l, r);
}

static void print_node_row(const struct frame *f, struct top_line *l,
                           const struct top_row *r)
{
    const struct top_job *more = &f->look->more[r->job];
    const struct msg_node_status *n = &f->look->jobs.job[r->job].node[r->node];
    uint64_t common = job_view_takes_part(n)
                          ? job_view_common_step(&f->look->jobs.job[r->job])
                          : 0;
    char cell[COLUMNS][128] = { "" };
    unsigned fault = top_node_fault(n, more, cell[STATE], sizeof(cell[STATE]));
    enum text_style style[COLUMNS] = { [NAME] = fault_style(fault) };

    snprintf(cell[NAME], sizeof(cell[NAME]), "  %s %s", fault ? "!" : " ", n->host);
    style[STATE] = fault ? fault_style(fault) : job_state_style(cell[STATE]);
    if (n->group_rank >= 0 && n->workers == 1)
        snprintf(cell[RANKS], sizeof(cell[RANKS]), "%" PRIu32, n->first_rank);
    else if (n->group_rank >= 0)
        snprintf(cell[RANKS], sizeof(cell[RANKS]), "%" PRIu32 "-%" PRIu32,
                 n->first_rank, n->first_rank + n->workers - 1);
    if (n->progress.step)
        format_count(common ? common : n->progress.step, cell[STEP],
                     sizeof(cell[STEP]));
    snprintf(cell[RATE], sizeof(cell[RATE]), "%s", n->progress.steps_per_s);
    snprintf(cell[LOSS], sizeof(cell[LOSS]), "%s", n->progress.loss);
    put_gpus(f, &n->progress.gpus, cell);
    snprintf(cell[NOTE], sizeof(cell[NOTE]), "%s", n->progress.note);
    style[NOTE] = fault ? STYLE_WARN : STYLE_DIM;
    put_cells(f, l, cell, style);
}

/* What a job waits for, or why it was restarted. */
static void print_why_row(const struct frame *f, struct top_line *l,
                          const struct top_row *r)
{
    const struct job_view *job = &f->look->jobs.job[r->job];
    const struct top_job *more = &f->look->more[r->job];
    const struct msg_job_status *s = &job->status;
    char age[32];

    top_line_reach(l, 2);
    if (job->odd_state)
        top_line_add(l, STYLE_WARN, "%s", s->text);
    else if (more->still_ms)
        top_line_add(l, *more->awaited ? STYLE_BAD : STYLE_WARN, "%s for %s%s%s",
                     job_view_step(job) ? "no new step" : "nothing moves on any rank",
                     clock_format_duration(more->still_ms, age, sizeof(age)),
                     *more->awaited ? ": " : "", more->awaited);
    else if (*s->notice)
        top_line_add(l, STYLE_WARN, "%s", s->notice);
    else
        top_line_add(l, STYLE_DIM, "last failure: %s", s->text);
}

/* "10 finished, 2 failed": the jobs from `first` up to `end`. */
static void print_states(struct top_line *l, const struct job_views *jobs, size_t first,
                         size_t end)
{
    for (size_t i = first; i < end; i++) {
        const char *state = job_view_state(&jobs->job[i]);
        size_t count = 0, earliest = i;

        for (size_t j = end; j-- > first;)
            if (strcmp(job_view_state(&jobs->job[j]), state) == 0) {
                count++;
                earliest = j;
            }
        if (earliest == i)
            top_line_add(l, job_state_style(state), "%s%zu %s", i > first ? ", " : "",
                         count, state);
    }
}

static void print_ended_row(const struct frame *f, struct top_line *l,
                            const struct top_row *r)
{
    const struct job_views *jobs = &f->look->jobs;

    top_line_add(l, STYLE_BOLD, "%s %zu ended: ", fold_mark(f, r),
                 jobs->count - r->job);
    print_states(l, jobs, r->job, jobs->count);
}

static void print_past_row(const struct frame *f, struct top_line *l,
                           const struct top_row *r)
{
    const struct job_view *job = &f->look->jobs.job[r->job];
    char name[JOB_NAME_SIZE + 2], end[1024];

    snprintf(name, sizeof(name), "  %s", job->name);
    top_line_cell(l, STYLE_PLAIN, (int)f->width[NAME], name);
    top_line_cell(l, job_state_style(job_view_state(job)), (int)f->width[STATE],
                  job_view_state(job));
    top_line_add(l, STYLE_PLAIN, "%s", job_view_describe_end(job, end, sizeof(end)));
}

static void print_row(const struct frame *f, const struct top_row *r, bool is_chosen)
{
    static void (*const print[])(const struct frame *, struct top_line *,
                                 const struct top_row *) = {
        [TOP_ROW_JOB] = print_job_row,     [TOP_ROW_WHY] = print_why_row,
        [TOP_ROW_CURVE] = print_curve_row, [TOP_ROW_NODE] = print_node_row,
        [TOP_ROW_ENDED] = print_ended_row, [TOP_ROW_PAST] = print_past_row,
    };
    struct top_line l;

    top_line_begin(&l, f->terminal, is_chosen, f->out);
    print[r->kind](f, &l, r);
    top_line_end(&l);
}

/* -- the frame -------------------------------------------------------------------- */

static void print_title(const struct frame *f, const struct top_rows *rows)
{
    const struct job_views *jobs = &f->look->jobs;
    const struct top_view *v = f->view;
    struct top_line l;
    size_t live = 0;

    while (live < jobs->count && jobs->job[live].status.state != JOB_DONE)
        live++;
    top_line_begin(&l, f->terminal, false, f->out);
    top_line_add(&l, STYLE_BOLD, "crun ");
    print_states(&l, jobs, 0, live);
    if (live == 0)
        top_line_add(&l, STYLE_PLAIN, "no job runs");
    if (*f->look->error)
        top_line_add(&l, STYLE_BAD, "  %s", f->look->error);
    if (*v->filter)
        top_line_add(&l, STYLE_WARN, "  filter: %s", v->filter);
    if (v->faults_only)
        top_line_add(&l, STYLE_WARN, "  only faults");
    if (v->page == TOP_LIST && rows->count)
        top_line_add(&l, STYLE_DIM, "  sorted by %s%s", top_sort_name(v->sort),
                     v->reversed ? ", reversed" : "");
    if (v->page == TOP_LIST && rows->count > v->height)
        top_line_add(&l, STYLE_DIM, "  rows %zu-%zu of %zu", v->first + 1,
                     v->first + v->height, rows->count);
    top_line_end(&l);
}

static void print_heading(const struct frame *f)
{
    struct top_line l;

    top_line_begin(&l, f->terminal, false, f->out);
    for (unsigned c = 0; c < COLUMNS; c++)
        if (f->width[c])
            top_line_cell(&l, columns[c].sort == f->view->sort ? STYLE_BOLD : STYLE_DIM,
                          columns[c].is_number ? -(int)f->width[c] : (int)f->width[c],
                          columns[c].heading);
    top_line_end(&l);
}

/* What the selected row has no room for. */
static void print_chosen(const struct frame *f, const struct top_rows *rows)
{
    const struct top_row *r = rows->count ? &rows->row[f->view->at] : NULL;
    const struct job_view *job = r ? &f->look->jobs.job[r->job] : NULL;
    const struct msg_node_status *n;
    char text[1024];
    struct top_line l;

    top_line_begin(&l, f->terminal, false, f->out);
    if (r && r->kind == TOP_ROW_NODE) {
        n = &job->node[r->node];
        top_line_add(&l, STYLE_DIM, "%s", n->host);
        if (top_node_fault(n, &f->look->more[r->job], text, sizeof(text)))
            top_line_add(&l, STYLE_WARN, "  %s", n->progress.note);
        top_line_add(&l, STYLE_DIM, "  heard %s ago%s%s  %s",
                     clock_format_duration(n->heard_ms, text, sizeof(text)),
                     *n->address ? "  " : "", n->address, n->containment);
    } else if (r && r->kind == TOP_ROW_JOB) {
        clock_format_duration(job->status.state_ms, text, sizeof(text));
        top_line_add(&l, STYLE_DIM,
                     "%s  %" PRIu32 " node%s  epoch %" PRIu64 "  for %s  %s", job->name,
                     job->status.nodes, text_plural(job->status.nodes),
                     job->status.epoch, text, job->status.program);
    }
    top_line_end(&l);
}

/* Those that fit. */
static void print_keys(const struct frame *f)
{
    static const char *const list[] = { "q",    "quit",   "?",      "help", "Enter",
                                        "open", "/",      "filter", "s",    "sort",
                                        "f",    "faults", "space",  "fold", "l",
                                        "log",  "t",      "stacks", NULL };
    static const char *const page[] = { "q",    "quit", "Esc", "back", "?",
                                        "help", "l",    "log", "t",    "stacks",
                                        "PgDn", "down", NULL };
    static const char *const other[] = { "q",    "quit", "Esc", "back",
                                         "PgDn", "down", NULL };
    const struct top_view *v = f->view;
    const char *const *key = v->page == TOP_LIST                         ? list
                             : v->page == TOP_JOB || v->page == TOP_HELP ? other
                                                                         : page;
    struct top_line l;

    top_line_begin(&l, f->terminal, false, f->out);
    if (v->types_filter && v->page == TOP_LIST) {
        top_line_add(&l, STYLE_BOLD, "/%s_", v->filter);
        top_line_add(&l, STYLE_DIM, "  Enter keeps it, Esc ends it");
        key += sizeof(list) / sizeof(list[0]) - 1;
    }
    for (; *key && l.used + strlen(key[0]) + strlen(key[1]) + 3 <= f->terminal->columns;
         key += 2) {
        top_line_add(&l, STYLE_BOLD, "%s%s", l.used ? "  " : "", key[0]);
        top_line_add(&l, STYLE_DIM, " %s", key[1]);
    }
    top_line_end(&l);
}

static void print_list(const struct frame *f, const struct top_rows *rows)
{
    const struct top_view *v = f->view;
    size_t i = 0;

    print_heading(f);
    for (; i < v->height && v->first + i < rows->count; i++)
        print_row(f, &rows->row[v->first + i], v->first + i == v->at);
    for (; i < v->height; i++)
        fputc('\n', f->out);
    print_chosen(f, rows);
}

/* The part of a page that is on the screen. */
static void print_part(struct top_view *v, const struct frame *f)
{
    char *text, *line, *rest;
    size_t size, lines = 0;
    FILE *page = open_memstream(&text, &size);

    top_page_print(v, f->look, f->terminal, page);
    fclose(page);
    for (rest = text; *rest; rest++)
        lines += *rest == '\n';
    v->lines = lines;
    if (v->scroll + v->height > lines)
        v->scroll = lines > v->height ? lines - v->height : 0;
    rest = text;
    lines = 0;
    while ((line = strsep(&rest, "\n")) && rest)
        if (lines++ >= v->scroll && lines <= v->scroll + v->height)
            fprintf(f->out, "%s\n", line);
    for (; lines < v->height; lines++)
        fputc('\n', f->out);
    free(text);
}

void top_frame_print(struct top_view *v, const struct top_look *look,
                     const struct top_rows *rows, const struct terminal *t, FILE *out)
{
    struct frame f = { .view = v, .look = look, .terminal = t, .out = out };

    print_title(&f, rows);
    fit_columns(&f);
    if (v->page == TOP_LIST)
        print_list(&f, rows);
    else
        print_part(v, &f);
    print_keys(&f);
}
