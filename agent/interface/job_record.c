/* SPDX-License-Identifier: MIT */
#include "agent/interface/job_record.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/events/event_object.h"

#define EVENTS_BYTES_MAX (256u << 10)
#define REPORT_BYTES_MAX 32768
#define ENDED_KEPT 20
#define DETACHED_KEPT 100
#define EVENTS_AT_START_MAX 16

struct job_record {
    /* not written out yet: a start does not wait for that */
    struct msg_event *first[EVENTS_AT_START_MAX];
    unsigned first_count;
    char *events; /* JSON lines */
    size_t used, room;
    size_t written;  /* how much of it the file has */
    int file;        /* -1: none */
    uint64_t number; /* of the last event */
};

struct job_record *job_record_create(void)
{
    struct job_record *r = xcalloc(1, sizeof(*r));

    r->file = -1;
    return r;
}

void job_record_destroy(struct job_record *r)
{
    if (!r)
        return;
    if (r->file >= 0)
        close(r->file);
    for (unsigned i = 0; i < r->first_count; i++)
        free(r->first[i]);
    free(r->events);
    free(r);
}

/* -- events ------------------------------------------------------------------------ */

/* The older half gives way. */
static void drop_old_events(struct job_record *r)
{
    char *from = memchr(r->events + r->used / 2, '\n', r->used - r->used / 2);
    size_t dropped = from ? (size_t)(from - r->events) + 1 : r->used;

    memmove(r->events, r->events + dropped, r->used - dropped);
    r->used -= dropped;
    r->written = 0;
    if (r->file >= 0)
        (void)!ftruncate(r->file, 0);
}

static void append_events(struct job_record *r)
{
    size_t left = r->used - r->written;

    if (r->file < 0)
        return;
    (void)fd_write_all(r->file, r->events + r->written, &left);
    r->written = r->used;
}

static void add_event_line(struct job_record *r, const struct msg_event *event)
{
    char *line = event_object_line(event);
    size_t size = line ? strlen(line) : 0;

    if (size > 0 && r->used + size + 1 > EVENTS_BYTES_MAX)
        drop_old_events(r);
    if (r->used + size + 1 > r->room) {
        r->room = 2 * (r->used + size + 1);
        r->events = xrealloc(r->events, r->room);
    }
    if (size > 0) {
        memcpy(r->events + r->used, line, size);
        r->events[r->used + size] = '\n';
        r->used += size + 1;
    }
    free(line);
}

static void add_first_events(struct job_record *r)
{
    for (unsigned i = 0; i < r->first_count; i++) {
        add_event_line(r, r->first[i]);
        free(r->first[i]);
    }
    r->first_count = 0;
}

void job_record_add_event(struct job_record *r, const struct msg_event *event)
{
    struct msg_event *own = xmalloc(sizeof(*own));

    *own = *event;
    own->number = ++r->number;
    if (r->first_count == EVENTS_AT_START_MAX)
        add_first_events(r);
    r->first[r->first_count++] = own;
    if (r->file >= 0 || r->used > 0) {
        add_first_events(r);
        append_events(r);
    }
}

/* -- the record -------------------------------------------------------------------- */

static void add_reach(cJSON *o, const struct job_reach *reach)
{
    cJSON *outputs;

    cJSON_AddStringToObject(o, "reach_host", reach->host);
    if (reach->rsh)
        cJSON_AddStringToObject(o, "reach_rsh", reach->rsh);
    if (reach->ssh_args)
        cJSON_AddStringToObject(o, "reach_ssh_args", reach->ssh_args);
    if (!reach->command)
        return;
    cJSON_AddStringToObject(o, "reach_command", reach->command);
    outputs = cJSON_AddArrayToObject(o, "outputs");
    for (const char *const *at = reach->outputs; *at; at++)
        cJSON_AddItemToArray(outputs, cJSON_CreateString(*at));
}

