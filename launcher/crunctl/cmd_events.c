/* SPDX-License-Identifier: MIT */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/crunctl/ctl_client.h"
#include "launcher/crunctl/ctl_jobs.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/text.h"

/* crunctl events: past events, and new ones with --follow, one line each. */
static void print_json(const struct msg_event *event)
{
    cJSON *o = cJSON_CreateObject();
    char *text;

    cJSON_AddNumberToObject(o, "number", (double)event->number);
    cJSON_AddNumberToObject(o, "time_ms", (double)event->wall_ms);
    cJSON_AddStringToObject(o, "job", event->run_id);
    cJSON_AddNumberToObject(o, "epoch", (double)event->epoch);
    cJSON_AddStringToObject(o, "kind", event->kind);
    cJSON_AddStringToObject(o, "host", event->host);
    cJSON_AddStringToObject(o, "text", event->text);
    text = text_printable_json(cJSON_PrintUnformatted(o));
    puts(text ? text : "{}");
    free(text);
    cJSON_Delete(o);
}

static void print_line(const struct msg_event *event)
{
    char when[32], text[2 * sizeof(event->text)];

    printf("%s  %s  epoch %" PRIu64 "  %-10s  %s\n",
           clock_format_time(event->wall_ms, when, sizeof(when)), event->run_id,
           event->epoch, event->kind, text_printable(event->text, text, sizeof(text)));
}

struct reader {
    struct ctl_client *c;
    bool json;
};

static void print_event(void *arg, const struct msg *m)
{
    const struct reader *r = arg;

    if (m->type != MSG_EVENT)
        return;
    if (r->json)
        print_json(&m->event);
    else
        print_line(&m->event);
    if (fflush(stdout) != 0)
        ctl_client_stop_listening(r->c);
}

static int cmd_events_run(struct ctl_client *c, const struct ctl_options *o,
                          const char *word, struct err *e)
{
    struct msg m = { .type = MSG_EVENTS };
    struct reader r = { .c = c, .json = o->json };
    int rc;

    (void)word;
    snprintf(m.events.run_id, sizeof(m.events.run_id), "%s",
             o->run_id ? o->run_id : "");
    m.events.since = (uint64_t)o->since;
    m.events.follow = o->follow;
    rc = ctl_client_ask(c, &m, print_event, &r, NULL, e);
    return rc == CTL_EXIT_OK && o->follow ? ctl_client_listen(c, print_event, &r, e)
                                          : rc;
}

/* -- a job of this machine that has ended ------------------------------------------ */

static void read_text(const cJSON *o, const char *name, char *buf, size_t size)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, name));

    snprintf(buf, size, "%s", text ? text : "");
}

static uint64_t read_number(const cJSON *o, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, name);

    return cJSON_IsNumber(item) && item->valuedouble > 0 ? (uint64_t)item->valuedouble
                                                         : 0;
}

static bool parse_event(const char *line, struct msg_event *event)
{
    cJSON *o = cJSON_Parse(line);

    *event = (struct msg_event){ .number = read_number(o, "number"),
                                 .wall_ms = read_number(o, "time_ms"),
                                 .epoch = read_number(o, "epoch") };
    read_text(o, "job", event->run_id, sizeof(event->run_id));
    read_text(o, "kind", event->kind, sizeof(event->kind));
    read_text(o, "host", event->host, sizeof(event->host));
    read_text(o, "text", event->text, sizeof(event->text));
    cJSON_Delete(o);
    return event->number != 0;
}

static int events_run_ended(const struct ctl_options *o, const struct ctl_job *job,
                            struct err *e)
{
    char *text = ctl_job_read_events(job), *rest = text, *line;
    struct msg_event event;

    (void)e;
    while ((line = strsep(&rest, "\n")))
        if (*line && parse_event(line, &event) && event.number > (uint64_t)o->since)
            o->json ? print_json(&event) : print_line(&event);
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
    .run_ended = events_run_ended,
};
