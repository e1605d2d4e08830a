/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ctl_jobs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/proc.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/json_strict.h"
#include "rendezvous/wire/protocol/limits.h"

#define RECORD_BYTES_MAX (256u << 10)
#define EVENTS_BYTES_MAX (1u << 20)
#define JOBS_MAX 4096 /* of one folder */
#define FOLDER_BYTES_MAX (16u << 20)
#define ITEMS_MAX 64 /* of a record */
#define MS_MAX 1000000000000000ull

struct ctl_jobs_folder {
    struct ctl_jobs_folder *next;
    struct run_folder folder, ended; /* ended.fd -1: there is none */
    size_t bytes;                    /* of the records that were read */
};

/* -- records ----------------------------------------------------------------------- */

static const char *record_text(const cJSON *o, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, name));

    return text ? text : "";
}

uint64_t ctl_record_number(const cJSON *o, const char *name, uint64_t max)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, name);

    return cJSON_IsNumber(item) && item->valuedouble > 0 &&
                   item->valuedouble <= (double)max
               ? (uint64_t)item->valuedouble
               : 0;
}

static bool record_is(const cJSON *o, const char *name)
{
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, name));
}

/* Another user may have written it: what is parsed is kept only if it is small. */
bool ctl_record_is_small(const cJSON *o, unsigned depth)
{
    const cJSON *item;
    unsigned count = 0;

    cJSON_ArrayForEach(
        item, o) if (++count > ITEMS_MAX ||
                     (item->child &&
                      (!depth || !ctl_record_is_small(item, depth - 1)))) return false;
    return true;
}

static cJSON *read_record(struct ctl_jobs_folder *f, const struct run_folder *folder,
                          const char *file)
{
    char name[80], *text;
    cJSON *o;

    snprintf(name, sizeof(name), "%s.json", file);
    text = run_folder_read(folder, name, RECORD_BYTES_MAX);
    f->bytes += text ? strlen(text) : 0;
    o = text && f->bytes <= FOLDER_BYTES_MAX ? cJSON_Parse(text) : NULL;
    free(text);
    if (cJSON_IsObject(o) && ctl_record_is_small(o, 1) &&
        ctl_record_number(o, "pid", INT32_MAX) >= 1)
        return o;
    cJSON_Delete(o);
    return NULL;
}

void ctl_job_fill(struct ctl_job *j, const struct run_folder *folder, const char *file,
                  const cJSON *record, enum ctl_job_state state)
{
    const cJSON *result = cJSON_GetObjectItemCaseSensitive(record, "result");
    const cJSON *outputs = cJSON_GetObjectItemCaseSensitive(record, "outputs");
    const char *output = cJSON_GetStringValue(cJSON_GetArrayItem(outputs, 0));

    *j = (struct ctl_job){
        .state = state,
        .folder = folder,
        .record = record,
        .run_id = record_text(record, "run_id"),
        .name = record_text(record, "name"),
        .program = record_text(record, "program"),
        .instance = record_text(record, "instance"),
        .rendezvous = record_text(record, "rendezvous"),
        .log_dir = record_text(record, "log_dir"),
        .pid = (pid_t)ctl_record_number(record, "pid", INT32_MAX),
        .uid = folder->owner,
        .is_host = record_is(record, "host"),
        .is_launcher = record_is(record, "launcher"),
        .host = record_text(record, "reach_host"),
        .rsh = record_text(record, "reach_rsh"),
        .ssh_args = record_text(record, "reach_ssh_args"),
        .command = folder->owner == geteuid() ? record_text(record, "reach_command")
                                              : "", /* it is executed */
        .output = output ? output : "",
        .fd = -1,
        .nodes = (uint32_t)ctl_record_number(record, "nodes", UINT32_MAX),
        .workers = (uint32_t)ctl_record_number(record, "workers", UINT32_MAX),
        .started_ms = ctl_record_number(record, "started_ms", MS_MAX),
        .ended_ms = ctl_record_number(result, "ended_ms", MS_MAX),
        .result = record_text(result, "state"),
        .reason = record_text(result, "reason"),
        .text = record_text(result, "text"),
        .report = record_text(record, "report"),
        .exit_code = (int)ctl_record_number(result, "exit_code", INT32_MAX),
    };
    snprintf(j->file, sizeof(j->file), "%s", file);
    if (state == CTL_JOB_ENDED && strcmp(j->result, "killed") == 0)
        j->state = CTL_JOB_KILLED;
}