/* folder NULL: it has no file of events. */
static cJSON *record_object(const struct run_folder *folder, const char *name,
                            const struct job_facts *facts)
{
    cJSON *o = cJSON_CreateObject();
    char *events;

    cJSON_AddStringToObject(o, "run_id", facts->run_id);
    cJSON_AddStringToObject(o, "name", facts->name);
    cJSON_AddStringToObject(o, "program", facts->program);
    cJSON_AddNumberToObject(o, "pid", getpid());
    cJSON_AddNumberToObject(o, "started_ms", (double)facts->started_ms);
    cJSON_AddNumberToObject(o, "nodes", facts->nodes);
    cJSON_AddNumberToObject(o, "workers", facts->workers);
    cJSON_AddBoolToObject(o, "host", facts->is_host);
    cJSON_AddBoolToObject(o, "launcher", facts->is_launcher);
    if (facts->rendezvous)
        cJSON_AddStringToObject(o, "rendezvous", facts->rendezvous);
    if (*facts->instance)
        cJSON_AddStringToObject(o, "instance", facts->instance);
    if (facts->log_dir)
        cJSON_AddStringToObject(o, "log_dir", facts->log_dir);
    if (facts->reach)
        add_reach(o, facts->reach);
    if (!folder)
        return o;
    events = xasprintf("%s/%s.events", folder->path, name);
    cJSON_AddStringToObject(o, "events", events);
    free(events);
    return o;
}

static void write_object(const struct run_folder *folder, const char *name, cJSON *o)
{
    char file[64], *text = text_printable_json(cJSON_PrintUnformatted(o));

    snprintf(file, sizeof(file), "%s.json", name);
    if (text && run_folder_write(folder, file, text, strlen(text)) < 0)
        log_debug("%s/%s: %s", folder->path, file, strerror(errno));
    free(text);
    cJSON_Delete(o);
}

static void open_events(struct job_record *r, const struct run_folder *folder,
                        const char *name)
{
    char file[64];

    snprintf(file, sizeof(file), "%s.events", name);
    if (r->file >= 0)
        close(r->file);
    run_folder_remove(folder, file); /* of a process that had this pid before */
    r->file = openat(folder->fd, file,
                     O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC,
                     0600);
    r->written = 0;
    add_first_events(r);
    append_events(r);
}

/* At a logout the system may have removed the folder with the file. */
static bool has_events_file(const struct job_record *r)
{
    struct stat st;

    return r->file >= 0 && fstat(r->file, &st) == 0 && st.st_nlink > 0;
}

void job_record_write(struct job_record *r, const struct run_folder *folder,
                      const char *name, const struct job_facts *facts)
{
    if (!has_events_file(r))
        open_events(r, folder, name);
    write_object(folder, name, record_object(folder, name, facts));
}

/* -- ended jobs -------------------------------------------------------------------- */

/* "<wall ms>-<pid>.json", ".events" or ".history": the number to sort by; 0: another
 * file. */
static unsigned long long parse_ended_name(const char *name, const char *end)
{
    size_t digits = strspn(name, "0123456789"), rest;

    if (digits == 0 || digits > 18 || name[digits] != '-')
        return 0;
    rest = strspn(name + digits + 1, "0123456789-");
    return rest && strcmp(name + digits + 1 + rest, end) == 0 ? strtoull(name, NULL, 10)
                                                              : 0;
}

