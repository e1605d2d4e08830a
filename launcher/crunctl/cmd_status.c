/* SPDX-License-Identifier: MIT */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/crunctl/ctl_client.h"
#include "launcher/crunctl/ctl_jobs.h"
#include "launcher/crunctl/ui/job_text.h"
#include "launcher/crunctl/ui/terminal.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/xalloc.h"
#include "rendezvous/protocol/proto_fields.h"
#include "rendezvous/protocol/proto_words.h"
#include "rendezvous/views/job_json.h"

/*
 * crunctl status: the jobs and the nodes of each, as tables or as JSON; and crunctl
 * top, which is status --watch.
 */
#define WATCH_MS_MIN 100
#define WATCH_MS_MAX 3600000
#define FIELD(name) OPT_FIELD(struct ctl_options, name)

/* -- requests --------------------------------------------------------------------- */

struct job_names {
    const struct ctl_jobs *local; /* left out: they are shown already; NULL: none */
    char (*run_id)[RUN_ID_MAX + 1];
    size_t count;
};

static bool is_local_job(const struct ctl_jobs *local, const struct msg_job_status *s)
{
    char instance[ID128_HEX_SIZE];

    id128_format(&s->instance, instance);
    for (size_t i = 0; local && i < local->count; i++)
        if (strcmp(local->job[i].instance, instance) == 0)
            return true;
    return false;
}

static void on_job_name(void *arg, const struct msg *m)
{
    struct job_names *names = arg;

    if (m->type != MSG_JOB_STATUS || is_local_job(names->local, &m->job_status))
        return;
    names->run_id = xrealloc(names->run_id,
                             (names->count + 1) * sizeof(*names->run_id));
    memcpy(names->run_id[names->count++], m->job_status.run_id, RUN_ID_MAX + 1);
}

static void on_job_detail(void *arg, const struct msg *m)
{
    if (m->type == MSG_JOB_STATUS)
        job_views_add(arg, &m->job_status);
    else if (m->type == MSG_NODE_STATUS)
        job_views_add_node(arg, &m->node_status);
}

/* Asks for all pages of one list. */
static int ask_pages(struct ctl_client *c, const char *run_id, ctl_answer_fn *fn,
                     void *arg, struct err *e)
{
    struct msg m = { .type = MSG_STATUS };
    uint64_t next = 0;
    int rc;

    snprintf(m.status.run_id, sizeof(m.status.run_id), "%s", run_id);
    do {
        m.status.from = (uint32_t)next;
        rc = ctl_client_ask(c, &m, fn, arg, &next, e);
    } while (rc == CTL_EXIT_OK && next);
    return rc;
}

static int ask_all_jobs(struct ctl_client *c, const struct ctl_jobs *local,
                        struct job_views *v, struct err *e)
{
    struct job_names names = { .local = local };
    int rc = ask_pages(c, "", on_job_name, &names, e);

    for (size_t i = 0; i < names.count && rc == CTL_EXIT_OK; i++)
        rc = ask_pages(c, names.run_id[i], on_job_detail, v, e);
    free(names.run_id);
    return rc;
}

/* -- output ----------------------------------------------------------------------- */

/* After all jobs: an operator of many of them wants to know. */
static void print_confinement(const struct ctl_client *c, FILE *out)
{
    char text[2 * CONFINEMENT_MAX_BYTES];
    const char *confinement = ctl_client_confinement(c);

    if (*confinement)
        fprintf(out, "\nrendezvous: %s\n",
                text_printable(confinement, text, sizeof(text)));
}

static void print_views(struct job_views *v, const struct ctl_options *o)
{
    struct terminal t = terminal_look();

    job_views_sort(v);
    if (o->json)
        job_json_print(job_json_list(v), o->watch_ms > 0, o->out);
    else if (o->run_id && v->count == 1)
        job_view_print(&v->job[0], &t, o->out);
    else
        job_views_print(v, &t, o->out);
}

