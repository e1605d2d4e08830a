/* SPDX-License-Identifier: MIT */
#pragma once

#include <sys/types.h>

#include "agent/config.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * A worker's environment: exactly torchrun's variables, and crun's own, over the
 * environment of crun. Pure.
 */
struct worker_env_inputs {
    const struct config *config;
    const struct msg_start *start; /* ranks, sizes, store */
    uint64_t epoch;
    const char *instance; /* of the job; "" or NULL: not known */
    uint32_t local_rank;
    const char *error_file; /* "" : none */
    const char *progress;   /* path of the status page; "": none */
    const char *stacks;     /* path of the file for its stacks; "" or NULL: none */
    /* where PyTorch's flight recorder is asked, and writes (torch_recorder.h), "" or
     * NULL: it is not asked */
    const char *recorder_pipe, *recorder_dump;
    const char *memory; /* the socket of its keeper; "" or NULL: none */
    const char *launch; /* guard_launch_tag; "" or NULL: none */
    bool agent_store;   /* an agent serves the store */
};

/* NULL-ended, in one allocation that the caller frees. base is environ or the like,
 * whose texts it points to. */
const char **worker_env_build(const struct worker_env_inputs *f,
                              const char *const *base);

/* What all workers of the node have in common, in all epochs, and what their template
 * needs. Of start, only max_restarts counts. */
const char **worker_env_build_template(const struct worker_env_inputs *f, pid_t guard,
                                       const char *const *base);
