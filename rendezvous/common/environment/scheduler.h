/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/limits.h"

/*
 * What the variables of schedulers and launchers (Slurm, Kubernetes, MPI and others)
 * say about this process. There are two views: of a process that is the only one of its
 * job on its node (crun), and of a process that is one rank (a worker that crun did not
 * start). It reads nothing but what it is given.
 */
struct scheduler_env {
    const char *const *variables; /* "NAME=value", NULL-ended */
    const char *host;             /* this machine's name; "" or NULL: not known */
    /* The text of a file that a variable names, to be freed; NULL: none to be read. */
    char *(*read_file)(const char *path);
};

/* The value of a variable; NULL: it is not set, or empty. */
const char *scheduler_value(const struct scheduler_env *env, const char *name);

/* -- one process per node ---------------------------------------------------------- */

#define SCHEDULER_SOURCE_SIZE 96
#define SCHEDULER_TEXT_SIZE 256

struct scheduler_node {
    const char *scheduler;              /* "Slurm", "Kubernetes", ...; "" none */
    char source[SCHEDULER_SOURCE_SIZE]; /* "Slurm step 1234.0"; "" none */
    uint32_t nodes;                     /* 0: not said */
    int32_t rank;                       /* -1: not said */
    char host[HOST_NAME_MAX_BYTES + 1]; /* rank 0's; "" not said */
    uint16_t port;                      /* 0: not said */
    char run_id[RUN_ID_MAX + 1];        /* batch job, step, restart; "" not said */
    uint32_t tasks_on_node;             /* 0: not said */
    uint32_t gpus;                      /* of this node, for this job; 0: not said */
    uint32_t cpus;                      /* the same */
    int64_t end_time;                   /* Unix time when the job ends; 0: not said */
    /* The launcher brings the output of all nodes to one place. */
    bool shares_output;
    /* PMI-1 carries rank 0's address: it needs no host here */
    bool has_pmi;
    /* Slurm's job has `nodes` nodes, and this is no step: the batch script, or the
     * shell of salloc. */
    bool is_shell;
    bool is_outside;                     /* and that shell is not on one of the nodes */
    char variables[SCHEDULER_TEXT_SIZE]; /* that were read: "SLURM_NODEID, ..." */
    /* Why it is not said: a text that begins with a variable; "": it is said */
    char missing_nodes[SCHEDULER_TEXT_SIZE], missing_rank[SCHEDULER_TEXT_SIZE];
    char missing_host[SCHEDULER_TEXT_SIZE];
    char warning[2 * SCHEDULER_TEXT_SIZE]; /* a contradiction, or stale variables */
};

/*
 * The first source that is there, in the order of the table; *n is also filled if it
 * says only a part. -1: a variable has a value that cannot be, this host is not one of
 * the job's, or several processes of the job are on this node. e names the variable.
 */
int scheduler_find_node(const struct scheduler_env *env, struct scheduler_node *n,
                        struct err *e) MUST_CHECK;

/* -- the batch job around it ------------------------------------------------------- */

#define SCHEDULER_BATCH_SIZE 96

struct scheduler_batch {
    char job[SCHEDULER_BATCH_SIZE]; /* "Slurm job 1234"; "" none */
    /* A task of srun, whose processes Slurm signals all at once. */
    bool is_slurm_step;
    int64_t end_time; /* Unix time when the job ends; 0: not said */
};

void scheduler_read_batch(const struct scheduler_env *env, struct scheduler_batch *b);

/* -- one process per rank ---------------------------------------------------------- */

/* The names of a launcher's variables, NULL if it has none. */
struct scheduler_rank_variables {
    const char *launcher;
    const char *rank, *size, *local_rank, *local_size, *node, *nodes, *restarts;
    const char *job[3]; /* the values of those that are set form the job's name */
    const char *hosts;  /* a list whose first host is rank 0's */
    /* "True": the launcher serves the store. A launcher that has it sets MASTER_PORT.
     */
    const char *agent_store;
};

/* Those of the innermost launcher; NULL: no launcher started this process. */
const struct scheduler_rank_variables *
scheduler_find_rank(const struct scheduler_env *env);

/* The first name of a list of hosts: "gpu[03-05,9],x" is "gpu03". */
int scheduler_first_host(const char *list, char *host, size_t size) MUST_CHECK;
