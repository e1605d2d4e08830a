/* SPDX-License-Identifier: MIT */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "launcher/crunctl/ctl_client.h"
#include "launcher/crunctl/ctl_jobs.h"
#include "launcher/crunctl/ctl_views.h"
#include "launcher/crunctl/ui/status_tables.h"
#include "launcher/crunctl/ui/terminal.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/show/views/job_json.h"

/*
 * crunctl status: the jobs and the nodes of each, as tables or as JSON; and crunctl
 * top, which is status --watch: live on a terminal (cmd_top.c).
 */
#define WATCH_MS_MIN 100
#define WATCH_MS_MAX 3600000
#define FIELD(name) OPT_FIELD(struct ctl_options, name)

/* -- output ----------------------------------------------------------------------- */

/* Of a job that is named, and not in each frame. */
static bool shows_history(const struct ctl_options *o)
{
    return o->json && o->run_id && !o->watch_ms;
}

static void print_views(struct job_views *v, const struct ctl_options *o)
{
    struct terminal t = terminal_look();

    job_views_sort(v);
    if (o->answer)
        job_views_move(o->answer, v);
    else if (o->json)
        job_json_print(job_json_list(v), o->watch_ms > 0, o->out);
    else if (o->run_id && v->count == 1)
        job_view_print(&v->job[0], &t, o->out);
    else
        job_views_print(v, o->all, &t, o->out);
}

static int cmd_status_run(struct ctl_client *c, const struct ctl_options *o,
                          const char *word, struct err *e)
{
    const char *confinement = ctl_client_welcome(c)->confinement;
    char text[2 * CONFINEMENT_MAX_BYTES];
    struct job_views v = { .count = 0 };
    struct err none;
    int rc = o->run_id ? ctl_views_ask_job(c, o->run_id, &v, e)
                       : ctl_views_ask_all(c, NULL, o->all, &v, e);

    if (rc == CTL_EXIT_OK && shows_history(o) && v.count == 1 && !v.job[0].history)
        (void)!ctl_views_ask_history(c, &v.job[0], &none);
    if (rc == CTL_EXIT_OK)
        print_views(&v, o);
    /* after all jobs: an operator of many of them wants to know */
    if (rc == CTL_EXIT_OK && !o->json && !o->answer && !o->run_id && *confinement)
        fprintf(o->out, "\nrendezvous: %s\n",
                text_printable(confinement, text, sizeof(text)));
    job_views_clear(&v);
    return rc;
}

/* -- the jobs of this machine ----------------------------------------------------- */

static int status_run_all(const struct ctl_options *o, const struct ctl_jobs *jobs,
                          struct err *e)
{
    struct job_views v = { .count = 0 };
    struct ctl_client **c = xcalloc(jobs->running + 1, sizeof(*c));
    uint64_t until_ms = clock_ms() + CTL_LOCAL_ANSWER_MS;
    struct ctl_client *usual;

    for (size_t i = 0; i < jobs->running; i++)
        if (!ctl_jobs_is_double(jobs, &jobs->job[i]))
            c[i] = ctl_client_greet(o, &jobs->job[i], e);
    for (size_t i = 0; i < jobs->running; i++) {
        if (ctl_jobs_is_double(jobs, &jobs->job[i]))
            continue;
        ctl_views_ask_running(&v, c[i], &jobs->job[i], until_ms);
        ctl_client_close(c[i]);
    }
    free(c);
    usual = ctl_client_open_usual(o);
    if (usual)
        (void)!ctl_views_ask_all(usual, jobs, o->all, &v, e);
    ctl_client_close(usual);
    for (size_t i = jobs->running; i < jobs->count; i++)
        if (!ctl_jobs_is_double(jobs, &jobs->job[i]))
            ctl_views_add_ended(&v, &jobs->job[i]);
    print_views(&v, o);
    job_views_clear(&v);
    return CTL_EXIT_OK;
}

static int status_run_ended(const struct ctl_options *o, const struct ctl_job *job,
                            struct err *e)
{
    struct job_views v = { .count = 0 };

    ctl_views_add_ended(&v, job);
    if (shows_history(o))
        v.job[0].history = ctl_job_read_history(job);
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
      .help = "As crunctl top, every 2 seconds or as often as this says.",
      .set = set_watch,
      FIELD(watch_ms),
      .min = WATCH_MS_MIN,
      .max = WATCH_MS_MAX },
    { .name = "all",
      .letter = 'a',
      .help = "All jobs that are over, also those that crund has kept.",
      .set = opt_set_true,
      FIELD(all) },
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
    .summary = "show them live: scroll, sort, filter, open",
    .table = top_table,
    .access = ACCESS_VIEW,
    .watch_ms = CTL_WATCH_MS,
    .run = cmd_status_run,
    .run_all = status_run_all,
    .run_ended = status_run_ended,
};
