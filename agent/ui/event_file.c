/* SPDX-License-Identifier: MIT */
#include "agent/ui/event_file.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/fd.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/xalloc.h"

struct event_file {
    const struct config *config;
    int file; /* -1: none */
    void (*tell)(void *arg, const char *kind, const char *text);
    void *arg;
};

struct event_file *event_file_create(const struct config *config)
{
    struct event_file *ev = xcalloc(1, sizeof(*ev));

    ev->config = config;
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

void event_file_tell(struct event_file *ev,
                     void (*tell)(void *arg, const char *kind, const char *text),
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

void event_file_add(struct event_file *ev, const char *kind, uint64_t epoch,
                    const char *fmt, ...)
{
    char text[1024];
    cJSON *o;
    char *line;
    va_list ap;

    if (!ev || (ev->file < 0 && !ev->config->events_console && !ev->tell))
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (ev->tell)
        ev->tell(ev->arg, kind, text);
    if (ev->file < 0 && !ev->config->events_console)
        return;
    o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "time_ms", (double)clock_wall_ms());
    cJSON_AddStringToObject(o, "job", ev->config->run_id);
    cJSON_AddNumberToObject(o, "pid", getpid());
    cJSON_AddNumberToObject(o, "epoch", (double)epoch);
    cJSON_AddStringToObject(o, "kind", kind);
    cJSON_AddStringToObject(o, "text", text);
    line = text_printable_json(cJSON_PrintUnformatted(o));
    cJSON_Delete(o);
    if (line && ev->file >= 0)
        write_event(ev->file, line);
    if (line && ev->config->events_console)
        write_event(STDERR_FILENO, line);
    free(line);
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
    event_file_add(ev, "failed", epoch,
                   "rank %" PRIu32 " (local rank %" PRIu32 ", pid %" PRIu32 "): %s%s",
                   f->rank, f->local_rank, f->pid, f->what,
                   f->origin == FAILURE_ORIGIN_PEER ? ": a consequence" : "");
}
