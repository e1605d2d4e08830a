/* SPDX-License-Identifier: MIT */
/*
 * The way to a job that runs on another machine, or has run there: by ssh, or what its
 * launcher was given to use, with the command that the job's far side has left
 * (far_reach.h).
 */
#include "launcher/crunctl/ctl_jobs.h"

#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/remote/far_reach.h"
#include "launcher/remote/rsh_command.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"

#define RECORD_BYTES_MAX (256u << 10)
#define REACH_MS 15000    /* ssh gives up a host after 10 s */
#define REACH_ALL_MS 5000 /* when no job is named, and others are waited for */
#define LATE_MS 2000      /* for what has arrived while another host was waited for */

/* A host that is asked. */
struct ctl_reach {
    int fd;   /* a stream; -1: none */
    int said; /* a file with what ssh says */
};

enum ctl_reach_answer {
    CTL_REACH_RUNS,    /* fd is a connection to its crun */
    CTL_REACH_ENDED,   /* *record is the record of its end, to be freed */
    CTL_REACH_GONE,    /* its crun was killed */
    CTL_REACH_UNKNOWN, /* why is in e */
};

/* In a group of its own: Ctrl-C is for crunctl, and ssh ends with its streams. */
static int spawn_reach(char *const *argv, int stream, int said)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    pid_t pid;
    int errnum;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, stream, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, stream, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, said, STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    errnum = posix_spawnp(&pid, argv[0], &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return errnum;
}

static void ctl_reach_start(struct ctl_reach *r, const struct ctl_job *j)
{
    char **argv = rsh_command(j->rsh, j->ssh_args, j->host);
    int pair[2], errnum;

    *r = (struct ctl_reach){ .fd = -1, .said = memfd_create("said", MFD_CLOEXEC) };
    if (r->said >= 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0) {
        errnum = spawn_reach(argv, pair[1], r->said);
        close(pair[1]);
        r->fd = pair[0];
        if (errnum)
            dprintf(r->said, "%s: %s\n", argv[0], strerror(errnum));
        else
            /* if ssh has ended already, what it said is read */
            (void)!send(r->fd, j->command, strlen(j->command), MSG_NOSIGNAL);
    }
    rsh_free(argv);
}

/* Hosts are asked side by side, and their answers read one after the other: what has
 * arrived in time is read late, too. */
static bool await_reach(int fd, uint64_t until_ms)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    uint64_t now = clock_ms();

    return now < until_ms + LATE_MS &&
           poll(&p, 1, now < until_ms ? (int)(until_ms - now) : 0) > 0;
}

/* A line without its end; false: there is none until then. */
static bool read_reach_line(int fd, uint64_t until_ms, char *line, size_t size)
{
    size_t used = 0;
    char c;

    for (;;) {
        if (!await_reach(fd, until_ms) || read(fd, &c, 1) != 1)
            return false;
        if (c == '\n')
            break;
        if (used + 1 < size)
            line[used++] = c;
    }
    line[used] = '\0';
    return true;
}

static char *read_reach_rest(int fd, uint64_t until_ms)
{
    char *text = xmalloc(RECORD_BYTES_MAX + 1);
    size_t used = 0;
    ssize_t n = 1;

    while (n > 0 && used < RECORD_BYTES_MAX && await_reach(fd, until_ms)) {
        n = read(fd, text + used, RECORD_BYTES_MAX - used);
        used += n > 0 ? (size_t)n : 0;
    }
    text[used] = '\0';
    return text;
}

/* The last line of what ssh has said. */
static void set_why(const struct ctl_reach *r, bool is_late, struct err *e)
{
    char said[512], line[1024];
    ssize_t n = r->said < 0 ? -1 : pread(r->said, said, sizeof(said) - 1, 0);
    char *last;

    said[n > 0 ? n : 0] = '\0';
    while (n > 0 && strchr("\r\n", said[n - 1]))
        said[--n] = '\0';
    last = strrchr(said, '\n');
    last = last ? last + 1 : said;
    err_set(e, "%s",
            *last     ? text_printable(last, line, sizeof(line))
            : is_late ? "no answer in time"
                      : "the connection has ended");
}

