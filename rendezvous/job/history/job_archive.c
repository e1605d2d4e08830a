/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/history/job_archive.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/events/json_fields.h"
#include "rendezvous/job/history/history_json.h"
#include "rendezvous/wire/protocol/frame.h"
#include "rendezvous/wire/protocol/json_strict.h"
#include "rendezvous/wire/protocol/limits.h"
#include "rendezvous/wire/protocol/proto.h"

#define ARCHIVE_FOLDER "history"
#define ARCHIVE_NEW "new" /* a file that is being written */
#define ARCHIVE_VERSION 1
#define FILE_NAME_SIZE (20 + 1 + ID128_HEX_SIZE + 5)

struct job_archive {
    char *path;
    int fd;
    struct archived_job *job[ARCHIVE_JOBS_MAX + 1]; /* the newest first */
    unsigned count;
    uint64_t bytes;
    bool has_warned; /* that nothing can be written */
};

/* -- the list ---------------------------------------------------------------------- */

static char *job_file_name(const struct archived_job *job, char *buf, size_t size)
{
    char instance[ID128_HEX_SIZE];

    snprintf(buf, size, "%" PRIu64 "-%s.json", job->created_ms,
             id128_format(&job->instance, instance));
    return buf;
}

static void archived_job_destroy(struct archived_job *job)
{
    free(job->status);
    free(job);
}

static void archive_insert(struct job_archive *a, struct archived_job *job)
{
    unsigned at = 0;

    while (at < a->count && a->job[at]->created_ms > job->created_ms)
        at++;
    memmove(&a->job[at + 1], &a->job[at], (a->count - at) * sizeof(a->job[0]));
    a->job[at] = job;
    a->count++;
    a->bytes += job->size;
}

/* From the list alone. */
static void archive_drop(struct job_archive *a, unsigned at)
{
    a->bytes -= a->job[at]->size;
    archived_job_destroy(a->job[at]);
    memmove(&a->job[at], &a->job[at + 1], (--a->count - at) * sizeof(a->job[0]));
}

/* The oldest that has ended gives way; one that runs is only removed if all do. */
static void archive_prune(struct job_archive *a)
{
    while (a->count > ARCHIVE_JOBS_MAX || a->bytes > ARCHIVE_BYTES_MAX) {
        char name[FILE_NAME_SIZE];
        unsigned at = a->count - 1;

        while (at > 0 && a->job[at]->status && !a->job[at]->ended_ms)
            at--;
        at = at > 0 ? at : a->count - 1;
        (void)!unlinkat(a->fd, job_file_name(a->job[at], name, sizeof(name)), 0);
        archive_drop(a, at);
    }
}

unsigned job_archive_count(const struct job_archive *a)
{
    return a->count;
}

const struct archived_job *job_archive_at(const struct job_archive *a, unsigned i)
{
    return a->job[i];
}

const struct archived_job *job_archive_find(const struct job_archive *a,
                                            const struct id128 *instance)
{
    for (unsigned i = 0; i < a->count; i++)
        if (id128_equal(&a->job[i]->instance, instance))
            return a->job[i];
    return NULL;
}

/* -- writing ----------------------------------------------------------------------- */

/* The body of JOB_STATUS, to be freed by the caller. */
static char *print_status(const struct msg_job_status *status, size_t *size)
{
    static uint8_t frame[FRAME_HEADER_SIZE + FRAME_BODY_MAX];
    struct msg m = { .type = MSG_JOB_STATUS, .job_status = *status };
    char *text;

    *size = proto_encode(&m, frame, sizeof(frame)) - FRAME_HEADER_SIZE;
    text = xmalloc(*size + 1);
    memcpy(text, frame + FRAME_HEADER_SIZE, *size);
    text[*size] = '\0';
    return text;
}

static char *print_file(const struct archived_job *job,
                        const struct job_history *history)
{
    static const struct history_reader all = { .run_id = NULL };
    cJSON *o = cJSON_CreateObject(), *owner;
    char *text;

    json_add_count(o, "version", ARCHIVE_VERSION);
    json_add_count(o, "created_ms", job->created_ms);
    json_add_count(o, "ended_ms", job->ended_ms);
    json_add_count(o, "written_ms", job->written_ms);
    owner = cJSON_AddObjectToObject(o, "owner");
    json_add_count(owner, "uid", job->owner.uid);
    cJSON_AddStringToObject(owner, "key_file", job->owner.key_file);
    cJSON_AddRawToObject(o, "status", job->status);
    cJSON_AddItemToObject(o, "history", history_json(history, &all));
    text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    return text;
}