static int cmd_status_run(struct ctl_client *c, const struct ctl_options *o,
                          const char *word, struct err *e)
{
    struct job_views v = { .count = 0 };
    int rc = o->run_id ? ask_pages(c, o->run_id, on_job_detail, &v, e)
                       : ask_all_jobs(c, NULL, &v, e);

    (void)word;
    if (rc == CTL_EXIT_OK)
        print_views(&v, o);
    if (rc == CTL_EXIT_OK && !o->json && !o->run_id)
        print_confinement(c, o->out);
    job_views_clear(&v);
    return rc;
}

/* -- the jobs of this machine ----------------------------------------------------- */

#define LOCAL_ANSWER_MS 1000 /* for all of them together: a crun may be stopped */

static uint64_t ms_since(uint64_t wall_ms)
{
    uint64_t now = clock_wall_ms();

    return wall_ms && now > wall_ms ? now - wall_ms : 0;
}

/* A job that is known from its record only. */
static struct job_view *add_local_job(struct job_views *v, const struct ctl_job *job)
{
    struct msg_job_status s = { .exit_code = job->exit_code,
                                .max_nodes = job->nodes,
                                .age_ms = ms_since(job->started_ms) };
    struct job_view *view;

    snprintf(s.run_id, sizeof(s.run_id), "%s", job->run_id);
    snprintf(s.program, sizeof(s.program), "%s", job->program);
    snprintf(s.text, sizeof(s.text), "%s", job->text);
    view = job_views_add(v, &s);
    snprintf(view->name, sizeof(view->name), "%s", job->name);
    view->pid = (uint32_t)job->pid;
    return view;
}

static void add_ended_job(struct job_views *v, const struct ctl_job *job)
{
    static const char *const odd[] = { "left", "lost", "killed" };
    struct job_view *view = add_local_job(v, job);
    struct msg_job_status *s = &view->status;
    const cJSON *result = cJSON_GetObjectItemCaseSensitive(job->record, "result");

    s->state = JOB_DONE;
    s->exit_code = job->state == CTL_JOB_KILLED ? -1 : job->exit_code; /* -1: none */
    s->state_ms = ms_since(job->ended_ms);
    s->restarts = (uint32_t)ctl_record_number(result, "restarts", UINT32_MAX);
    s->epoch = ctl_record_number(result, "epoch", INT64_MAX);
    s->reason = (enum job_reason)proto_word(proto_reason_names, JOB_REASON_COUNT,
                                            job->reason);
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
        if (strcmp(job->result, odd[i]) == 0)
            view->odd_state = odd[i];
    if (strcmp(job->result, "not-formed") == 0)
        s->reason = JOB_REASON_NOT_FORMED;
    if (*job->report)
        view->report = xstrdup(job->report);
}

/* Asks one that has been greeted; c may be NULL. */
static void ask_running_job(struct job_views *v, struct ctl_client *c,
                            const struct ctl_job *job, uint64_t until_ms)
{
    struct job_views own = { .count = 0 };
    struct job_view *view;
    struct err e;
    int rc = c ? ctl_client_await_welcome(c, until_ms, &e) : CTL_EXIT_UNREACHABLE;
    uint64_t now = clock_ms();
    bool suspended = rc != CTL_EXIT_OK && ctl_job_is_suspended(job, &e);

    if (rc == CTL_EXIT_OK) {
        ctl_client_set_timeout(c, until_ms > now ? until_ms - now : LOCAL_ANSWER_MS);
        rc = ask_pages(c, job->run_id, on_job_detail, &own, &e);
    }
    if (rc == CTL_EXIT_OK && own.count > 0) {
        job_views_move(v, &own);
        view = &v->job[v->count - 1];
        view->pid = (uint32_t)job->pid;
        snprintf(view->name, sizeof(view->name), "%s", job->name);
    } else {
        view = add_local_job(v, job);
        view->odd_state = suspended ? "suspended" : "silent";
        snprintf(view->status.text, sizeof(view->status.text), "%s",
                 suspended || rc == CTL_EXIT_REFUSED ? e.text
                                                     : "its crun does not answer");
    }
    job_views_clear(&own);
}