static int compare_record_numbers(const void *a, const void *b)
{
    unsigned long long x = *(const unsigned long long *)a,
                       y = *(const unsigned long long *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* Removes all but the newest. */
static void prune_ended(const struct run_folder *ended, size_t kept)
{
    unsigned long long number[1024], least;
    size_t count = 0;
    int fd = openat(ended->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    while (dir && (entry = readdir(dir)) && count < sizeof(number) / sizeof(*number)) {
        number[count] = parse_ended_name(entry->d_name, ".json");
        count += number[count] != 0;
    }
    if (dir && count > kept) {
        qsort(number, count, sizeof(*number), compare_record_numbers);
        least = number[kept - 1];
        rewinddir(dir);
        while ((entry = readdir(dir))) {
            unsigned long long n = parse_ended_name(entry->d_name, ".json");

            n = n ? n : parse_ended_name(entry->d_name, ".events");
            n = n ? n : parse_ended_name(entry->d_name, ".history");
            if (n && n < least)
                (void)!unlinkat(ended->fd, entry->d_name, 0);
        }
    }
    if (dir)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
}

static void add_past(cJSON *record, const cJSON *past)
{
    static const char *const names[] = { "time", "last_restart" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(past, names[i]);

        cJSON_AddItemToObject(record, names[i],
                              item ? cJSON_Duplicate(item, true) : cJSON_CreateNull());
    }
}

static void add_result(cJSON *record, const struct job_result *result, uint64_t now)
{
    cJSON *o = cJSON_AddObjectToObject(record, "result");

    cJSON_AddStringToObject(o, "state", result->state);
    cJSON_AddStringToObject(o, "reason", result->reason);
    cJSON_AddNumberToObject(o, "exit_code", result->exit_code);
    cJSON_AddStringToObject(o, "text", result->text);
    cJSON_AddNumberToObject(o, "ended_ms", (double)now);
    cJSON_AddNumberToObject(o, "restarts", result->restarts);
    cJSON_AddNumberToObject(o, "max_restarts", result->max_restarts);
    cJSON_AddNumberToObject(o, "epoch", (double)result->epoch);
    cJSON_AddNumberToObject(o, "step", (double)result->step);
    add_past(record, result->past);
    if (result->report) {
        char *report = xasprintf("%.*s", REPORT_BYTES_MAX, result->report);

        cJSON_AddStringToObject(record, "report", report);
        free(report);
    }
}

static void write_log_file(const struct job_facts *facts, const char *name,
                           const char *text, size_t size)
{
    char *path = xasprintf("%s/%s", facts->log_dir, name);
    int fd = fd_create_file(path, O_TRUNC, facts->log_mode ? facts->log_mode : 0600);

    if (fd >= 0) {
        (void)fd_write_all(fd, text, &size);
        close(fd);
    } else {
        log_debug("%s: %s", path, strerror(errno));
    }
    free(path);
}

/* Apart from the record, so that a list of jobs is quickly read. */
static void write_history(const struct run_folder *ended, const char *name,
                          const cJSON *past)
{
    const cJSON *history = cJSON_GetObjectItemCaseSensitive(past, "history");
    char file[80], *text = text_printable_json(cJSON_PrintUnformatted(history));

    snprintf(file, sizeof(file), "%s.history", name);
    if (text && run_folder_write(ended, file, text, strlen(text)) < 0)
        log_debug("%s/%s: %s", ended->path, file, strerror(errno));
    free(text);
}

int job_record_write_detached(const struct run_folder *folder,
                              const struct job_facts *facts)
{
    cJSON *o = record_object(NULL, NULL, facts);
    char file[64], *text = text_printable_json(cJSON_PrintUnformatted(o));
    int rc;

    snprintf(file, sizeof(file), "%" PRIu64 "-%d.json", clock_wall_ms(), (int)getpid());
    rc = text ? run_folder_write(folder, file, text, strlen(text)) : -1;
    free(text);
    cJSON_Delete(o);
    prune_ended(folder, DETACHED_KEPT);
    return rc;
}

void job_record_write_end_file(const struct job_facts *facts,
                               const struct job_result *result)
{
    cJSON *o = record_object(NULL, NULL, facts);
    char *text, *draft = xasprintf("%s.new", facts->end_file);
    size_t size;
    int fd = fd_create_file(draft, O_TRUNC, 0600);

    add_result(o, result, clock_wall_ms());
    text = text_printable_json(cJSON_PrintUnformatted(o));
    size = text ? strlen(text) : 0;
    if (fd < 0 || fd_write_all(fd, text, &size) != 0 ||
        rename(draft, facts->end_file) < 0)
        log_warn("%s: %s", facts->end_file, strerror(errno));
    if (fd >= 0)
        close(fd);
    free(draft);
    free(text);
    cJSON_Delete(o);
}

void job_record_end(struct job_record *r, const struct run_folder *folder,
                    const char *name, const struct job_facts *facts,
                    const struct job_result *result)
{
    uint64_t now = clock_wall_ms();
    struct run_folder ended;
    char to[64], file[80], old[80];
    cJSON *o;

    add_first_events(r);
    if (facts->log_dir && facts->keeps_events) {
        write_log_file(facts, "events.jsonl", r->events ? r->events : "", r->used);
        if (result->report)
            write_log_file(facts, "report.txt", result->report, strlen(result->report));
    }
    if (run_folder_open_ended(folder, true, &ended) < 0) {
        log_debug("%s/" RUN_FOLDER_ENDED ": %s", folder->path, strerror(errno));
        return;
    }
    snprintf(to, sizeof(to), "%" PRIu64 "-%s", now, name);
    snprintf(old, sizeof(old), "%s.events", name);
    snprintf(file, sizeof(file), "%s.events", to);
    if (!has_events_file(r))
        open_events(r, folder, name);
    if (renameat(folder->fd, old, ended.fd, file) < 0)
        log_debug("%s/%s: %s", folder->path, old, strerror(errno));
    o = record_object(&ended, to, facts);
    add_result(o, result, now);
    write_history(&ended, to, result->past);
    write_object(&ended, to, o);
    prune_ended(&ended, ENDED_KEPT);
    run_folder_close(&ended);
}