/* Readers see the old file or the new one. */
static int archive_replace_file(const struct job_archive *a, const char *name,
                                const char *text, size_t size)
{
    int fd = openat(a->fd, ARCHIVE_NEW,
                    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int errnum;

    if (fd < 0)
        return errno;
    errnum = fd_write_all(fd, text, &size);
    if (close(fd) < 0 && !errnum)
        errnum = errno;
    if (!errnum && renameat(a->fd, ARCHIVE_NEW, a->fd, name) < 0)
        errnum = errno;
    if (errnum)
        (void)!unlinkat(a->fd, ARCHIVE_NEW, 0);
    return errnum;
}

static void warn_of_archive(struct job_archive *a, int errnum)
{
    if (errnum && !a->has_warned)
        log_warn("%s: %s: what jobs have done is not kept there", a->path,
                 strerror(errnum));
    else if (!errnum && a->has_warned)
        log_info("%s can be written to again", a->path);
    a->has_warned = errnum != 0;
}

bool job_archive_write(struct job_archive *a, const struct archived_job *job,
                       const struct msg_job_status *status,
                       const struct job_history *history)
{
    struct archived_job *copy = xmemdup(job, sizeof(*job));
    char name[FILE_NAME_SIZE], *text;
    int errnum;

    copy->status = print_status(status, &copy->status_size);
    text = print_file(copy, history);
    copy->size = text ? strlen(text) : 0;
    errnum = text ? archive_replace_file(a, job_file_name(job, name, sizeof(name)),
                                         text, copy->size)
                  : ENOMEM;
    free(text);
    warn_of_archive(a, errnum);
    if (errnum) {
        archived_job_destroy(copy);
        return false;
    }
    for (unsigned i = 0; i < a->count; i++)
        if (id128_equal(&a->job[i]->instance, &copy->instance))
            archive_drop(a, i--);
    archive_insert(a, copy);
    archive_prune(a);
    return true;
}

/* -- reading ----------------------------------------------------------------------- */

/* Another version, or another user, may have written it. */
static cJSON *read_file(const struct job_archive *a, const char *name, size_t *size,
                        struct err *e)
{
    int fd = openat(a->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    ssize_t n = -1;
    char *text;
    cJSON *o;

    *size = 0;
    if (fd < 0 || fstat(fd, &st) < 0) {
        (void)err_set_errno(e, errno, "it cannot be opened");
    } else if (!S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
        (void)err_set(e, "it is no file of this user");
    } else if (st.st_size > ARCHIVE_FILE_MAX) {
        (void)err_set(e, "it has %jd bytes", (intmax_t)st.st_size);
    } else {
        text = xmalloc(ARCHIVE_FILE_MAX + 1);
        n = fd_read_all(fd, text, ARCHIVE_FILE_MAX + 1);
        if (n < 0)
            (void)err_set_errno(e, errno, "it cannot be read");
    }
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return NULL;
    *size = (size_t)n;
    o = NULL;
    if (json_check(text, *size, JSON_DEPTH_MAX, e) == 0) {
        (void)err_set(e, "it is not whole");
        o = cJSON_ParseWithLength(text, *size);
    }
    free(text);
    if (o && json_count(o, "version") == ARCHIVE_VERSION)
        return o;
    if (o)
        (void)err_set(e, "it is of another version");
    cJSON_Delete(o);
    return NULL;
}

static int decode_status(const char *body, size_t size, struct msg_job_status *status,
                         struct err *e)
{
    struct frame_header h = { .type = MSG_JOB_STATUS, .body_size = (uint32_t)size };
    static struct msg m;

    if (size > FRAME_BODY_MAX)
        return err_set(e, "its status is too long");
    if (proto_decode(&h, body, &m, e) < 0)
        return -1;
    *status = m.job_status;
    return 0;
}

/* What is needed to list the job. */
static int read_archived_job(struct archived_job *job, const cJSON *o, struct err *e)
{
    const cJSON *owner = cJSON_GetObjectItemCaseSensitive(o, "owner"), *key_file;
    const cJSON *status = cJSON_GetObjectItemCaseSensitive(o, "status");
    static struct msg_job_status seen;
    char *body = cJSON_IsObject(status) ? cJSON_PrintUnformatted(status) : NULL;

    if (!body)
        return err_set(e, "it has no status");
    job->status = xstrdup(body);
    cJSON_free(body);
    job->status_size = strlen(job->status);
    if (decode_status(job->status, job->status_size, &seen, e) < 0)
        return -1;
    if (!id128_equal(&seen.instance, &job->instance))
        return err_set(e, "it is of another job");
    memcpy(job->run_id, seen.run_id, sizeof(job->run_id));
    key_file = cJSON_GetObjectItemCaseSensitive(owner, "key_file");
    if (!cJSON_IsString(key_file) || strlen(key_file->valuestring) > PEER_OWNER_MAX ||
        !cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(owner, "uid")))
        return err_set(e, "it has no owner"); /* everybody would see it */
    if (json_count(owner, "uid") > PEER_UID_UNKNOWN)
        return err_set(e, "its owner is no user");
    job->owner.uid = (uid_t)json_count(owner, "uid");
    strcpy(job->owner.key_file, key_file->valuestring);
    job->ended_ms = json_count(o, "ended_ms");
    job->written_ms = json_count(o, "written_ms");
    return 0;
}

/* False: it is no name of a job's file. */
static bool parse_file_name(const char *name, struct archived_job *job)
{
    char *end, again[FILE_NAME_SIZE];

    job->created_ms = strtoull(name, &end, 10);
    if (*end != '-' || strlen(end + 1) < ID128_HEX_SIZE - 1)
        return false;
    snprintf(again, sizeof(again), "%.*s", ID128_HEX_SIZE - 1, end + 1);
    return id128_parse(again, &job->instance) &&
           strcmp(job_file_name(job, again, sizeof(again)), name) == 0;
}

static int compare_file_names(const void *a, const void *b)
{
    struct archived_job x, y;

    (void)parse_file_name(*(char *const *)a, &x);
    (void)parse_file_name(*(char *const *)b, &y);
    return x.created_ms < y.created_ms ? 1 : x.created_ms > y.created_ms ? -1 : 0;
}

/* The names of all jobs' files, the newest first. */
static char **list_names(const struct job_archive *a, size_t *count)
{
    int fd = openat(a->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct archived_job job;
    struct dirent *entry;
    char **names = NULL;

    *count = 0;
    while (dir && (entry = readdir(dir))) {
        if (!parse_file_name(entry->d_name, &job))
            continue;
        if ((*count & (*count - 1)) == 0) /* a power of 2 */
            names = xrealloc(names, (*count ? 2 * *count : 1) * sizeof(*names));
        names[(*count)++] = xstrdup(entry->d_name);
    }
    if (dir)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
    if (*count > 0)
        qsort(names, *count, sizeof(*names), compare_file_names);
    return names;
}

/* One that cannot be read stays until newer ones need its room. */
static void load_job(struct job_archive *a, const char *name, unsigned *unreadable,
                     struct err *why)
{
    struct archived_job *job = xcalloc(1, sizeof(*job));
    cJSON *o;

    (void)parse_file_name(name, job);
    o = read_file(a, name, &job->size, why);
    if (!o || read_archived_job(job, o, why) < 0) {
        free(job->status);
        job->status = NULL;
        if ((*unreadable)++ == 0)
            (void)err_wrap(why, "%s/%s is left out", a->path, name);
    }
    cJSON_Delete(o);
    archive_insert(a, job);
}

static void load_jobs(struct job_archive *a)
{
    unsigned unreadable = 0;
    struct err why, first = { .text = "" };
    size_t count;
    char **names = list_names(a, &count);

    for (size_t i = 0; i < count; i++) {
        if (i < ARCHIVE_JOBS_MAX && a->bytes <= ARCHIVE_BYTES_MAX)
            load_job(a, names[i], &unreadable, &why);
        else
            (void)!unlinkat(a->fd, names[i], 0);
        if (unreadable > 0 && !*first.text)
            first = why;
        free(names[i]);
    }
    free(names);
    archive_prune(a);
    if (unreadable > 1)
        log_warn("%s; so are %u others", first.text, unreadable - 1);
    else if (unreadable == 1)
        log_warn("%s", first.text);
}

struct job_archive *job_archive_open(const char *state_dir, struct err *e)
{
    struct job_archive *a = xcalloc(1, sizeof(*a));
    struct stat st;

    a->path = xasprintf("%s/" ARCHIVE_FOLDER, state_dir);
    if (mkdir(a->path, 0700) < 0 && errno != EEXIST) {
        (void)err_set_errno(e, errno, "%s", a->path);
        a->fd = -1;
    } else {
        a->fd = open(a->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (a->fd < 0)
            (void)err_set_errno(e, errno, "%s", a->path);
    }
    if (a->fd >= 0 && (fstat(a->fd, &st) < 0 || st.st_uid != geteuid())) {
        (void)err_set(e, "%s belongs to another user", a->path);
        close(a->fd);
        a->fd = -1;
    }
    if (a->fd < 0) {
        job_archive_close(a);
        return NULL;
    }
    (void)!unlinkat(a->fd, ARCHIVE_NEW, 0); /* of a process that was killed */
    load_jobs(a);
    return a;
}

void job_archive_close(struct job_archive *a)
{
    if (!a)
        return;
    for (unsigned i = 0; i < a->count; i++)
        archived_job_destroy(a->job[i]);
    if (a->fd >= 0)
        close(a->fd);
    free(a->path);
    free(a);
}

int job_archive_status(const struct archived_job *job, uint64_t wall_ms,
                       struct msg_job_status *status, struct err *e)
{
    uint64_t ended_ms = job->ended_ms ? job->ended_ms : job->written_ms;

    if (!job->status)
        return err_set(e, "the file of job %s cannot be read", job->run_id);
    if (decode_status(job->status, job->status_size, status, e) < 0)
        return -1;
    status->age_ms = wall_ms > job->created_ms ? wall_ms - job->created_ms : 0;
    status->state_ms = wall_ms > ended_ms ? wall_ms - ended_ms : 0;
    return 0;
}

struct job_history *job_archive_history(const struct job_archive *a,
                                        const struct archived_job *job, struct err *e)
{
    char name[FILE_NAME_SIZE];
    struct job_history *history = NULL;
    size_t size;
    cJSON *o = read_file(a, job_file_name(job, name, sizeof(name)), &size, e);

    if (o) {
        history = history_from_json(cJSON_GetObjectItemCaseSensitive(o, "history"));
        if (!history)
            (void)err_set(e, "%s/%s has no history", a->path, name);
    }
    cJSON_Delete(o);
    return history;
}