static void add_job(struct ctl_jobs *jobs, const struct run_folder *folder,
                    const char *file, const cJSON *record, enum ctl_job_state state)
{
    jobs->job = xrealloc(jobs->job, (jobs->count + 1) * sizeof(*jobs->job));
    ctl_job_fill(&jobs->job[jobs->count++], folder, file, record, state);
    jobs->running += state == CTL_JOB_RUNNING;
}

/* -- processes that are gone ------------------------------------------------------- */

/* The last sign of a crun: when one of its files was changed last. */
static uint64_t last_sign_ms(const struct run_folder *folder, const char *file)
{
    static const char *const ends[] = { "json", "sock", "events" };
    uint64_t last = 0;
    char name[80];
    struct stat st;

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        snprintf(name, sizeof(name), "%s.%s", file, ends[i]);
        if (fstatat(folder->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            (uint64_t)st.st_mtim.tv_sec * 1000 > last)
            last = (uint64_t)st.st_mtim.tv_sec * 1000;
    }
    return last;
}

/* Its crun ended without a word: the record goes to those of ended jobs. Only of our
 * own user: in the folder of another one nothing is changed. */
static void file_killed_job(struct ctl_jobs *jobs, struct ctl_jobs_folder *f,
                            const char *file, cJSON *record)
{
    uint64_t now = clock_wall_ms();
    cJSON *result = cJSON_AddObjectToObject(record, "result");
    char to[64], name[80], old[80], *text;

    cJSON_AddStringToObject(result, "state", "killed");
    cJSON_AddStringToObject(result, "text", "its crun was killed");
    cJSON_AddNumberToObject(result, "ended_ms",
                            (double)last_sign_ms(&f->folder, file)); /* or later */
    snprintf(to, sizeof(to), "%" PRIu64 "-%s", now, file);
    if (f->folder.owner != geteuid() ||
        (f->ended.fd < 0 && run_folder_open_ended(&f->folder, true, &f->ended) < 0)) {
        add_job(jobs, &f->folder, file, record, CTL_JOB_KILLED);
        return;
    }
    snprintf(old, sizeof(old), "%s.json", file);
    snprintf(name, sizeof(name), "%s.json", to);
    if (renameat(f->folder.fd, old, f->ended.fd, name) < 0) { /* another crunctl did */
        cJSON_Delete(record);
        return;
    }
    text = text_printable_json(cJSON_Print(record));
    if (text)
        (void)!run_folder_write(&f->ended, name, text, strlen(text));
    free(text);
    snprintf(old, sizeof(old), "%s.events", file);
    snprintf(name, sizeof(name), "%s.events", to);
    (void)!renameat(f->folder.fd, old, f->ended.fd, name);
    snprintf(old, sizeof(old), "%s.sock", file);
    run_folder_remove(&f->folder, old);
    cJSON_Delete(record); /* it is found among the ended ones */
}

/* -- folders ----------------------------------------------------------------------- */

/* Calls fn with the name of each file that ends so, without its end. */
static void list_files(const struct run_folder *folder, const char *end,
                       void (*fn)(struct ctl_jobs *, struct ctl_jobs_folder *,
                                  const char *),
                       struct ctl_jobs *jobs, struct ctl_jobs_folder *f)
{
    int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    size_t left = JOBS_MAX, length;
    struct dirent *entry;
    char file[64];

    while (dir && left > 0 && (entry = readdir(dir))) {
        length = strlen(entry->d_name);
        if (length <= strlen(end) || length - strlen(end) >= sizeof(file) ||
            strcmp(entry->d_name + length - strlen(end), end) != 0)
            continue;
        snprintf(file, sizeof(file), "%.*s", (int)(length - strlen(end)),
                 entry->d_name);
        if (strspn(file, "0123456789-") != strlen(file))
            continue;
        fn(jobs, f, file);
        left--;
    }
    if (dir)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
}

