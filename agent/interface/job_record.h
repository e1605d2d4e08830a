/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "rendezvous/common/base/run_folder.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * What crun writes down about its job in the run folder, for crunctl: while it runs
 * <pid>.json and <pid>.events (JSON lines); then ended/<wall ms>-<pid>.json, .events
 * and, if it has hosted the rendezvous, .history, of which the newest are kept.
 */
/* How the job is reached on another machine, once its launcher has left. */
struct job_reach {
    const char *host, *rsh, *ssh_args; /* as in remote.h */
    const char *command; /* for sh there; far_side.c says what it prints */
    const char *const
        *outputs; /* NULL-ended: "host:/path" of the output of each node */
};

struct job_facts {
    const char *run_id, *name, *program;
    const char *log_dir;           /* the run's folder; NULL: none */
    bool keeps_events;             /* events and report go there too, at the end */
    mode_t log_mode;               /* of those files; 0: for the user only */
    const char *rendezvous;        /* where it is; NULL: in this process */
    bool is_host;                  /* the rendezvous is in this process */
    bool is_launcher;              /* starts the job on other machines */
    const struct job_reach *reach; /* of a job that runs elsewhere; NULL: here */
    const char *end_file;          /* gets the record of the end, too; NULL: none */
    const char *instance;          /* "": the job has not formed yet */
    uint64_t started_ms;
    uint32_t nodes, workers;
};

struct job_result {
    const char *state; /* "done", or "left": this node, but maybe not the job */
    const char *reason, *text;
    const char *report; /* NULL: none */
    int exit_code;
    uint32_t restarts, max_restarts;
    uint64_t epoch, step;
    /* what the rendezvous in this process knows of its past: time, last_restart and
     * history, as in the JSON of crunctl; NULL: it is elsewhere */
    const struct cJSON *past;
};

struct job_record;

/* name: of the files, without their ends. */
struct job_record *job_record_create(void);
void job_record_destroy(struct job_record *r); /* NULL is fine */

/* Events are kept until there is a folder, and then written there. */
void job_record_add_event(struct job_record *r, const struct msg_event *event);
/* Files that were not there before are made, with all that is known. */
void job_record_write(struct job_record *r, const struct run_folder *folder,
                      const char *name, const struct job_facts *facts);
/* Of a job that runs elsewhere: a file of its own, which stays. -1 and errno. */
int job_record_write_detached(const struct run_folder *folder,
                              const struct job_facts *facts) MUST_CHECK;
/* Writes facts->end_file. */
void job_record_write_end_file(const struct job_facts *facts,
                               const struct job_result *result);
/* Moves the record to those of ended jobs. */
void job_record_end(struct job_record *r, const struct run_folder *folder,
                    const char *name, const struct job_facts *facts,
                    const struct job_result *result);
