/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ui/status_tables.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "launcher/crunctl/ui/text_table.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/proto.h"

#define DAY_MS (24 * 3600 * 1000ull)
#define HEARTBEAT_MS 5000 /* how much older than its age the step of a node may be */
#define ENDED_SHOWN 5     /* beside jobs that run */

/* -- states ----------------------------------------------------------------------- */

enum text_style job_state_style(const char *state)
{
    static const struct {
        const char *state;
        enum text_style style;
    } styles[] = {
        { "running", STYLE_GOOD },    { "finished", STYLE_GOOD },
        { "failed", STYLE_BAD },      { "quarantined", STYLE_BAD },
        { "stopped", STYLE_DIM },     { "done", STYLE_DIM },
        { "not started", STYLE_BAD }, { "killed", STYLE_BAD },
        { "lost", STYLE_BAD },        { "silent", STYLE_BAD },
    };

    for (size_t i = 0; i < sizeof(styles) / sizeof(styles[0]); i++)
        if (strcmp(styles[i].state, state) == 0)
            return styles[i].style;
    return STYLE_WARN; /* it passes */
}

static const char *skip_prefix(const char *string, const char *prefix)
{
    size_t length = strlen(prefix);

    return strncmp(string, prefix, length) == 0 ? string + length : string;
}

/* Why a job that has ended did, without what its state says already. */
static const char *ended_text(const struct msg_job_status *s)
{
    return s->reason == JOB_REASON_SUCCESS ? "" : skip_prefix(s->text, "stopped ");
}

static const char *restart_cause(enum job_cause cause)
{
    switch (cause) {
    case JOB_CAUSE_FAILURE:
        return "after a failure";
    case JOB_CAUSE_LOST:
        return "without a lost node";
    case JOB_CAUSE_SCALE_UP:
        return "with new nodes";
    case JOB_CAUSE_DRAIN:
        return "without a drained node";
    default:
        return "";
    }
}

/* -- lines ------------------------------------------------------------------------ */

/* A line of several parts, which continues in the next one where it is too long. */
struct parts_line {
    const struct terminal *terminal;
    FILE *out;
    size_t used;
};

__attribute__((format(printf, 3, 4))) static void
add_part(struct parts_line *l, enum text_style style, const char *fmt, ...)
{
    char text[1024], shown[2048];
    size_t width;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (!*text)
        return;
    text_printable(text, shown, sizeof(shown));
    width = terminal_text_width(shown);
    if (l->used && l->terminal->columns && l->used + 2 + width > l->terminal->columns) {
        fputs("\n  ", l->out);
        l->used = 2;
    } else if (l->used) {
        fputs("  ", l->out);
        l->used += 2;
    }
    fprintf(l->out, "%s%s%s", terminal_style_begin(l->terminal->colours, style), shown,
            terminal_style_end(l->terminal->colours, style));
    l->used += width;
}

/* "12 s ago", or the date if that is more than a day. */
static char *format_when(uint64_t ago_ms, char *buf, size_t size)
{
    time_t then = (time_t)((clock_wall_ms() - ago_ms) / 1000);
    char age[32];
    struct tm t;

    if (ago_ms >= DAY_MS) {
        localtime_r(&then, &t);
        strftime(buf, size, "%Y-%m-%d %H:%M", &t);
    } else {
        snprintf(buf, size, "%s ago", clock_format_duration(ago_ms, age, sizeof(age)));
    }
    return buf;
}

/* When the job ended: "12 s ago", or of one that was killed, "at 02:14 or later". */
static char *format_end(const struct job_view *job, char *buf, size_t size)
{
    uint64_t ago_ms = job->status.state_ms;
    time_t then = (time_t)((clock_wall_ms() - ago_ms) / 1000);
    struct tm t;

    if (!job->is_silent)
        return format_when(ago_ms, buf, size);
    localtime_r(&then, &t);
    strftime(buf, size,
             ago_ms >= DAY_MS ? "%Y-%m-%d %H:%M or later" : "at %H:%M or later", &t);
    return buf;
}

