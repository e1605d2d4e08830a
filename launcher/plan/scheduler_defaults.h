/* SPDX-License-Identifier: MIT */
#pragma once

#include "launcher/flags/options.h"
#include "rendezvous/common/environment/scheduler.h"

/*
 * --nnodes=auto: which node of how many this is, and where the rendezvous is, from the
 * variables of a scheduler. They fill in what no flag, CRUN_* or PET_* gives.
 */
struct defaults_machine {
    struct scheduler_env env;
    uint32_t (*cpus)(void); /* CPUs that this process may run on */
    uint32_t (*gpus)(void);
};

struct defaults_found {
    struct scheduler_node node; /* node.source is "" if there is no scheduler */
    char *endpoint;             /* allocated; options may point to it, and to node */
    bool by_srun; /* the shell of a Slurm job: crun is to be started by srun */
};

/* o may then point into *p. A complete source that is not needed is not an error. */
int defaults_find(struct options *o, const struct defaults_machine *m,
                  struct defaults_found *p, struct err *e) MUST_CHECK;

/* After an error: another task of this node, the first one, reports it. */
bool defaults_is_later_task(const struct defaults_machine *m,
                            const struct defaults_found *p);
