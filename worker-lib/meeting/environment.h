/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_MEETING_ENVIRONMENT_H
#define WORKER_LIB_MEETING_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/base/err.h"
#include "worker-lib/crun/worker.h"

/*
 * Which rank this is, by the variables that its launcher has set: torchrun's first,
 * then Open MPI's, hydra's, Slurm's. With none of them it is a world of one.
 */
struct environment {
    const char *launcher; /* "torchrun", ..., "" */
    unsigned rank, size;
    /* as the launcher says it, 0 of 0 where it does not */
    unsigned local_rank, local_size;
    bool local_rank_given;
    unsigned node, nodes;
    unsigned restarts;
    /* where the store is. Port 0: one of environment_port, made of the job's name */
    char host[256];
    uint16_t port;
    bool agent_store; /* the launcher serves it; else rank 0 does, unless another
                         process does */
    char job[300];    /* this life of this job: no other has this text */
};

/* CRUN_BAD_ENVIRONMENT: e names the variable, its value and what it should be. */
crun_status environment_read(struct environment *env, struct err *e);

/*
 * The same rank in another world, after `worlds` that this process had before: the job
 * gets a new name, so that no key of the earlier worlds is read. A store that the
 * launcher serves is the same one; rank 0's may be about to close, so it serves this
 * one elsewhere.
 */
void environment_again(struct environment *env, unsigned worlds);

#define ENVIRONMENT_PORTS 16
/* The port to try at this turn: the same ones in all ranks of the job. */
uint16_t environment_port(const struct environment *env, unsigned turn);

/* The first name of a host list as Slurm writes it, "gpu[03-05,9],x" is "gpu03". */
int environment_first_host(const char *list, char *host, size_t size);

#endif