static enum ctl_reach_answer ctl_reach_await(struct ctl_reach *r, uint64_t until_ms,
                                             char **record, struct err *e)
{
    enum ctl_reach_answer answer = CTL_REACH_UNKNOWN;
    char line[128];

    while (answer == CTL_REACH_UNKNOWN && r->fd >= 0 &&
           read_reach_line(r->fd, until_ms, line, sizeof(line))) {
        if (strcmp(line, FAR_REACH_RUNS) == 0)
            answer = CTL_REACH_RUNS;
        else if (strcmp(line, FAR_REACH_GONE) == 0)
            answer = CTL_REACH_GONE;
        else if (strcmp(line, FAR_REACH_ENDED) == 0)
            answer = CTL_REACH_ENDED;
    }
    if (answer == CTL_REACH_UNKNOWN)
        set_why(r, clock_ms() >= until_ms, e);
    if (answer == CTL_REACH_ENDED)
        *record = read_reach_rest(r->fd, until_ms);
    if (answer != CTL_REACH_RUNS && r->fd >= 0) {
        close(r->fd);
        r->fd = -1;
    }
    if (r->said >= 0)
        close(r->said);
    return answer;
}

/* NULL: it was cut off, or is none. */
static cJSON *parse_end(const char *text)
{
    cJSON *end = cJSON_Parse(text);

    if (cJSON_IsObject(end) && ctl_record_is_small(end, 1) &&
        cJSON_HasObjectItem(end, "result"))
        return end;
    cJSON_Delete(end);
    return NULL;
}

/* What the record of the end has in the place of what the launcher knew. */
static cJSON *record_of_end(const struct ctl_job *job, cJSON *end)
{
    static const char *const taken[] = { "result", "report",       "time",
                                         "nodes",  "last_restart", "workers" };
    cJSON *record = cJSON_Duplicate(job->record, true);

    for (size_t i = 0; end && i < sizeof(taken) / sizeof(taken[0]); i++) {
        cJSON *item = cJSON_DetachItemFromObjectCaseSensitive(end, taken[i]);

        cJSON_DeleteItemFromObjectCaseSensitive(record, taken[i]);
        if (item)
            cJSON_AddItemToObject(record, taken[i], item);
    }
    cJSON_Delete(end);
    return record;
}

/* end: freed; NULL: its crun has left none. */
static void note_detached_end(struct ctl_job *job, cJSON *end)
{
    cJSON *record = record_of_end(job, end), *result;
    const struct run_folder *folder = job->folder;
    char file[sizeof(job->file)], name[80], *why, *whole;

    if (!end) {
        result = cJSON_AddObjectToObject(record, "result");
        why = xasprintf("its crun on %s has left no result; its output is in %s",
                        job->host, job->output);
        cJSON_AddStringToObject(result, "state", "killed");
        cJSON_AddStringToObject(result, "text", why);
        free(why);
    }
    snprintf(file, sizeof(file), "%s", job->file);
    snprintf(name, sizeof(name), "%s.json", file);
    whole = text_printable_json(cJSON_PrintUnformatted(record));
    if (whole)
        (void)!run_folder_write(folder, name, whole, strlen(whole));
    free(whole);
    cJSON_Delete((cJSON *)job->record);
    ctl_job_fill(job, folder, file, record, CTL_JOB_ENDED);
}

/* Notes the end of a job only if the answer is whole. */
static void take_answer(struct ctl_jobs *jobs, struct ctl_job *job,
                        struct ctl_reach *reach, uint64_t until_ms)
{
    char *text = NULL;
    struct err e;
    enum ctl_reach_answer answer = ctl_reach_await(reach, until_ms, &text, &e);
    cJSON *end = answer == CTL_REACH_ENDED ? parse_end(text) : NULL;

    if (answer == CTL_REACH_ENDED && !end) {
        answer = CTL_REACH_UNKNOWN;
        err_set(&e, "its answer was cut off");
    }
    free(text);
    if (answer == CTL_REACH_RUNS) {
        job->fd = reach->fd;
    } else if (answer == CTL_REACH_UNKNOWN) {
        job->unknown = xasprintf("%s cannot be asked (%s); its output is in %s",
                                 job->host, e.text, job->output);
    } else {
        note_detached_end(job, end);
        jobs->running--;
    }
}

void ctl_jobs_ask_hosts(struct ctl_jobs *jobs, const char *word)
{
    struct ctl_reach *reach = xcalloc(jobs->count + 1, sizeof(*reach));
    bool *asked = xcalloc(jobs->count + 1, sizeof(*asked));
    uint64_t until_ms = clock_ms() + (word ? REACH_MS : REACH_ALL_MS);
    size_t running = jobs->running;

    for (size_t i = 0; i < running; i++) {
        const struct ctl_job *j = &jobs->job[i];

        asked[i] = *j->command && ctl_job_has_name(j, word) &&
                   !ctl_jobs_is_double(jobs, j);
        if (asked[i])
            ctl_reach_start(&reach[i], j);
    }
    for (size_t i = 0; i < running; i++)
        if (asked[i])
            take_answer(jobs, &jobs->job[i], &reach[i], until_ms);
    free(reach);
    free(asked);
    if (jobs->running < running)
        ctl_jobs_sort(jobs);
}
