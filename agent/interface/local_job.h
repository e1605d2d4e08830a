/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/interface/job_record.h"

struct local_job;
struct loop;

/*
 * How the tools of this user on this machine find and reach a crun: a socket and a
 * record in the run folder (run_folder.h). Only its user and root may connect. If they
 * vanish, they are made again.
 */
struct local_job_calls {
    /* A connection of this user or root, with the uid. Its first bytes are those of the
     * control protocol, and are not read yet. The callee owns fd. */
    void (*connected)(void *arg, int fd, uid_t uid);
    /* Before the record is written: what is true now. The texts must live until the
     * next call of local_job. */
    void (*facts)(void *arg, struct job_facts *facts);
    void *arg;
};

/* It opens by itself after a moment, so that a start does not wait for it: what has
 * succeeded before leaves no trace. */
struct local_job *local_job_create(struct loop *loop,
                                   const struct local_job_calls *calls);
/* The facts have changed. */
void local_job_update(struct local_job *l);
void local_job_add_event(struct local_job *l, const struct msg_event *event);
/* Whether its end with this exit code will be kept. */
bool local_job_leaves_record(const struct local_job *l, int exit_code);
/* The end of the job here, which is kept for a while. NULL: it has not ended, but goes
 * on without this process. */
void local_job_end(struct local_job *l, const struct job_result *result);
void local_job_destroy(struct local_job *l); /* NULL is fine */
