/* SPDX-License-Identifier: MIT */
#include "agent/interface/event_file.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/events/event_object.h"
#include "rendezvous/wire/protocol/job_name.h"

struct event_file {
    const struct config *config;
    const char *host;
    struct id128 instance; /* zeroes: not known yet */
    int file;              /* -1: none */
    uint64_t last;         /* number */
    uint64_t cause_epoch;  /* the newest whose cause to stop was told; 0: none */
    void (*tell)(void *arg, const struct msg_event *event);
    void *arg;
};

struct event_file *event_file_create(const struct config *config, const char *host)
{
    struct event_file *ev = xcalloc(1, sizeof(*ev));

    ev->config = config;
    ev->host = host;
    ev->file = -1;
    if (!config->events_file)
        return ev;
    ev->file = fd_create_file(config->events_file, O_APPEND,
                              config->log_mode ? config->log_mode : 0600);
    if (ev->file < 0)
        log_warn("--events-file %s: %s; continuing without it", config->events_file,
                 strerror(errno));
    return ev;
}

void event_file_destroy(struct event_file *ev)
{
    if (!ev)
        return;
    if (ev->file >= 0)
        close(ev->file);
    free(ev);
}

void event_file_set_instance(struct event_file *ev, const struct id128 *instance)
{
    ev->instance = *instance;
}

void event_file_listen(struct event_file *ev,
                       void (*tell)(void *arg, const struct msg_event *event),
                       void *arg)
{
    ev->tell = tell;
    ev->arg = arg;
}

/* One write for each line: lines of several agents that share a file do not mix. */
static void write_event(int fd, const char *text)
{
    char *line = xasprintf("%s\n", text);

    (void)!write(fd, line, strlen(line));
    free(line);
}

static void print_event(const struct event_file *ev, const struct msg_event *event)
{
    cJSON *o = event_object(event);
    char *line;

    cJSON_AddNumberToObject(o, "pid", getpid());
    line = text_printable_json(cJSON_PrintUnformatted(o));
    cJSON_Delete(o);
    if (line && ev->file >= 0)
        write_event(ev->file, line);
    if (line && ev->config->events_console)
        write_event(STDERR_FILENO, line);
    free(line);
}

/* rank: NULL, or that of the worker that the event is about. */
static void event_file_add_text(struct event_file *ev, const char *kind, uint64_t epoch,
                                const uint32_t *rank, const char *text)
{
    struct msg_event event = { .wall_ms = clock_wall_ms(),
                               .monotonic_ms = clock_ms(),
                               .epoch = epoch,
                               .of_rank = rank != NULL,
                               .rank = rank ? *rank : 0 };
    bool is_printed = ev && (ev->file >= 0 || ev->config->events_console);

    if (!ev || (!is_printed && !ev->tell))
        return;
    event.number = ++ev->last;
    event.instance = ev->instance;
    text_cut(ev->config->run_id, event.run_id, sizeof(event.run_id));
    job_name(ev->config->run_id, ev->config->job.program, event.name,
             sizeof(event.name));
    text_cut(ev->host, event.host, sizeof(event.host));
    text_cut(kind, event.kind, sizeof(event.kind));
    text_cut(text, event.text, sizeof(event.text));
    if (ev->tell)
        ev->tell(ev->arg, &event);
    if (is_printed)
        print_event(ev, &event);
}

void event_file_add(struct event_file *ev, const char *kind, uint64_t epoch,
                    const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    event_file_add_text(ev, kind, epoch, NULL, text);
}

void event_file_add_formed(struct event_file *ev, uint64_t epoch,
                           const struct msg_start *start)
{
    event_file_add(ev, "formed", epoch, "%" PRIu32 " node%s, %" PRIu32 " worker%s",
                   start->group_size, text_plural(start->group_size), start->world_size,
                   text_plural(start->world_size));
}

void event_file_add_failed(struct event_file *ev, uint64_t epoch,
                           const struct failure *f)
{
    char text[1024];

    snprintf(text, sizeof(text),
             "rank %" PRIu32 " (local rank %" PRIu32 ", pid %" PRIu32 "): %s%s",
             f->rank, f->local_rank, f->pid, f->what,
             f->origin == FAILURE_ORIGIN_PEER ? ": a consequence" : "");
    event_file_add_text(ev, f->kind == FAILURE_HANG ? "hang" : "failed", epoch,
                        f->kind == FAILURE_AGENT ? NULL : &f->rank, text);
    if (ev && f->kind == FAILURE_HANG)
        ev->cause_epoch = epoch;
}

void event_file_add_stopping(struct event_file *ev, uint64_t epoch,
                             const struct msg_stop *stop)
{
    if (ev && epoch > ev->cause_epoch && stop->hang)
        event_file_add(ev, "hang", epoch, "%s", stop->text);
    else if (ev && epoch > ev->cause_epoch && stop->cause == JOB_CAUSE_LOST)
        event_file_add(ev, "lost", epoch, "%s", stop->text);
    if (ev && epoch > ev->cause_epoch)
        ev->cause_epoch = epoch;
    event_file_add(ev, "stopping", epoch, "%s", stop->text);
}
