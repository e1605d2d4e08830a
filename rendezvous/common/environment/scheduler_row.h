/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/environment/scheduler.h"
#include "rendezvous/common/environment/scheduler_reading.h"

/*
 * One row for each scheduler or launcher, in the order in which crun looks for them. A
 * column is a variable's name; what a plain number or a list of hosts cannot express is
 * in the row's function.
 */
struct scheduler_row {
    const char *name, *unit; /* "Slurm", "step": the source is "Slurm step ID" */
    const char *known_by[3]; /* all are set */
    const char *unlike;      /* and this is not */
    bool (*applies)(const struct scheduler_env *env); /* and this holds; NULL: always */
    const char *id[2];                                /* of the job and its part */
    const char *restarts;                             /* is part of the job's id */
    const char *nodes, *node;                         /* how many, and which is this */
    const char *tasks;                                /* of the job, on this node */
    const char *host;                                 /* rank 0's */
    const char *hosts;                                /* a list that begins with it */
    const char *port, *gpus, *cpus, *end_time;
    bool shares_nodes; /* with other jobs, so that the port is the job's own */
    int (*read_more)(struct scheduler_reading *r);
    const char *one_each; /* what starts one process on each node */
    struct scheduler_rank_variables ranks;
};

extern const struct scheduler_row scheduler_rows[];
extern const size_t scheduler_row_count;
