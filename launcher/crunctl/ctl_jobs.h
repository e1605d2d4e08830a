/* SPDX-License-Identifier: MIT */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/run_folder.h"

/*
 * The jobs of this user on this machine, as each crun has written them down in the run
 * folder (run_folder.h); for root, those of all users.
 */
enum ctl_job_state {
    CTL_JOB_RUNNING, /* has a socket */
    CTL_JOB_ENDED,   /* has a result */
    CTL_JOB_KILLED   /* its crun was killed, and has left no result */
};

struct ctl_job {
    enum ctl_job_state state;
    const struct run_folder *folder;
    char file[64];       /* of its files, without their ends: "4711", "ended/17-4711" */
    const cJSON *record; /* all of what crun has written */

    /* texts of the record; "" if it has none */
    const char *run_id, *name, *program, *instance, *rendezvous, *log_dir;
    pid_t pid;
    uid_t uid;
    bool is_host;     /* the rendezvous is in that process */
    bool is_launcher; /* it starts the job on other machines */

    /* of a job on other machines: where its first node is and how it is reached */
    const char *host, *rsh, *ssh_args;
    const char *command; /* of a detached one: for ctl_reach; "" none */
    const char *output;  /* and where its output is: "host:/path" */
    int fd;              /* a connection to its crun, once it was asked; -1: none */
    char *unknown;       /* why it could not be asked; NULL */
    uint32_t nodes, workers;
    uint64_t started_ms;

    /* of an ended job */
    uint64_t ended_ms;
    const char *result, *reason, *text, *report;
    int exit_code;
};

struct ctl_jobs {
    struct ctl_job *job; /* the running ones first, then the newest first */
    size_t count, running;
    struct ctl_jobs_folder *folders;
    char blocked[PATH_MAX]; /* this user's only folder is another's; or "" */
};

/* All of them, maybe none. A crun that is gone without a word is filed as killed. */
void ctl_jobs_find(struct ctl_jobs *jobs);
/* Asks the hosts of detached jobs whether they run still, of all or of those with that
 * name. An end is noted for good. */
void ctl_jobs_ask_hosts(struct ctl_jobs *jobs, const char *word);
void ctl_jobs_release(struct ctl_jobs *jobs);

/* -- ctl_job_choice.c -------------------------------------------------------------- */

/*
 * The one that `word` names: a name, a run id or a pid; NULL: the only one that runs. A
 * job of which several processes are here is one. ended: also one that has ended; the
 * newest, if several have the name. 0 with *job NULL if there is none; -1 with e if
 * there are several.
 */
int ctl_jobs_choose(const struct ctl_jobs *jobs, const char *word, bool ended,
                    const struct ctl_job **job, struct err *e) MUST_CHECK;
/* Another process of the same job stands for it, in lists. */
bool ctl_jobs_is_double(const struct ctl_jobs *jobs, const struct ctl_job *job);

bool ctl_job_has_name(const struct ctl_job *j, const char *word); /* NULL: any */

/* -- ctl_jobs.c -------------------------------------------------------------------- */

/* For ctl_reach.c too: a record as a job, and the order of the list. */
void ctl_job_fill(struct ctl_job *j, const struct run_folder *folder, const char *file,
                  const cJSON *record, enum ctl_job_state state);
bool ctl_record_is_small(const cJSON *o, unsigned depth);
void ctl_jobs_sort(struct ctl_jobs *jobs);

/* Whether its crun is stopped, as by Ctrl-Z, and cannot answer; then with why in e. */
bool ctl_job_is_suspended(const struct ctl_job *job, struct err *e);
/* A connection to its crun, or -1 with e. */
int ctl_job_connect(const struct ctl_job *job, struct err *e) MUST_CHECK;
/* A whole number of a record from 0 to max; 0 if there is none. */
uint64_t ctl_record_number(const cJSON *o, const char *name, uint64_t max);
/* The history of an ended job, as status shows it; NULL: none. The caller owns it. */
cJSON *ctl_job_read_history(const struct ctl_job *job);
/* The events of an ended job, JSON lines, or "": to be freed by the caller. */
char *ctl_job_read_events(const struct ctl_job *job);
