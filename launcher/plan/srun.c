/* SPDX-License-Identifier: MIT */
#include "launcher/plan/srun.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "launcher/program/interpreter.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"

/*
 * One task for each node, whatever sbatch was told about tasks. An elastic job survives
 * the loss of a node, and crun itself ends its workers after a failure: srun must not.
 * The step has all CPUs and GPUs that the job has on a node; without --cpu-bind=none
 * its one task could be bound to one CPU.
 */
static const char *const fixed_flags[] = { "--ntasks-per-node=1",  "--no-kill",
                                           "--kill-on-bad-exit=0", "--wait=0",
                                           "--mpi=none",           "--cpu-bind=none" };
#define FLAG_COUNT (sizeof(fixed_flags) / sizeof(fixed_flags[0]))

/* sbatch's flags for each task, which srun reads as its own, would give the step a
 * part of the node. */
static const char *const flags_per_task[] = {
    "SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_NTASKS_PER_GPU",
    "SLURM_NTASKS_PER_SOCKET", "SLURM_NTASKS_PER_CORE"
};

/* This program under its full name: another crun may come first in PATH. */
static const char *find_own_path(char *path, size_t size, const char *typed)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);

    if (length <= 0)
        return typed;
    path[length] = '\0';
    return path;
}

static char **build_srun_argv(uint32_t nodes, const char *self, char **argv)
{
    size_t count = 0, words = 0;
    char **list;

    while (argv[words])
        words++;
    list = xcalloc(FLAG_COUNT + words + 8, sizeof(*list));
    list[count++] = xstrdup("srun");
    list[count++] = xasprintf("--nodes=%" PRIu32, nodes);
    list[count++] = xasprintf("--ntasks=%" PRIu32, nodes);
    for (size_t i = 0; i < FLAG_COUNT; i++)
        list[count++] = xstrdup(fixed_flags[i]);
    list[count++] = xstrdup(self);
    for (size_t i = 1; i < words; i++)
        list[count++] = xstrdup(argv[i]);
    return list;
}

static void release_srun_argv(char **list)
{
    for (char **word = list; *word; word++)
        free(*word);
    free(list);
}

bool srun_is_left_to_script(const struct options *o, const struct scheduler_node *n)
{
    return n->is_shell && (o->config.node_rank >= 0 || o->endpoint || o->master_addr ||
                           python_is_torchrun(o->self));
}

bool srun_is_needed(const struct scheduler_node *n)
{
    return n->is_shell && (n->nodes > 1 || n->is_outside);
}

int srun_start(const char *source, uint32_t nodes, char **argv, bool print_only,
               struct err *e)
{
    char path[PATH_MAX];
    char **list = build_srun_argv(nodes, find_own_path(path, sizeof(path), argv[0]),
                                  argv);

    log_info("%s: %" PRIu32 " node%s; starting crun on each: srun %s %s "
             "--ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 --wait=0 --mpi=none "
             "--cpu-bind=none",
             source, nodes, text_plural(nodes), list[1], list[2]);
    if (print_only) {
        release_srun_argv(list);
        return 0;
    }
    for (size_t i = 0; i < sizeof(flags_per_task) / sizeof(flags_per_task[0]); i++)
        unsetenv(flags_per_task[i]);
    execvp("srun", list);
    (void)err_set_errno(e, errno,
                        "%s has %" PRIu32 " node%s, and crun runs on this one only: "
                        "srun, which would start it on each",
                        source, nodes, text_plural(nodes));
    release_srun_argv(list);
    return -1;
}
