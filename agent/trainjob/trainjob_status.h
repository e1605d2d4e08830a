/* SPDX-License-Identifier: MIT */
#ifndef AGENT_TRAINJOB_TRAINJOB_STATUS_H
#define AGENT_TRAINJOB_TRAINJOB_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;
struct msg_heartbeat;
struct trainjob_status;

/*
 * The status of a TrainJob of Kubeflow Trainer, for `kubectl get trainjob`: node rank 0
 * posts the progress of the job to the trainer's server, which the trainer's variables
 * name (KUBEFLOW_TRAINER_SERVER_URL, _CA_CERT, _TOKEN: a file each of the last two).
 * A thread does it, one post at a time, so a server that hangs disturbs nothing. What
 * fails is tried again; the first failure is logged.
 */
struct trainjob_progress {
    uint64_t step, steps;           /* done, and of the whole job; 0: not known */
    const char *steps_per_s, *loss; /* "": not known */
};

/* False: there is nothing to tell now. */
typedef bool trainjob_ask_fn(void *arg, struct trainjob_progress *progress);

/* NULL without the variables. */
struct trainjob_status *trainjob_status_create(struct loop *loop, trainjob_ask_fn *ask,
                                               void *arg);
/* The last post, if the server has taken the ones before; waits a moment for its end.
 */
void trainjob_status_end(struct trainjob_status *t);     /* NULL is fine */
void trainjob_status_destroy(struct trainjob_status *t); /* NULL is fine */

/* The JSON of a post. Returns buf. wall_ms: now. */
char *trainjob_format(const struct trainjob_progress *p, uint64_t wall_ms, char *buf,
                      size_t size);

#endif