/* By its phases, if they are told: the wall clock may have been set meanwhile. */
static uint64_t ran_ms(const struct msg_job_status *s)
{
    uint64_t phases_ms = job_view_age_ms(&s->time);

    if (phases_ms)
        return phases_ms;
    return s->age_ms > s->state_ms ? s->age_ms - s->state_ms : 0;
}

char *job_view_describe_end(const struct job_view *job, char *buf, size_t size)
{
    const struct msg_job_status *s = &job->status;
    const char *why = ended_text(s);
    size_t used = strlen(format_end(job, buf, size));
    char ran[64];

    if (!job->is_silent)
        used += (size_t)snprintf(buf + used, size - used, ", ran for %s",
                                 clock_format_duration(ran_ms(s), ran, sizeof(ran)));
    if (s->exit_code > 0)
        used += (size_t)snprintf(buf + used, size - used, ", exit code %" PRId32,
                                 s->exit_code);
    if (*why)
        snprintf(buf + used, size - used, ": %s", why);
    return buf;
}

static void add_restarts(struct parts_line *l, const struct msg_job_status *s)
{
    if (s->max_restarts || s->restarts)
        add_part(l, s->restarts ? STYLE_WARN : STYLE_PLAIN,
                 "restarts %" PRIu32 " of %" PRIu32, s->restarts, s->max_restarts);
}

/* Of a job that has been restarted. */
static void add_goodput(struct parts_line *l, const struct msg_job_status *s)
{
    const struct msg_job_time *t = &s->time;
    double age = (double)job_view_age_ms(t);

    if (s->epoch > 1 && age > 0 && !t->unplaced)
        add_part(l, STYLE_PLAIN, "productive %.1f %%",
                 100 * (double)t->productive_ms / age);
}

static void print_live_job(const struct job_view *job, struct parts_line *l)
{
    const struct msg_job_status *s = &job->status;
    const char *state = job_view_state(job);
    char age[64];

    clock_format_duration(s->state_ms, age, sizeof(age));
    if (job->odd_state) {
        add_part(l, job_state_style(state), "%s", state);
        if (job->pid)
            add_part(l, STYLE_PLAIN, "pid %" PRIu32, job->pid);
        return;
    }
    if (s->state == JOB_STOPPING && s->reason == JOB_REASON_NONE)
        add_part(l, job_state_style(state), "%s %s for %s", state,
                 restart_cause(s->cause), age);
    else
        add_part(l, job_state_style(state), "%s for %s", state, age);
    if (s->state == JOB_FORMING)
        add_part(l, STYLE_PLAIN, "%" PRIu32 " of %" PRIu32 " nodes", s->nodes,
                 s->nodes < s->min_nodes ? s->min_nodes : s->max_nodes);
    else if (s->state == JOB_RUNNING)
        add_part(l, STYLE_PLAIN, "%" PRIu32 " worker%s on %" PRIu32 " node%s",
                 s->workers, text_plural(s->workers), s->nodes, text_plural(s->nodes));
    if (s->spares)
        add_part(l, STYLE_PLAIN, "%" PRIu32 " spare%s", s->spares,
                 text_plural(s->spares));
    if (s->state != JOB_FORMING || s->epoch)
        add_part(l, STYLE_PLAIN, "epoch %" PRIu64, s->epoch);
    add_restarts(l, s);
    add_goodput(l, s);
    if (job->pid)
        add_part(l, STYLE_PLAIN, "pid %" PRIu32, job->pid);
    if (s->age_ms > s->state_ms + 1000)
        add_part(l, STYLE_PLAIN, "started %s",
                 format_when(s->age_ms, age, sizeof(age)));
}