static void find_running(struct ctl_jobs *jobs, struct ctl_jobs_folder *f,
                         const char *file)
{
    cJSON *record = read_record(f, &f->folder, file);
    char name[80];
    int fd;

    if (!record)
        return;
    snprintf(name, sizeof(name), "%s.sock", file);
    fd = run_folder_connect(&f->folder, name);
    if (fd >= 0)
        close(fd);
    if (fd < 0 && errno == ECONNREFUSED)
        file_killed_job(jobs, f, file, record);
    else if (fd < 0 && errno == ENOENT &&
             kill((pid_t)ctl_record_number(record, "pid", INT32_MAX), 0) < 0 &&
             errno == ESRCH)
        cJSON_Delete(record); /* it has just ended */
    else
        add_job(jobs, &f->folder, file, record, CTL_JOB_RUNNING);
}

static void find_ended(struct ctl_jobs *jobs, struct ctl_jobs_folder *f,
                       const char *file)
{
    cJSON *record = read_record(f, &f->ended, file);

    if (record)
        add_job(jobs, &f->ended, file, record, CTL_JOB_ENDED);
}

static void find_detached(struct ctl_jobs *jobs, struct ctl_jobs_folder *f,
                          const char *file)
{
    cJSON *record = read_record(f, &f->folder, file);

    if (record && *record_text(record, "reach_command"))
        add_job(jobs, &f->folder, file, record,
                cJSON_GetObjectItemCaseSensitive(record, "result") ? CTL_JOB_ENDED
                                                                   : CTL_JOB_RUNNING);
    else
        cJSON_Delete(record);
}

static void look_for_detached(struct ctl_jobs *jobs)
{
    struct ctl_jobs_folder *f = xcalloc(1, sizeof(*f));

    f->ended.fd = -1;
    f->next = jobs->folders;
    if (run_folder_open_detached(false, &f->folder) < 0) {
        free(f);
        return;
    }
    jobs->folders = f;
    list_files(&f->folder, ".json", find_detached, jobs, f);
}

static void look_into(struct ctl_jobs *jobs, const char *path, uid_t owner)
{
    struct ctl_jobs_folder *f;

    for (f = jobs->folders; f; f = f->next)
        if (strcmp(f->folder.path, path) == 0)
            return;
    f = xcalloc(1, sizeof(*f));
    if (run_folder_open(&f->folder, path, owner) < 0) {
        if (errno != ENOENT && owner == geteuid() && !jobs->folders && !*jobs->blocked)
            snprintf(jobs->blocked, sizeof(jobs->blocked), "%s", path);
        free(f);
        return;
    }
    (void)!run_folder_open_ended(&f->folder, false, &f->ended);
    f->next = jobs->folders;
    jobs->folders = f;
    list_files(&f->folder, ".json", find_running, jobs, f);
    if (f->ended.fd >= 0)
        list_files(&f->ended, ".json", find_ended, jobs, f);
}

/* For root: the folders of all users, "/tmp/crun-UID" and "/run/user/UID/crun". */
static void look_into_all(struct ctl_jobs *jobs, const char *parent, const char *before,
                          const char *after)
{
    DIR *dir = opendir(parent);
    struct dirent *entry;
    char path[PATH_MAX];

    while (dir && (entry = readdir(dir))) {
        const char *digits = entry->d_name + strlen(before);
        char text[16];
        uid_t uid;

        if (strncmp(entry->d_name, before, strlen(before)) != 0)
            continue;
        uid = (uid_t)strtoul(digits, NULL, 10);
        snprintf(text, sizeof(text), "%u", (unsigned)uid);
        if (strcmp(text, digits) != 0) /* "01000": a user has one folder here */
            continue;
        snprintf(path, sizeof(path), "%s/%s%s", parent, entry->d_name, after);
        look_into(jobs, path, (uid_t)uid);
    }
    if (dir)
        closedir(dir);
}

/* -- the list ---------------------------------------------------------------------- */

static int compare_jobs(const void *a, const void *b)
{
    const struct ctl_job *x = a, *y = b;
    uint64_t u = x->ended_ms ? x->ended_ms : x->started_ms,
             v = y->ended_ms ? y->ended_ms : y->started_ms;

    if ((x->state == CTL_JOB_RUNNING) != (y->state == CTL_JOB_RUNNING))
        return x->state == CTL_JOB_RUNNING ? -1 : 1;
    return u < v ? 1 : u > v ? -1 : (x->pid < y->pid) - (x->pid > y->pid);
}

void ctl_jobs_sort(struct ctl_jobs *jobs)
{
    if (jobs->count > 1)
        qsort(jobs->job, jobs->count, sizeof(*jobs->job), compare_jobs);
}

