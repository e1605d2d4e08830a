/* SPDX-License-Identifier: MIT */
#ifndef AGENT_WORKERS_WORKER_ENV_H
#define AGENT_WORKERS_WORKER_ENV_H

#include "agent/config/config.h"
#include "rendezvous/protocol/message.h"

/*
 * A worker's environment and arguments: torchrun's variables to the letter, and crun's
 * own, laid over the environment that crun was started with. Pure.
 */
struct workerenv_facts {
    const struct config *config;
    const struct msg_start *start; /* ranks, sizes, store */
    uint64_t epoch;
    uint32_t local_rank;
    const char *error_file; /* "" : none */
    const char *progress;   /* path of the status page; "" : none */
    const char *launch;     /* guard_launch; "" or NULL: none */
    bool agent_store;       /* the store is served by an agent */
};

/* NULL-ended, in one allocation: free() it. base is environ, or the like; its texts
 * are pointed to. */
const char **workerenv_build(const struct workerenv_facts *f, const char *const *base);

/* config's argv with $local_rank and ${local_rank} replaced, unless another "$" stands
 * before it, which is dropped; likewise. */
const char **workerenv_argv(const struct workerenv_facts *f);

#endif
