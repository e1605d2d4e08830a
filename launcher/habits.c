/* SPDX-License-Identifier: MIT */
#include "launcher/habits.h"

#include <string.h>

#define OCI_RUNTIME                                                                    \
    "this program launches training jobs and is not the OCI runtime crun: in "         \
    "podman's "                                                                        \
    "containers.conf set runtime = \"runc\" under [engine], or install this program "  \
    "as "                                                                              \
    "tcrun"

#define WORKERS "nproc-per-node"
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
    { .typed = "webhook", .text = CURL, .removed = true },
    { .typed = "webhook-token-file", .text = CURL, .removed = true },
    /* the OCI runtime, as podman and CRI-O call it */
    { .typed = "log", .text = OCI_RUNTIME },
    { .typed = "log-format", .text = OCI_RUNTIME },
    { .typed = "log-level", .text = OCI_RUNTIME },
    { .typed = "root", .text = OCI_RUNTIME },
    { .typed = "systemd-cgroup", .text = OCI_RUNTIME },
    { .typed = "cgroup-manager", .text = OCI_RUNTIME },
    { .typed = NULL }
};

static const struct {
    const char *word, *says;
} habits_words[] = {
    { "status", "did you mean crunctl status?" },
    { "top", "did you mean crunctl top?" },
    { "events", "did you mean crunctl events?" },
    { "logs", "did you mean crunctl logs?" },
    { "stacks", "did you mean crunctl stacks?" },
    { "stop", "did you mean crunctl stop?" },
    { "drain", "did you mean crunctl drain?" },
    { "keygen", "did you mean crunctl keygen?" },
    { "create", OCI_RUNTIME },
    { "start", OCI_RUNTIME },
    { "delete", OCI_RUNTIME },
    { "state", OCI_RUNTIME },
    { "features", OCI_RUNTIME },
    { "kill", OCI_RUNTIME },
    { "run", OCI_RUNTIME },
    { "exec", OCI_RUNTIME },
    { "list", OCI_RUNTIME },
    { "ps", OCI_RUNTIME },
    { "spec", OCI_RUNTIME },
    { "pause", OCI_RUNTIME },
    { "resume", OCI_RUNTIME },
    { "update", OCI_RUNTIME },
};

const char *habits_explain_word(const char *word)
{
    for (size_t i = 0; i < sizeof(habits_words) / sizeof(habits_words[0]); i++)
        if (strcmp(word, habits_words[i].word) == 0)
            return habits_words[i].says;
    return NULL;
}
