/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "worker-lib/crun/worker.h"

/*
 * The rank of this process, from the variables of its launcher: torchrun's first, then
 * Open MPI's, hydra's, Slurm's. Without any of them it is a world of one.
 */
struct environment {
    const char *launcher; /* "torchrun", ..., "" */
    unsigned rank, size;
    /* as set by the launcher, 0 of 0 if it is not */
    unsigned local_rank, local_size;
    bool local_rank_given;
    unsigned node, nodes;
    unsigned restarts;
    /* the store's address. Port 0: one of environment_port, from the job's name */
    char host[256];
    uint16_t port;
    /* The launcher serves the store; else rank 0 does, unless another process does. */
    bool agent_store;
    char job[300]; /* unique text of this start of this job */
};

/* CRUN_BAD_ENVIRONMENT: e names the variable, its value and what it should be. */
crun_status environment_read(struct environment *env, struct err *e);

/*
 * The same rank in another world, after `worlds` earlier ones of this process: the job
 * gets a new name, so that no key of the earlier worlds is read. A store that the
 * launcher serves is used again; rank 0's may be about to close, so rank 0 serves a new
 * one on another port.
 */
void environment_again(struct environment *env, unsigned worlds);

#define ENVIRONMENT_PORTS 16
/* The port to try at this turn: the same sequence in all ranks of the job. */
uint16_t environment_port(const struct environment *env, unsigned turn);
