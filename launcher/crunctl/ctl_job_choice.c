/* SPDX-License-Identifier: MIT */
/* Which of the jobs of this machine a word means, and which processes are one job. */
#include "launcher/crunctl/ctl_jobs.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/text.h"

#define TOGETHER_MS 30000

/* What a user writes into a record stands for no job of another user. A launcher stands
 * for the nodes with its run id, but two launchers have a job each. */
static bool is_same_job(const struct ctl_job *a, const struct ctl_job *b)
{
    if (a->uid != b->uid)
        return false;
    if (*a->instance && *b->instance)
        return strcmp(a->instance, b->instance) == 0;
    return strcmp(a->run_id, b->run_id) == 0 &&
           (a->is_launcher != b->is_launcher ||
            (*a->rendezvous && strcmp(a->rendezvous, b->rendezvous) == 0));
}

/* Jobs of a launcher have no instance, and may be started again under the same run id.
 */
static bool have_ended_together(const struct ctl_job *a, const struct ctl_job *b)
{
    uint64_t apart = a->ended_ms < b->ended_ms ? b->ended_ms - a->ended_ms
                                               : a->ended_ms - b->ended_ms;

    return (*a->instance && *b->instance) ||
           (a->is_launcher != b->is_launcher && apart < TOGETHER_MS);
}

/* Of the processes of one job the one that hosts its rendezvous knows most. */
static int job_weight(const struct ctl_job *j)
{
    return j->is_host ? 2 : !j->is_launcher;
}

bool ctl_jobs_is_double(const struct ctl_jobs *jobs, const struct ctl_job *job)
{
    bool runs = job->state == CTL_JOB_RUNNING;

    for (size_t i = runs ? 0 : jobs->running; i < (runs ? jobs->running : jobs->count);
         i++) {
        const struct ctl_job *j = &jobs->job[i];

        if (j != job && is_same_job(j, job) && (runs || have_ended_together(j, job)) &&
            (job_weight(j) > job_weight(job) ||
             (job_weight(j) == job_weight(job) && j < job)))
            return true;
    }
    return false;
}

static bool job_has_pid(const struct ctl_job *j, const char *word)
{
    char pid[16];

    snprintf(pid, sizeof(pid), "%d", (int)j->pid);
    return word && strcmp(pid, word) == 0;
}

bool ctl_job_has_name(const struct ctl_job *j, const char *word)
{
    return !word || strcmp(j->name, word) == 0 || strcmp(j->run_id, word) == 0 ||
           job_has_pid(j, word);
}

/* Records of other users may say any pid: a job of this user comes first. */
static const struct ctl_job *find_pid(const struct ctl_jobs *jobs, const char *word)
{
    const struct ctl_job *job = NULL;

    for (size_t i = 0; i < jobs->running; i++) {
        const struct ctl_job *j = &jobs->job[i];

        if (job_has_pid(j, word) &&
            (!job || (job->uid != geteuid() && j->uid == geteuid())))
            job = j;
    }
    return job;
}

/* "several jobs run here, name one by -j PID: train (pid 41), eval (pid 42)" */
static int set_several(const struct ctl_jobs *jobs, const char *word, struct err *e)
{
    char list[400] = "", name[128];
    size_t used = 0;

    for (size_t i = 0; i < jobs->running && used + 64 < sizeof(list); i++) {
        const struct ctl_job *j = &jobs->job[i];

        if (!ctl_job_has_name(j, word) || ctl_jobs_is_double(jobs, j))
            continue;
        used += (size_t)snprintf(
            list + used, sizeof(list) - used, "%s%.40s (pid %d)", used ? ", " : "",
            text_printable(j->name, name, sizeof(name)), (int)j->pid);
    }
    if (word)
        return err_set(e, "several jobs are called \"%.100s\", name one by -j PID: %s",
                       word, list);
    return err_set(e, "several jobs run here, name one by -j PID: %s", list);
}

int ctl_jobs_choose(const struct ctl_jobs *jobs, const char *word, bool ended,
                    const struct ctl_job **job, struct err *e)
{
    size_t found = 0;

    *job = find_pid(jobs, word);
    if (*job)
        return 0;
    for (size_t i = 0; i < jobs->running; i++) {
        const struct ctl_job *j = &jobs->job[i];

        if (!ctl_job_has_name(j, word) || ctl_jobs_is_double(jobs, j))
            continue;
        *job = j;
        found++;
    }
    if (found > 1)
        return set_several(jobs, word, e);
    for (size_t i = jobs->running; ended && word && !*job && i < jobs->count; i++)
        if (ctl_job_has_name(&jobs->job[i], word))
            *job = &jobs->job[i];
    return 0;
}
