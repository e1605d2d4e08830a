/* SPDX-License-Identifier: MIT */
#include "launcher/flags/habits.h"

#include <string.h>

#define WORKERS "nproc-per-node"
#define SELECT "-H names the hosts, and -x CUDA_VISIBLE_DEVICES=0,2 their GPUs"
#define CURL "--on-event runs a command for each event, such as curl (watching.md)"

const struct opt_hint habits_flags[] = {
    /* srun and sbatch */
    { .typed = "N", .flag = "nnodes" },
    { .typed = "nodes", .flag = "nnodes" },
    { .typed = "ntasks", .flag = "np" },
    { .typed = "ntasks-per-node", .flag = WORKERS },
    { .typed = "tasks-per-node", .flag = WORKERS },
    { .typed = "gpus-per-node", .flag = WORKERS },
    { .typed = "G", .flag = WORKERS },
    { .typed = "nodelist", .flag = "hosts" },
    { .typed = "w", .flag = "hosts" },
    { .typed = "nodefile", .flag = "hostfile" },
    { .typed = "time", .flag = "time-limit" },
    { .typed = "chdir", .flag = "wdir" },
    { .typed = "label", .flag = "tee=3" },
    { .typed = "cpu-bind", .flag = "numa-binding" },
    /* mpirun and mpiexec */
    { .typed = "machinefile", .flag = "hostfile" },
    { .typed = "machine-file", .flag = "hostfile" },
    { .typed = "bind-to", .flag = "numa-binding" },
    { .typed = "tag-output", .flag = "tee=3" },
    { .typed = "allow-run-as-root", .text = "crun runs as root without a flag" },
    { .typed = "oversubscribe", .text = "crun starts as many workers as it is told" },
    /* Lightning, Accelerate, DeepSpeed, Horovod */
    { .typed = "nprocs", .flag = WORKERS },
    { .typed = "n-procs", .flag = WORKERS },
    { .typed = "gpus", .flag = WORKERS },
    { .typed = "num-gpus", .flag = WORKERS },
    { .typed = "devices", .flag = WORKERS },
    { .typed = "num-workers", .flag = WORKERS },
    { .typed = "world-size", .flag = "np" },
    { .typed = "num-processes", .flag = "np" },
    { .typed = "num-proc", .flag = "np" },
    { .typed = "num-nodes", .flag = "nnodes" },
    { .typed = "num-machines", .flag = "nnodes" },
    { .typed = "machine-rank", .flag = "node-rank" },
    { .typed = "main-process-ip", .flag = "master-addr" },
    { .typed = "main-process-port", .flag = "master-port" },
    { .typed = "multi-gpu", .flag = WORKERS "=gpu" },
    { .typed = "gpu-ids", .text = "crun takes the GPUs of CUDA_VISIBLE_DEVICES" },
    /* earlier versions */
    { .typed = "tree-above",
      .text = "crun connects to all hosts itself",
      .removed = true },
    { .typed = "host-discovery",
      .text =
          "write its output to the file of --hostfile, which is read when it changes",
      .removed = true },
    { .typed = "include", .text = SELECT, .removed = true },
    { .typed = "exclude", .text = SELECT, .removed = true },
    { .typed = "print-completion",
      .text = "make install installs it",
      .removed = true },
    { .typed = "webhook", .text = CURL, .removed = true },
    { .typed = "webhook-token-file", .text = CURL, .removed = true },
    { .typed = NULL }
};

static const struct {
    const char *word, *advice;
} habits_words[] = {
    { "status", "did you mean crunctl status?" },
    { "top", "did you mean crunctl top?" },
    { "events", "did you mean crunctl events?" },
    { "logs", "did you mean crunctl logs?" },
    { "stacks", "did you mean crunctl stacks?" },
    { "stop", "did you mean crunctl stop?" },
    { "checkpoint", "did you mean crunctl checkpoint?" },
    { "drain", "did you mean crunctl drain?" },
    { "keygen", "did you mean crunctl keygen?" },
    { "page", "did you mean crunctl page?" },
    { "report", "did you mean crunctl report?" },
};

const char *habits_explain_word(const char *word)
{
    for (size_t i = 0; i < sizeof(habits_words) / sizeof(habits_words[0]); i++)
        if (strcmp(word, habits_words[i].word) == 0)
            return habits_words[i].advice;
    return NULL;
}
