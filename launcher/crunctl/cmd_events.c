/* SPDX-License-Identifier: MIT */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/crunctl/ctl_client.h"
#include "launcher/crunctl/ctl_jobs.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/events/event_object.h"
#include "rendezvous/show/views/job_json.h"

#define LOCAL_ANSWER_MS 1000 /* a crun may be stopped */
#define LISTED_MAX 16384     /* events of all jobs: more than a rendezvous keeps */

/* crunctl events: past events, and new ones with --follow, one line each. */
static void print_event_line(const struct msg_event *event, const char *name)
{
    char when[40], text[2 * sizeof(event->text)], job[512], kind[128];

    printf("%s  %s  epoch %" PRIu64 "  %-10s  %s\n",
           clock_format_date(event->wall_ms, when, sizeof(when)),
           text_printable(name ? name : event->run_id, job, sizeof(job)), event->epoch,
           text_printable(event->kind, kind, sizeof(kind)),
           text_printable(event->text, text, sizeof(text)));
}

static void print_any_event(const struct msg_event *event, const char *name, bool json)
{
    if (json)
        job_json_print(event_object(event), true, stdout);
    else
        print_event_line(event, name);
}

struct reader {
    struct ctl_client *c;
    bool json;
    const char *name; /* of the job; NULL: the events' run id */
};

static void print_event(void *arg, const struct msg *m)
{
    const struct reader *r = arg;

    if (m->type != MSG_EVENT)
        return;
    print_any_event(&m->event, r->name, r->json);
    if (fflush(stdout) != 0)
        ctl_client_stop_listening(r->c);
}

static int cmd_events_run(struct ctl_client *c, const struct ctl_options *o,
                          const char *word, struct err *e)
{
    struct msg m = { .type = MSG_EVENTS };
    struct reader r = { .c = c, .json = o->json, .name = o->job_name };
    int rc;

    snprintf(m.events.run_id, sizeof(m.events.run_id), "%s",
             o->run_id ? o->run_id : "");
    m.events.since = (uint64_t)o->since;
    m.events.follow = o->follow;
    rc = ctl_client_ask(c, &m, print_event, &r, NULL, e);
    return rc == CTL_EXIT_OK && o->follow ? ctl_client_listen(c, print_event, &r, e)
                                          : rc;
}

/* -- all jobs of this machine ------------------------------------------------------ */

struct listed_events {
    struct listed_event {
        struct msg_event event;
        const char *name;
    } * item;
    size_t count, room;
    const char *name; /* of the job that is asked now */
};

static void note_event(void *arg, const struct msg *m)
{
    struct listed_events *l = arg;

    if (m->type != MSG_EVENT || l->count == LISTED_MAX)
        return;
    if (l->count == l->room) {
        l->room = l->room ? 2 * l->room : 16;
        l->item = xrealloc(l->item, l->room * sizeof(*l->item));
    }
    l->item[l->count].event = m->event;
    l->item[l->count++].name = l->name;
}

static int compare_events(const void *a, const void *b)
{
    const struct msg_event *x = &((const struct listed_event *)a)->event,
                           *y = &((const struct listed_event *)b)->event;

    if (x->wall_ms != y->wall_ms)
        return x->wall_ms < y->wall_ms ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

static void ask_events(const struct ctl_options *o, const struct ctl_job *job,
                       struct listed_events *l)
{
    struct ctl_client *c;
    struct msg m = { .type = MSG_EVENTS };
    struct err e;
    int rc;

    m.events.since = (uint64_t)o->since;
    snprintf(m.events.run_id, sizeof(m.events.run_id), "%s", job->run_id);
    l->name = job->name;
    c = ctl_client_open_job(o, job, LOCAL_ANSWER_MS, &rc, &e);
    if (c)
        rc = ctl_client_ask(c, &m, note_event, l, NULL, &e);
    if (rc != CTL_EXIT_OK)
        log_warn("%s", e.text);
    ctl_client_close(c);
}

/* Of those that run, in the order of time. */
static int events_run_all(const struct ctl_options *o, const struct ctl_jobs *jobs,
                          struct err *e)
{
    struct listed_events l = { .count = 0 };

    for (size_t i = 0; i < jobs->running; i++)
        if (!ctl_jobs_is_double(jobs, &jobs->job[i]))
            ask_events(o, &jobs->job[i], &l);
    if (l.count > 1)
        qsort(l.item, l.count, sizeof(*l.item), compare_events);
    for (size_t i = 0; i < l.count; i++)
        print_any_event(&l.item[i].event, l.item[i].name, o->json);
    free(l.item);
    return CTL_EXIT_OK;
}

/* -- a job of this machine that has ended ------------------------------------------ */

static bool parse_event(const char *line, struct msg_event *event)
{
    cJSON *o = cJSON_Parse(line);

    event_object_read(o, event);
    cJSON_Delete(o);
    return event->number != 0;
}

static int events_run_ended(const struct ctl_options *o, const struct ctl_job *job,
                            struct err *e)
{
    char *text = ctl_job_read_events(job), *rest = text, *line;
    struct msg_event event;

    while ((line = strsep(&rest, "\n")))
        if (*line && parse_event(line, &event) && event.number > (uint64_t)o->since)
            print_any_event(&event, job->name, o->json);
    free(text);
    return CTL_EXIT_OK;
}

static const struct opt table[] = {
    { .name = "follow",
      .letter = 'f',
      .help = "Continue with new events until Ctrl-C.",
      .set = opt_set_true,
      .offset = offsetof(struct ctl_options, follow) },
    { .name = "since",
      .arg = "N",
      .help = "Only events with a greater number. Default: all that are kept.",
      .set = opt_set_int,
      .offset = offsetof(struct ctl_options, since),
      .min = 0,
      .max = INT64_MAX },
    CTL_JSON_FLAG("Print each event as a line of JSON."),
    CTL_COMMON_FLAGS,
    { .name = NULL },
};

const struct ctl_command ctl_events = {
    .name = "events",
    .takes_job = true,
    .summary = "show the events of the jobs",
    .table = table,
    .access = ACCESS_VIEW,
    .run = cmd_events_run,
    .run_all = events_run_all,
    .run_ended = events_run_ended,
};