/* One that ends while the folders are read may be found twice. */
static bool has_ended_too(const struct ctl_jobs *jobs, const struct ctl_job *job)
{
    for (size_t i = 0; i < jobs->count; i++)
        if (jobs->job[i].state != CTL_JOB_RUNNING && jobs->job[i].uid == job->uid &&
            jobs->job[i].pid == job->pid && jobs->job[i].started_ms == job->started_ms)
            return true;
    return false;
}

void ctl_jobs_find(struct ctl_jobs *jobs)
{
    char paths[RUN_FOLDERS_MAX][PATH_MAX];
    unsigned count = run_folder_list(paths);
    size_t kept = 0;

    *jobs = (struct ctl_jobs){ .job = NULL };
    for (unsigned i = 0; i < count; i++)
        look_into(jobs, paths[i], geteuid());
    look_for_detached(jobs);
    if (jobs->folders)
        *jobs->blocked = '\0';
    if (geteuid() == 0 && !run_folder_is_chosen()) {
        look_into_all(jobs, "/run/user", "", "/crun");
        look_into_all(jobs, "/tmp", "crun-", "");
    }
    for (size_t i = 0; i < jobs->count; i++) {
        if (jobs->job[i].state == CTL_JOB_RUNNING &&
            has_ended_too(jobs, &jobs->job[i])) {
            cJSON_Delete((cJSON *)jobs->job[i].record);
            jobs->job[i].record = NULL;
            jobs->running--;
        }
    }
    for (size_t i = 0; i < jobs->count; i++)
        if (jobs->job[i].record)
            jobs->job[kept++] = jobs->job[i];
    jobs->count = kept;
    ctl_jobs_sort(jobs);
}

void ctl_jobs_release(struct ctl_jobs *jobs)
{
    struct ctl_jobs_folder *f;

    for (size_t i = 0; i < jobs->count; i++) {
        cJSON_Delete((cJSON *)jobs->job[i].record);
        free(jobs->job[i].unknown);
        if (jobs->job[i].fd >= 0)
            close(jobs->job[i].fd);
    }
    free(jobs->job);
    while ((f = jobs->folders)) {
        jobs->folders = f->next;
        run_folder_close(&f->folder);
        run_folder_close(&f->ended);
        free(f);
    }
    *jobs = (struct ctl_jobs){ .job = NULL };
}

/* -- reaching one ------------------------------------------------------------------ */

bool ctl_job_is_suspended(const struct ctl_job *job, struct err *e)
{
    struct proc_stat s;
    char name[128];

    if (*job->command)
        return false;
    if (!proc_read_stat(job->pid, &s) || s.state != 'T')
        return false;
    err_set(e, "\"%.64s\" is suspended: fg in its shell, or kill -CONT %d, resumes it",
            text_printable(job->name, name, sizeof(name)), (int)job->pid);
    return true;
}

int ctl_job_connect(const struct ctl_job *job, struct err *e)
{
    char name[80];
    int fd;

    if (ctl_job_is_suspended(job, e))
        return -1;
    if (*job->command && job->fd < 0)
        return err_set(e, "it is unknown whether job \"%s\" runs: %s", job->name,
                       job->unknown ? job->unknown : "its host was not asked");
    if (*job->command)
        return fcntl(job->fd, F_DUPFD_CLOEXEC, 0);
    snprintf(name, sizeof(name), "%s.sock", job->file);
    fd = run_folder_connect(job->folder, name);
    return fd >= 0 ? fd : err_set_errno(e, errno, "%s/%s", job->folder->path, name);
}

cJSON *ctl_job_read_history(const struct ctl_job *job)
{
    cJSON *o = NULL;
    char name[80], *text;
    struct err e;

    snprintf(name, sizeof(name), "%s.history", job->file);
    text = run_folder_read(job->folder, name, RECORD_BYTES_MAX);
    if (text && json_check(text, strlen(text), JSON_DEPTH_MAX, &e) == 0)
        o = cJSON_Parse(text);
    free(text);
    if (cJSON_IsObject(o))
        return o;
    cJSON_Delete(o);
    return NULL;
}

char *ctl_job_read_events(const struct ctl_job *job)
{
    char name[80], *text;

    snprintf(name, sizeof(name), "%s.events", job->file);
    text = run_folder_read(job->folder, name, EVENTS_BYTES_MAX);
    return text ? text : xstrdup("");
}