static void print_ended_job(const struct job_view *job, struct parts_line *l)
{
    const struct msg_job_status *s = &job->status;
    const char *state = job_view_state(job);
    char text[64];

    add_part(l, job_state_style(state), "%s %s", state,
             format_end(job, text, sizeof(text)));
    if (!job->is_silent)
        add_part(l, STYLE_PLAIN, "ran for %s",
                 clock_format_duration(ran_ms(s), text, sizeof(text)));
    add_restarts(l, s);
    add_goodput(l, s);
    if (s->exit_code >= 0)
        add_part(l, STYLE_PLAIN, "exit code %" PRId32, s->exit_code);
}

/* -- nodes ------------------------------------------------------------------------ */

static const struct text_column node_columns[] = {
    { "NODE", 0 },      { "SLOT", 4 },        { "RANKS", 0 }, { "STATE", 0 },
    { "HEARTBEAT", 1 }, { "CONTAINMENT", 9 }, { "STEP", 0 },  { "STEPS/S", 2 },
    { "LOSS", 3 },      { "GPU", 5 },         { "MEM", 6 },   { "PID", 7 },
    { "ADDRESS", 8 },   { "NOTE", 0 },        { NULL, 0 }
};

/* What they may have done since they were heard from is no difference: all of them have
 * the least step. */
uint64_t job_view_common_step(const struct job_view *job)
{
    uint64_t least = job_view_step(job);

    for (size_t i = 0; i < job->nodes; i++) {
        const struct msg_node_status *n = &job->node[i];
        double rate = strtod(n->progress.steps_per_s, NULL);
        double older = rate * (double)(n->heard_ms + HEARTBEAT_MS) / 1000;

        if (job_view_takes_part(n) && (double)(n->progress.step - least) > older + 1)
            return 0;
    }
    return least;
}

static void add_node_row(struct text_table *t, const struct msg_node_status *s,
                         uint64_t common)
{
    uint64_t step = common && job_view_takes_part(s) ? common : s->progress.step;
    const char *state = proto_node_state_name(s->state);
    char heard[32];

    text_table_cell(t, "%s", s->host);
    text_table_cell(t, s->slot < 0 ? "-" : "%" PRId32, s->slot);
    if (s->group_rank < 0)
        text_table_cell(t, "-");
    else if (s->workers == 1)
        text_table_cell(t, "%" PRIu32, s->first_rank);
    else
        text_table_cell(t, "%" PRIu32 "-%" PRIu32, s->first_rank,
                        s->first_rank + s->workers - 1);
    text_table_cell(t, "%s", state);
    text_table_style(t, job_state_style(state));
    text_table_cell(t, "%s%s", clock_format_duration(s->heard_ms, heard, sizeof(heard)),
                    s->connected ? "" : " (away)");
    text_table_style(t, s->connected ? STYLE_PLAIN : STYLE_BAD);
    text_table_cell(t, "%s", s->containment);
    text_table_cell(t, step ? "%" PRIu64 : "-", step);
    text_table_cell(t, "%s", s->progress.steps_per_s);
    text_table_cell(t, "%s", s->progress.loss);
    /* Two cells: the load of the GPUs, and the memory used on the fullest one. */
    if (s->progress.gpus.count && s->progress.gpus.percent >= 0)
        text_table_cell(t, "%" PRId32 "%%", s->progress.gpus.percent);
    else
        text_table_cell(t, "-");
    if (s->progress.gpus.total_mib)
        text_table_cell(t, "%.*fG", s->progress.gpus.used_mib < 10 * 1024,
                        s->progress.gpus.used_mib / 1024.0);
    else
        text_table_cell(t, "-");
    text_table_cell(t, s->pid ? "%" PRIu32 : "-", s->pid);
    text_table_cell(t, "%s", s->address);
    text_table_cell(t, "%s", s->progress.note);
    if (skip_prefix(s->progress.note, "waits ") == s->progress.note)
        text_table_style(t, STYLE_WARN); /* lags, or has a GPU at fault */
}