static int status_run_all(const struct ctl_options *o, const struct ctl_jobs *jobs,
                          struct err *e)
{
    struct job_views v = { .count = 0 };
    struct ctl_client **c = xcalloc(jobs->running + 1, sizeof(*c));
    uint64_t until_ms = clock_ms() + LOCAL_ANSWER_MS;
    struct ctl_client *usual;

    for (size_t i = 0; i < jobs->running; i++)
        if (!ctl_jobs_is_double(jobs, &jobs->job[i]))
            c[i] = ctl_client_greet(o, &jobs->job[i], e);
    for (size_t i = 0; i < jobs->running; i++) {
        if (ctl_jobs_is_double(jobs, &jobs->job[i]))
            continue;
        ask_running_job(&v, c[i], &jobs->job[i], until_ms);
        ctl_client_close(c[i]);
    }
    free(c);
    usual = ctl_client_open_usual(o);
    if (usual)
        (void)!ask_all_jobs(usual, jobs, &v, e);
    ctl_client_close(usual);
    for (size_t i = jobs->running; i < jobs->count; i++)
        if (!ctl_jobs_is_double(jobs, &jobs->job[i]))
            add_ended_job(&v, &jobs->job[i]);
    print_views(&v, o);
    job_views_clear(&v);
    return CTL_EXIT_OK;
}

static int status_run_ended(const struct ctl_options *o, const struct ctl_job *job,
                            struct err *e)
{
    struct job_views v = { .count = 0 };

    (void)e;
    add_ended_job(&v, job);
    print_views(&v, o);
    job_views_clear(&v);
    return CTL_EXIT_OK;
}

/* -- flags ------------------------------------------------------------------------ */

static int set_watch(void *target, const struct opt *opt, const char *value,
                     struct err *e)
{
    struct ctl_options *o = target;

    o->watch_ms = CTL_WATCH_MS;
    return value ? opt_set_seconds(target, opt, value, e) : 0;
}

static const struct opt status_table[] = {
    { .name = "watch",
      .letter = 'w',
      .arg = "SECONDS",
      .arg_optional = true,
      .help = "Show it again and again, every 2 seconds or as often as this says; q "
              "ends it.",
      .set = set_watch,
      FIELD(watch_ms),
      .min = WATCH_MS_MIN,
      .max = WATCH_MS_MAX },
    CTL_JSON_FLAG("Print an array of jobs as JSON; with --watch, one in each line."),
    CTL_COMMON_FLAGS,
    { .name = NULL },
};

static const struct opt top_table[] = {
    { .name = "interval",
      .letter = 'n',
      .arg = "SECONDS",
      .help = "Time between two looks. Default: 2.",
      .set = opt_set_seconds,
      FIELD(watch_ms),
      .min = WATCH_MS_MIN,
      .max = WATCH_MS_MAX },
    CTL_COMMON_FLAGS,
    { .name = NULL },
};

const struct ctl_command ctl_status = {
    .name = "status",
    .takes_job = true,
    .summary = "show the jobs, their nodes and their progress",
    .table = status_table,
    .access = ACCESS_VIEW,
    .run = cmd_status_run,
    .run_all = status_run_all,
    .run_ended = status_run_ended,
};

const struct ctl_command ctl_top = {
    .name = "top",
    .takes_job = true,
    .summary = "show the same live, on the whole screen, until q",
    .table = top_table,
    .access = ACCESS_VIEW,
    .watch_ms = CTL_WATCH_MS,
    .run = cmd_status_run,
    .run_all = status_run_all,
    .run_ended = status_run_ended,
};
