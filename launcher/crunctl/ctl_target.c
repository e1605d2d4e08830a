/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ctl_target.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcher/crunctl/ctl_jobs.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/wire/protocol/job_name.h"

#define OTHERS_MS 2000 /* for the greeting of another user's crun */

/* Which job of a rendezvous has the name that the user gave. */
struct job_name_search {
    const char *wanted;
    bool has_run_id;
    unsigned named;
    char run_id[RUN_ID_MAX + 1]; /* of the last that has the name */
};

static void note_name(void *arg, const struct msg *m)
{
    const struct msg_job_status *s = &m->job_status;
    struct job_name_search *f = arg;
    char name[JOB_NAME_SIZE];

    if (m->type != MSG_JOB_STATUS)
        return;
    f->has_run_id |= strcmp(s->run_id, f->wanted) == 0;
    if (strcmp(job_name(s->run_id, s->program, name, sizeof(name)), f->wanted) != 0)
        return;
    memcpy(f->run_id, s->run_id, sizeof(f->run_id));
    f->named++;
}

static void note_past_name(void *arg, const struct msg *m)
{
    struct job_name_search *f = arg;

    if (f->named == 0)
        note_name(f, m);
}

/* A name that is no run id there becomes that of the only job which has it. */
static void find_named_job(struct ctl_client *c, struct ctl_options *o,
                           bool may_have_ended, struct job_name_search *f)
{
    struct msg m = { .type = MSG_STATUS }, past = { .type = MSG_SHOW_HISTORY };
    struct err e;

    *f = (struct job_name_search){ .wanted = o->run_id };
    (void)!ctl_client_ask_pages(c, &m, note_name, f, &e);
    if (!f->has_run_id && !f->named && may_have_ended)
        (void)!ctl_client_ask_pages(c, &past, note_past_name, f, &e); /* newest first */
    if (!f->has_run_id && f->named == 1) {
        o->run_id = f->run_id;
        o->job_name = f->wanted;
    }
}

static int run_with_rendezvous(const struct ctl_command *command,
                               const struct ctl_options *o, const char *word,
                               struct err *e)
{
    struct ctl_options own = *o;
    struct job_name_search names;
    struct ctl_client *c;
    int rc;

    if (!own.endpoint)
        own.endpoint = CTL_USUAL_ENDPOINT;
    c = ctl_client_open(&own, command->access, &rc, e);
    if (c && own.run_id)
        find_named_job(c, &own, command->run_ended != NULL, &names);
    if (c)
        rc = command->run(c, &own, word, e);
    ctl_client_close(c);
    return rc;
}

/* A job of this machine, by the socket of its crun. */
static int run_with_job(const struct ctl_command *command, const struct ctl_options *o,
                        const struct ctl_job *job, const char *word, struct err *e)
{
    uint64_t greeting_ms = job->uid == geteuid() || o->timeout_ms < OTHERS_MS
                               ? o->timeout_ms
                               : OTHERS_MS;
    struct ctl_options own = *o;
    int rc;
    struct ctl_client *c = ctl_client_open_job(o, job, greeting_ms, &rc, e);

    own.run_id = job->run_id;
    own.job_name = job->name;
    own.job = job;
    if (c)
        rc = command->run(c, &own, word, e);
    ctl_client_close(c);
    return rc;
}

/* Neither this machine nor a rendezvous at the usual place has a job. */
static int find_nothing(const struct ctl_command *command, const struct ctl_options *o,
                        const struct ctl_jobs *jobs, struct err *e)
{
    const struct ctl_job *job;

    if (!o->run_id && command->run_all) {
        fputs(o->json       ? "[]\n"
              : jobs->count ? "no job runs; name one of those that have ended\n"
                            : "no jobs\n",
              o->out);
        return CTL_EXIT_OK;
    }
    if (o->run_id && ctl_jobs_choose(jobs, o->run_id, true, &job, e) == 0 && job)
        err_set(e, "job \"%s\" has ended already: crunctl status %s", job->name,
                o->run_id);
    else if (o->run_id)
        err_set(e,
                "there is no job \"%s\" on this machine: crunctl status shows yours; "
                "others are at their --rdzv-endpoint",
                o->run_id);
    else if (command->run_ended && jobs->count)
        err_set(e, "no job runs; name one of those that have ended (crunctl status)");
    else
        err_set(e, "no job of yours runs on this machine; say where the crund or the "
                   "job's crun is with --rdzv-endpoint");
    return CTL_EXIT_REFUSED;
}

/* The jobs of this machine come first, then those of a rendezvous at the usual
 * place. */
static int run_here(const struct ctl_command *command, const struct ctl_options *o,
                    const char *word, struct err *e)
{
    struct ctl_jobs jobs;
    const struct ctl_job *job = NULL;
    bool may_have_ended = command->run_ended != NULL;
    int rc;

    ctl_jobs_find(&jobs);
    ctl_jobs_ask_hosts(&jobs, o->run_id);
    if (*jobs.blocked)
        log_warn("%s is not a folder of yours alone: no crun can be found by it; set "
                 "CRUN_RUNTIME_DIR for crun and crunctl",
                 jobs.blocked);
    if (command->run_all && !o->run_id && !o->follow &&
        (command == &ctl_status || command == &ctl_top ? jobs.count : jobs.running) > 0)
        rc = command->run_all(o, &jobs, e);
    else if (ctl_jobs_choose(&jobs, o->run_id, may_have_ended, &job, e) < 0)
        rc = CTL_EXIT_USAGE;
    else if (!job) {
        rc = run_with_rendezvous(command, o, word, e);
        if (rc == CTL_EXIT_UNREACHABLE && e->code == CTL_NOT_THERE)
            rc = find_nothing(command, o, &jobs, e);
    } else if (job->state == CTL_JOB_RUNNING)
        rc = run_with_job(command, o, job, word, e);
    else
        rc = command->run_ended(o, job, e);
    ctl_jobs_release(&jobs);
    return rc;
}

int ctl_target_run(const struct ctl_command *command, const struct ctl_options *o,
                   struct err *e)
{
    const char *word = *o->words ? *o->words : "";

    if (command->is_local)
        return command->run(NULL, o, command->words ? word : "", e);
    if (o->endpoint)
        return run_with_rendezvous(command, o, word, e);
    return run_here(command, o, word, e);
}