static void print_nodes(const struct job_view *job, const struct terminal *t, FILE *out)
{
    struct text_table *table;
    uint64_t common = job_view_common_step(job);

    if (job->nodes == 0)
        return;
    table = text_table_create(node_columns);
    for (size_t i = 0; i < job->nodes; i++)
        add_node_row(table, &job->node[i], common);
    text_table_print(table, t, out);
    text_table_destroy(table);
}

/* -- jobs ------------------------------------------------------------------------- */

static void print_text_line(const char *before, const char *text, enum text_style style,
                            const struct terminal *t, FILE *out)
{
    char shown[2 * ERROR_TEXT_MAX_BYTES + 1];

    if (*text)
        fprintf(out, "%s%s%s%s\n", terminal_style_begin(t->colours, style), before,
                text_printable(text, shown, sizeof(shown)),
                terminal_style_end(t->colours, style));
}

/* Where the rendezvous is, if other nodes could take it over. */
static void print_keepers(const struct msg_job_status *s, const struct terminal *t,
                          FILE *out)
{
    size_t first = strcspn(s->keepers, ",");
    char line[sizeof(s->keepers) + 64];

    if (!*s->keepers)
        return;
    if (s->kept_safely)
        snprintf(line, sizeof(line), "%.*s, also kept by %s", (int)first, s->keepers,
                 s->keepers + first + 2);
    else
        snprintf(line, sizeof(line), "%.*s; the job ends if that node is lost",
                 (int)first, s->keepers);
    print_text_line("rendezvous: ", line, s->kept_safely ? STYLE_PLAIN : STYLE_WARN, t,
                    out);
}

/* The newest step of which each node of the epoch has its part. They are heard from at
 * different times: they may all have a newer one meanwhile. */
static void print_memory(const struct job_view *job, const struct terminal *t,
                         FILE *out)
{
    uint64_t step = UINT64_MAX, copied = UINT64_MAX, bytes = 0, ago_ms = 0;
    char line[256], age[32], copies[64] = "", saved[96] = "no step of all nodes";
    bool is_big;

    for (size_t i = 0; i < job->nodes; i++) {
        const struct msg_node_status *n = &job->node[i];
        const struct msg_memory *m = &n->progress.memory;

        bytes += m->bytes;
        if (n->group_rank < 0)
            continue;
        if (m->step < step) {
            step = m->step;
            ago_ms = n->heard_ms + m->age_ms;
        }
        copied = m->copied < copied ? m->copied : copied;
    }
    if (job->status.state != JOB_RUNNING || bytes == 0)
        return;
    if (step)
        snprintf(saved, sizeof(saved), "step %" PRIu64 ", saved %s ago", step,
                 clock_format_duration(ago_ms, age, sizeof(age)));
    if (step && copied)
        snprintf(copies, sizeof(copies), ", copies of step %" PRIu64 " on other nodes",
                 copied);
    is_big = bytes >= 1 << 30;
    snprintf(line, sizeof(line), "%s%s, %.1f %s in all", saved, copies,
             (double)bytes / (is_big ? 1 << 30 : 1 << 20), is_big ? "GiB" : "MiB");
    print_text_line("checkpoints in memory: ", line, STYLE_PLAIN, t, out);
}

/* Another process has written it: of its control characters only newlines count. */
static void print_ended_report(const char *report, FILE *out)
{
    fputc('\n', out);
    while (*report) {
        size_t length = strcspn(report, "\n");
        char *line = xasprintf("%.*s", (int)length, report);
        char *shown = xmalloc(4 * length + 8);

        fprintf(out, "%s\n", text_printable(line, shown, 4 * length + 8));
        free(shown);
        free(line);
        report += length + (report[length] == '\n');
    }
}

