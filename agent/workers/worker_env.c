/* SPDX-License-Identifier: MIT */
/*
 * A worker's environment: that of crun without what names crun's own place, overlaid by
 * the variables that torchrun sets and a few of crun's own.
 */
#include "agent/workers/worker_env.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/cleanup/launch_lock.h"
#include "agent/devices/gpu_visible.h"
#include "agent/workers/macros.h"
#include "agent/workers/task_variables.h"
#include "agent/workers/torch_recorder.h"
#include "rendezvous/common/base/hash.h"
#include "rendezvous/common/base/memory_slot.h"
#include "rendezvous/common/base/xalloc.h"

#define VARIABLES_MAX 64

/* The variables that crun sets, "NAME=value", one after another in one text. */
struct variables {
    char *text;
    size_t used, size;
    size_t start[VARIABLES_MAX];
    unsigned count;
};

/* The names used so far: an open hash table of entries, at most half full. */
struct name_set {
    const char **slot;
    size_t mask;
};

static void put_variable(struct variables *o, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void put_variable(struct variables *o, const char *fmt, ...)
{
    va_list args;
    size_t length;

    va_start(args, fmt);
    length = (size_t)vsnprintf(NULL, 0, fmt, args) + 1;
    va_end(args);
    if (o->used + length > o->size) {
        o->size = 2 * (o->used + length);
        o->text = xrealloc(o->text, o->size);
    }
    va_start(args, fmt);
    vsnprintf(o->text + o->used, length, fmt, args);
    va_end(args);
    o->start[o->count++] = o->used;
    o->used += length;
}

/* The value of a variable, or NULL. */
static const char *find_variable(const char *const *base, const char *name)
{
    size_t length = strlen(name);

    for (; *base; base++)
        if (strncmp(*base, name, length) == 0 && (*base)[length] == '=')
            return *base + length + 1;
    return NULL;
}

/* Each worker sees its GPU as device 0. On ROCm HIP's list takes precedence. */
static void put_virtual_local_rank(struct variables *o, uint32_t local_rank,
                                   const char *const *base)
{
    const char *hip = find_variable(base, "HIP_VISIBLE_DEVICES");
    const char *list = hip && *hip ? hip : find_variable(base, "CUDA_VISIBLE_DEVICES");
    char device[256];

    gpu_visible_entry(list, local_rank, device, sizeof(device));
    put_variable(o, "LOCAL_RANK=0");
    put_variable(o, "CUDA_VISIBLE_DEVICES=%s", device);
    if (hip && *hip)
        put_variable(o, "HIP_VISIBLE_DEVICES=%s", device);
}

static void put_ranks(struct variables *o, const struct worker_env_inputs *f,
                      const char *const *base)
{
    const struct msg_start *s = f->start;
    uint32_t rank = s->first_rank + f->local_rank;

    put_variable(o, "RANK=%" PRIu32, rank);
    put_variable(o, "WORLD_SIZE=%" PRIu32, s->world_size);
    put_variable(o, "GROUP_RANK=%" PRIu32, s->group_rank);
    put_variable(o, "GROUP_WORLD_SIZE=%" PRIu32, s->group_size);
    put_variable(o, "NODE_RANK=%" PRIu32, s->group_rank);
    put_variable(o, "ROLE_RANK=%" PRIu32,
                 s->role_world_size ? s->role_first_rank + f->local_rank : rank);
    put_variable(o, "ROLE_WORLD_SIZE=%" PRIu32,
                 s->role_world_size ? s->role_world_size : s->world_size);
    if (f->config->virtual_local_rank)
        put_virtual_local_rank(o, f->local_rank, base);
    else
        put_variable(o, "LOCAL_RANK=%" PRIu32, f->local_rank);
}

/* JAX's own names. Those that the user has set stay. */
static void put_jax(struct variables *o, const struct worker_env_inputs *f,
                    const char *const *base)
{
    const struct msg_start *s = f->start;
    /* Whether a layer has started crun as one process of its own JAX job, as Kubeflow
     * does. put_task sets the numbers then. */
    bool layer = find_variable(base, "JAX_COORDINATOR_ADDRESS") &&
                 find_variable(base, "JAX_NUM_PROCESSES") &&
                 find_variable(base, "JAX_PROCESS_ID") &&
                 task_variable_of("JAX_PROCESS_ID=", f->config->keep_env) ==
                     TASK_VARIABLE_RANK;
    const char *chosen = find_variable(base, "JAX_COORDINATOR_PORT");
    uint32_t free_port = macros_port(s->free_ports, "");
    char port[16];

    if (!find_variable(base, "JAX_NUM_PROCESSES"))
        put_variable(o, "JAX_NUM_PROCESSES=%" PRIu32, s->world_size);
    if (!find_variable(base, "JAX_PROCESS_ID"))
        put_variable(o, "JAX_PROCESS_ID=%" PRIu32, s->first_rank + f->local_rank);
    if (!free_port || (find_variable(base, "JAX_COORDINATOR_ADDRESS") && !layer))
        return;
    snprintf(port, sizeof(port), "%" PRIu32, free_port);
    if (chosen && layer)
        put_variable(o, "JAX_COORDINATOR_PORT=%s", port);
    put_variable(o,
                 strchr(s->host, ':') ? "JAX_COORDINATOR_ADDRESS=[%s]:%s"
                                      : "JAX_COORDINATOR_ADDRESS=%s:%s",
                 s->host, chosen && !layer ? chosen : port);
}

/* What a scheduler has told crun of its own task, for this worker. */
static void put_task(struct variables *o, const struct worker_env_inputs *f,
                     const char *const *base)
{
    uint32_t numbers[] = {
        [TASK_VARIABLE_RANK] = f->start->first_rank + f->local_rank,
        [TASK_VARIABLE_LOCAL_RANK] = f->config->virtual_local_rank ? 0 : f->local_rank,
        [TASK_VARIABLE_WORLD_SIZE] = f->start->world_size,
    };

    for (; *base; base++) {
        enum task_variable kind = task_variable_of(*base, f->config->keep_env);

        if (kind >= TASK_VARIABLE_RANK && o->count < VARIABLES_MAX / 2)
            put_variable(o, "%.*s=%" PRIu32, (int)strcspn(*base, "="), *base,
                         numbers[kind]);
    }
}

/* The same for all workers of this node, in all epochs. */
static void put_common(struct variables *o, const struct worker_env_inputs *f)
{
    put_variable(o, "LOCAL_WORLD_SIZE=%" PRIu32, f->config->workers);
    put_variable(o, "ROLE_NAME=%s", f->config->role);
    put_variable(o, "TORCHELASTIC_MAX_RESTARTS=%" PRIu32, f->start->max_restarts);
    put_variable(o, "TORCHELASTIC_RUN_ID=%s", f->config->run_id);
    /* programs compare this with Python's spelling */
    put_variable(o, "TORCHELASTIC_USE_AGENT_STORE=%s",
                 f->agent_store ? "True" : "False");
    put_variable(o, "TORCHELASTIC_SIGNALS_TO_HANDLE=%s", f->config->signals_text);
    put_variable(o, "CRUN_RUN_ID=%s", f->config->run_id);
    if (f->launch && *f->launch)
        put_variable(o, LAUNCH_LOCK_VARIABLE "=%s", f->launch);
}

static void put_epoch(struct variables *o, const struct worker_env_inputs *f)
{
    const struct msg_start *s = f->start;

    put_variable(o, "MASTER_ADDR=%s", s->address);
    put_variable(o, "MASTER_PORT=%" PRIu32, s->port);
    put_variable(o, "TORCHELASTIC_RESTART_COUNT=%" PRIu32, s->restarts);
    put_variable(o, "TORCHELASTIC_ERROR_FILE=%s", f->error_file);
    put_variable(o, "CRUN_EPOCH=%" PRIu64, f->epoch);
    if (f->instance && *f->instance)
        put_variable(o, "CRUN_INSTANCE=%s", f->instance);
    if (*f->progress)
        put_variable(o, "CRUN_PROGRESS=%s", f->progress);
    if (f->memory && *f->memory)
        put_variable(o, MEMORY_ENV "=%s", f->memory);
}

/* The bootstrap is the first folder on Python's path, and removes itself there. */
static void put_bootstrap(struct variables *o, const struct worker_env_inputs *f,
                          const char *const *base)
{
    const char *path = find_variable(base, "PYTHONPATH");

    if (!f->config->bootstrap)
        return;
    put_variable(o, "PYTHONPATH=%s%s%s", f->config->bootstrap, path && *path ? ":" : "",
                 path ? path : "");
    if (path && !*path) /* not "BOOTSTRAP:", which has the current folder at its end */
        put_variable(o, "CRUN_EMPTY_PYTHONPATH=1");
    if (f->config->bootstrap_follows)
        put_variable(o, "CRUN_BOOTSTRAP=watch");
    if (f->stacks && *f->stacks)
        put_variable(o, "CRUN_STACKS=%s", f->stacks);
}

/* What the program's user has chosen stays. */
static void put_recorder(struct variables *o, const struct worker_env_inputs *f,
                         const char *const *base)
{
    if (!f->config->bootstrap_follows || !f->recorder_pipe || !*f->recorder_pipe)
        return;
    if (!find_variable(base, "TORCH_FR_BUFFER_SIZE") &&
        !find_variable(base, "TORCH_NCCL_TRACE_BUFFER_SIZE"))
        put_variable(o, "TORCH_NCCL_TRACE_BUFFER_SIZE=%d", TORCH_RECORDER_ENTRIES);
    put_variable(o, TORCH_RECORDER_PIPE "=%s", f->recorder_pipe);
    if (!find_variable(base, TORCH_RECORDER_NEW_DUMP))
        put_variable(o, TORCH_RECORDER_DUMP "=%s", f->recorder_dump);
}

/* Only variables that are not set yet. */
static void put_defaults(struct variables *o, const struct worker_env_inputs *f,
                         const char *const *base)
{
    if (!find_variable(base, "TORCH_NCCL_ASYNC_ERROR_HANDLING"))
        put_variable(o, "TORCH_NCCL_ASYNC_ERROR_HANDLING=1");
    if (f->config->workers > 1 && !find_variable(base, "OMP_NUM_THREADS"))
        put_variable(o, "OMP_NUM_THREADS=1");
}

/* Adds the name of "NAME=value". False if it is there already, or has no name. */
static bool add_name(struct name_set *n, const char *entry)
{
    size_t length = strcspn(entry, "=") + 1;
    size_t i = hash_fnv1a(HASH_FNV1A_BASIS, entry, length) & n->mask;

    if (length == 1 || entry[length - 1] != '=')
        return false;
    for (; n->slot[i]; i = (i + 1) & n->mask)
        if (strncmp(n->slot[i], entry, length) == 0)
            return false;
    n->slot[i] = entry;
    return true;
}

static size_t string_list_length(const char *const *list)
{
    size_t n = 0;

    while (list[n])
        n++;
    return n;
}

/* Crun's variables, then the others of base, but for those of `without` ("NAME=",
 * NULL-ended) and of crun's own task. Of each name the first counts, as for getenv. */
static const char **merge_environments(const struct variables *o,
                                       const char *const *without,
                                       const char *const *keep, const char *const *base)
{
    size_t slots = o->count + string_list_length(base) + 1, used = 0;
    size_t names_count = slots + string_list_length(without);
    const char **env = xmalloc(slots * sizeof(*env) + o->used);
    char *text = memcpy((char *)(env + slots), o->text, o->used);
    struct name_set names;
    size_t size = 16;

    while (size < 2 * names_count)
        size *= 2;
    names.slot = xcalloc(size, sizeof(*names.slot));
    names.mask = size - 1;
    for (unsigned i = 0; i < o->count; i++) {
        env[used++] = text + o->start[i];
        (void)add_name(&names, text + o->start[i]);
    }
    for (; *without; without++)
        (void)add_name(&names, *without);
    for (; *base; base++)
        if (task_variable_of(*base, keep) == TASK_VARIABLE_NONE &&
            add_name(&names, *base))
            env[used++] = *base;
    env[used] = NULL;
    free(names.slot);
    return env;
}

const char **worker_env_build(const struct worker_env_inputs *f,
                              const char *const *base)
{
    static const char *const of_outer_crun[] = { "CRUN_PROGRESS=", MEMORY_ENV "=",
                                                 NULL };
    struct variables own = { .count = 0 };
    const char **env;

    put_ranks(&own, f, base);
    put_task(&own, f, base);
    put_common(&own, f);
    put_epoch(&own, f);
    put_jax(&own, f, base);
    put_bootstrap(&own, f, base);
    if (f->config->bootstrap && f->config->warm_modules && f->local_rank == 0)
        put_variable(&own, "CRUN_NOTE_MODULES=1");
    put_recorder(&own, f, base);
    put_defaults(&own, f, base);
    env = merge_environments(&own, of_outer_crun, f->config->keep_env, base);
    free(own.text);
    return env;
}

const char **worker_env_build_template(const struct worker_env_inputs *f, pid_t guard,
                                       const char *const *base)
{
    static const char *const of_one_worker[] = { "RANK=",
                                                 "WORLD_SIZE=",
                                                 "GROUP_RANK=",
                                                 "GROUP_WORLD_SIZE=",
                                                 "NODE_RANK=",
                                                 "ROLE_RANK=",
                                                 "ROLE_WORLD_SIZE=",
                                                 "LOCAL_RANK=",
                                                 "MASTER_ADDR=",
                                                 "MASTER_PORT=",
                                                 "TORCHELASTIC_RESTART_COUNT=",
                                                 "TORCHELASTIC_ERROR_FILE=",
                                                 "CRUN_EPOCH=",
                                                 "CRUN_PROGRESS=",
                                                 MEMORY_ENV "=",
                                                 "CRUN_NOTE_MODULES=",
                                                 "CRUN_STACKS=",
                                                 NULL,
                                                 NULL,
                                                 NULL };
    const char *without[sizeof(of_one_worker) / sizeof(of_one_worker[0])];
    size_t count = sizeof(of_one_worker) / sizeof(of_one_worker[0]) - 3;
    struct variables own = { .count = 0 };
    const char **env;

    memcpy(without, of_one_worker, sizeof(without));
    if (f->config->virtual_local_rank) {
        without[count++] = "CUDA_VISIBLE_DEVICES=";
        without[count++] = "HIP_VISIBLE_DEVICES=";
    }
    put_common(&own, f);
    put_bootstrap(&own, f, base);
    put_defaults(&own, f, base);
    put_variable(&own, "CRUN_TEMPLATE_FD=%d", STDERR_FILENO + 1);
    put_variable(&own, "CRUN_TEMPLATE_MODULES=%s", f->config->warm_modules);
    put_variable(&own, "CRUN_TEMPLATE_PARENT=%d", (int)guard);
    env = merge_environments(&own, without, f->config->keep_env, base);
    free(own.text);
    return env;
}
