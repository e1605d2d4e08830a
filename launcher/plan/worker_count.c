/* SPDX-License-Identifier: MIT */
#include "launcher/plan/worker_count.h"

#include <inttypes.h>

#include "launcher/program/interpreter.h"
#include "rendezvous/common/base/limits.h"

/* -np without hosts: all nodes have the same number of workers. */
static int divide_processes(const struct options *o, uint32_t *workers, struct err *e)
{
    const struct job_config *j = &o->config.job;
    uint32_t nodes = o->standalone ? 1 : j->max_nodes;

    if (o->nproc_given)
        return err_set(e, "-np and --nproc-per-node cannot both be given");
    if (nodes > 1 && j->min_nodes != j->max_nodes)
        return err_set(e,
                       "-np %" PRIu32 ": the number of nodes varies; give "
                       "--nproc-per-node",
                       o->processes);
    if (o->processes % nodes)
        return err_set(e, "-np %" PRIu32 " is not a multiple of %" PRIu32 " nodes",
                       o->processes, nodes);
    *workers = o->processes / nodes;
    if (*workers > WORKERS_PER_NODE_MAX)
        return err_set(e, "-np: more than %d workers on a node", WORKERS_PER_NODE_MAX);
    return 0;
}

int worker_count_find(const struct options *o, const struct machine *m,
                      uint32_t *workers, struct err *e)
{
    if (o->processes && !hosts_are_wanted(&o->hosts))
        return divide_processes(o, workers, e);
    *workers = o->nproc_number;
    if (o->nproc == NPROC_GPU || o->nproc == NPROC_AUTO)
        *workers = m->gpus();
    if (o->nproc == NPROC_GPU && *workers == 0)
        return err_set(
            e,
            "--nproc-per-node: \"gpu\", but this machine has no GPU that CUDA sees%s",
            m->cuda_visible_devices ? " (CUDA_VISIBLE_DEVICES is set)" : "");
    if (o->nproc == NPROC_CPU || (o->nproc == NPROC_AUTO && *workers == 0))
        *workers = m->cpus();
    if (*workers > WORKERS_PER_NODE_MAX)
        *workers = WORKERS_PER_NODE_MAX;
    return 0;
}

/* One for each GPU of this node that the job may use, else one. */
void worker_count_by_node(struct options *o, const struct defaults_machine *m,
                          const struct scheduler_node *n)
{
    uint32_t seen, gpus;

    if (o->nproc_given || o->processes || python_is_torchrun(o->self))
        return; /* torchrun's default is 1 */
    seen = m->gpus();
    gpus = !seen || (n->gpus && n->gpus < seen) ? n->gpus : seen;
    o->nproc = NPROC_NUMBER;
    o->nproc_number = gpus ? gpus : 1;
}