void job_view_print(const struct job_view *job, const struct terminal *t, FILE *out)
{
    const struct msg_job_status *s = &job->status;
    struct parts_line line = { .terminal = t, .out = out };

    add_part(&line, STYLE_BOLD, "%s", job->name);
    if (s->state == JOB_DONE)
        print_ended_job(job, &line);
    else
        print_live_job(job, &line);
    fputc('\n', out);
    if (s->state == JOB_DONE)
        print_text_line("", ended_text(s), STYLE_PLAIN, t, out);
    else if (job->odd_state)
        print_text_line("", s->text, STYLE_PLAIN, t, out);
    else if (*s->notice)
        print_text_line("", s->notice, STYLE_WARN, t, out);
    else if (s->failure.kind != FAILURE_NONE)
        print_text_line("last failure: ", s->text, STYLE_WARN, t, out);
    if (s->state != JOB_DONE)
        print_keepers(s, t, out);
    print_memory(job, t, out);
    print_nodes(job, t, out);
    if (job->report)
        print_ended_report(job->report, out);
}

/* first: the jobs before it run, and must not scroll away. */
static void print_ended_jobs(const struct job_views *v, size_t first, bool all,
                             const struct terminal *t, FILE *out)
{
    static const struct text_column columns[] = { { "ENDED", 0 },    { "RESULT", 0 },
                                                  { "WHEN", 0 },     { "RAN FOR", 2 },
                                                  { "RESTARTS", 3 }, { "EXIT", 1 },
                                                  { "WHY", 0 },      { NULL, 0 } };
    struct text_table *table = text_table_create(columns);
    bool few = !all && first > 0 && v->count - first > ENDED_SHOWN + 1;
    size_t end = few ? first + ENDED_SHOWN : v->count;

    for (size_t i = first; i < end; i++) {
        const struct msg_job_status *s = &v->job[i].status;
        const char *state = job_view_state(&v->job[i]);
        char text[64];

        text_table_cell(table, "%s", v->job[i].name);
        text_table_style(table, STYLE_BOLD);
        text_table_cell(table, "%s", state);
        text_table_style(table, job_state_style(state));
        text_table_cell(table, "%s", format_end(&v->job[i], text, sizeof(text)));
        text_table_cell(table, "%s",
                        v->job[i].is_silent
                            ? "-"
                            : clock_format_duration(ran_ms(s), text, sizeof(text)));
        if (s->max_restarts)
            text_table_cell(table, "%" PRIu32 " of %" PRIu32, s->restarts,
                            s->max_restarts);
        else
            text_table_cell(table, "-");
        text_table_cell(table, s->exit_code > 0 ? "%" PRId32 : "-", s->exit_code);
        text_table_cell(table, "%s", ended_text(s));
    }
    text_table_print(table, t, out);
    text_table_destroy(table);
    if (end < v->count)
        fprintf(out, "and %zu older: crunctl status --all\n", v->count - end);
}

/* "2 running, 1 waiting, 3 finished" */
static void print_counts(const struct job_views *v, FILE *out)
{
    static const char *const states[] = { "running",   "waiting",     "restarting",
                                          "stopping",  "finished",    "failed",
                                          "stopped",   "not started", "left",
                                          "lost",      "killed",      "silent",
                                          "suspended", "unknown" };
    const char *separator = "";

    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        size_t count = 0;

        for (size_t j = 0; j < v->count; j++)
            count += strcmp(job_view_state(&v->job[j]), states[i]) == 0;
        if (count == 0)
            continue;
        fprintf(out, "%s%zu %s", separator, count, states[i]);
        separator = ", ";
    }
    fputs(v->count ? "\n" : "no jobs\n", out);
}

void job_views_print(const struct job_views *v, bool all, const struct terminal *t,
                     FILE *out)
{
    size_t i = 0;

    print_counts(v, out);
    for (; i < v->count && v->job[i].status.state != JOB_DONE; i++) {
        fputc('\n', out);
        job_view_print(&v->job[i], t, out);
    }
    if (i == v->count)
        return;
    fputc('\n', out);
    print_ended_jobs(v, i, all, t, out);
}
