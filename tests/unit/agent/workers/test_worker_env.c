/* SPDX-License-Identifier: MIT */
#include "agent/workers/worker_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/check_main.h"

/* Local rank 1 of the second of two nodes, with 4 workers on the first and 3 here. */
static struct config config;
static struct msg_start start;
static struct worker_env_inputs inputs;
static const char *const no_base[] = { NULL };

static void setup(void)
{
    config = (struct config){ .run_id = "resnet",
                              .workers = 3,
                              .role = "trainer",
                              .signals_text = "SIGTERM,SIGINT" };
    start = (struct msg_start){ .group_rank = 1,
                                .group_size = 2,
                                .first_rank = 4,
                                .world_size = 7,
                                .workers = 3,
                                .slot = 5,
                                .restarts = 2,
                                .max_restarts = 3,
                                .address = "10.0.0.1",
                                .port = 29500,
                                .host = "10.0.0.1",
                                .free_ports = "api=9 =4321" };
    inputs = (struct worker_env_inputs){ .config = &config,
                                         .start = &start,
                                         .epoch = 4,
                                         .instance = "0f",
                                         .local_rank = 1,
                                         .error_file = "/logs/1/error.json",
                                         .memory = "@memory",
                                         .progress = "/proc/7/fd/9",
                                         .agent_store = true };
}

/* The only value of a variable, or NULL. */
static const char *value(const char **env, const char *name)
{
    const char *found = NULL;
    size_t length = strlen(name);

    for (; *env; env++)
        if (strncmp(*env, name, length) == 0 && (*env)[length] == '=') {
            ck_assert_msg(!found, "%s is there twice", name);
            found = *env + length + 1;
        }
    return found;
}

static size_t count(const char **list)
{
    size_t n = 0;

    while (list[n])
        n++;
    return n;
}

static const struct {
    const char *name, *value;
} own[] = {
    { "RANK", "5" },
    { "LOCAL_RANK", "1" },
    { "WORLD_SIZE", "7" },
    { "LOCAL_WORLD_SIZE", "3" },
    { "GROUP_RANK", "1" },
    { "GROUP_WORLD_SIZE", "2" },
    { "ROLE_NAME", "trainer" },
    { "ROLE_RANK", "5" },
    { "ROLE_WORLD_SIZE", "7" },
    { "MASTER_ADDR", "10.0.0.1" },
    { "MASTER_PORT", "29500" },
    { "TORCHELASTIC_RESTART_COUNT", "2" },
    { "TORCHELASTIC_MAX_RESTARTS", "3" },
    { "TORCHELASTIC_RUN_ID", "resnet" },
    { "TORCHELASTIC_USE_AGENT_STORE", "True" },
    { "TORCHELASTIC_ERROR_FILE", "/logs/1/error.json" },
    { "TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT" },
    { "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1" },
    { "OMP_NUM_THREADS", "1" },
    { "NODE_RANK", "1" },
    { "CRUN_RUN_ID", "resnet" },
    { "CRUN_EPOCH", "4" },
    { "CRUN_INSTANCE", "0f" },
    { "CRUN_PROGRESS", "/proc/7/fd/9" },
    { "CRUN_MEMORY", "@memory" },
    { "JAX_COORDINATOR_ADDRESS", "10.0.0.1:4321" },
    { "JAX_NUM_PROCESSES", "7" },
    { "JAX_PROCESS_ID", "5" },
};
#define OWN_COUNT (sizeof(own) / sizeof(own[0]))

FIXTURE(setup, NULL);

TEST(a_worker_is_told_who_it_is_and_nothing_more)
{
    const char **env = worker_env_build(&inputs, no_base);

    for (size_t i = 0; i < OWN_COUNT; i++)
        ck_assert_pstr_eq(value(env, own[i].name), own[i].value);
    ck_assert_uint_eq(count(env), OWN_COUNT);
    free(env);
}

TEST(the_flight_recorder_of_a_watched_worker_is_set_up_unless_the_user_did)
{
    static const char *const chosen[] = { "TORCH_FR_BUFFER_SIZE=5",
                                          "TORCH_FR_DUMP_TEMP_FILE=/mine/", NULL };
    const char **env;

    inputs.recorder_pipe = "/logs/pipe_";
    inputs.recorder_dump = "/logs/dump_";
    env = worker_env_build(&inputs, no_base);
    ck_assert_uint_eq(count(env), OWN_COUNT);
    free(env);

    config.bootstrap = "/lib/bootstrap";
    config.bootstrap_follows = true;
    env = worker_env_build(&inputs, no_base);
    ck_assert_pstr_eq(value(env, "TORCH_NCCL_TRACE_BUFFER_SIZE"), "2000");
    ck_assert_pstr_eq(value(env, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"), "/logs/pipe_");
    ck_assert_pstr_eq(value(env, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"), "/logs/dump_");
    free(env);

    env = worker_env_build(&inputs, chosen);
    ck_assert_ptr_null(value(env, "TORCH_NCCL_TRACE_BUFFER_SIZE"));
    ck_assert_ptr_null(value(env, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"));
    ck_assert_pstr_eq(value(env, "TORCH_FR_BUFFER_SIZE"), "5");
    free(env);
}

static const struct {
    const char *base[5];
    const char *host, *keep;
    const char *address, *port, *number, *rank;
} jax[] = {
    { .base = { "JAX_COORDINATOR_ADDRESS=mine:1" },
      .address = "mine:1",
      .number = "7",
      .rank = "5" },
    { .base = { "JAX_COORDINATOR_PORT=99" },
      .address = "10.0.0.1:99",
      .port = "99",
      .number = "7",
      .rank = "5" },
    { .base = { "A=b" },
      .host = "fd00::1",
      .address = "[fd00::1]:4321",
      .number = "7",
      .rank = "5" },
    /* Kubeflow's, of crun's own process */
    { .base = { "JAX_COORDINATOR_ADDRESS=pod-0:6666", "JAX_COORDINATOR_PORT=6666",
                "JAX_NUM_PROCESSES=2", "JAX_PROCESS_ID=1" },
      .address = "10.0.0.1:4321",
      .port = "4321",
      .number = "7",
      .rank = "5" },
    { .base = { "JAX_COORDINATOR_ADDRESS=pod-0:6666", "JAX_COORDINATOR_PORT=6666",
                "JAX_NUM_PROCESSES=2", "JAX_PROCESS_ID=1" },
      .keep = "JAX_*",
      .address = "pod-0:6666",
      .port = "6666",
      .number = "2",
      .rank = "1" },
};

TEST_EACH(jax_has_a_coordinator_unless_the_user_has_named_one, jax)
{
    const char *const keep[] = { jax[_i].keep, NULL };
    const char **env;

    config.keep_env = jax[_i].keep ? keep : NULL;
    if (jax[_i].host)
        strcpy(start.host, jax[_i].host);
    env = worker_env_build(&inputs, jax[_i].base);
    ck_assert_pstr_eq(value(env, "JAX_COORDINATOR_ADDRESS"), jax[_i].address);
    ck_assert_pstr_eq(value(env, "JAX_COORDINATOR_PORT"), jax[_i].port);
    ck_assert_pstr_eq(value(env, "JAX_NUM_PROCESSES"), jax[_i].number);
    ck_assert_pstr_eq(value(env, "JAX_PROCESS_ID"), jax[_i].rank);
    free(env);
}

TEST(ranks_of_a_role_are_those_that_were_told)
{
    struct msg_start told = *inputs.start;
    struct worker_env_inputs mine = inputs;
    const char **env;

    told.role_first_rank = 2;
    told.role_world_size = 6;
    mine.start = &told;
    env = worker_env_build(&mine, no_base);
    ck_assert_pstr_eq(value(env, "ROLE_RANK"), "3");
    ck_assert_pstr_eq(value(env, "ROLE_WORLD_SIZE"), "6");
    ck_assert_pstr_eq(value(env, "RANK"), "5");
    free(env);
}

TEST(our_variables_win_over_those_that_were_there)
{
    char *stale[OWN_COUNT + 1] = { NULL };
    const char **env;

    for (size_t i = 0; i < OWN_COUNT; i++)
        stale[i] = xasprintf("%s=stale", own[i].name);
    env = worker_env_build(&inputs, (const char *const *)stale);
    for (size_t i = 0; i < OWN_COUNT; i++) {
        bool kept = strcmp(own[i].name, "OMP_NUM_THREADS") == 0 ||
                    strcmp(own[i].name, "TORCH_NCCL_ASYNC_ERROR_HANDLING") == 0;

        ck_assert_pstr_eq(value(env, own[i].name), kept ? "stale" : own[i].value);
    }
    ck_assert_uint_eq(count(env), OWN_COUNT);
    free(env);
    for (size_t i = 0; i < OWN_COUNT; i++)
        free(stale[i]);
}

TEST(python_finds_the_bootstrap_first)
{
    static const char *const with_path[] = { "PYTHONPATH=/a:/b", NULL };
    static const char *const with_empty_path[] = { "PYTHONPATH=", NULL };
    const char **env;

    config.bootstrap = "/lib/bootstrap";
    env = worker_env_build(&inputs, with_path);
    ck_assert_ptr_null(value(env, "CRUN_BOOTSTRAP"));
    free(env);
    config.bootstrap_follows = true;
    env = worker_env_build(&inputs, with_path);
    ck_assert_pstr_eq(value(env, "PYTHONPATH"), "/lib/bootstrap:/a:/b");
    ck_assert_pstr_eq(value(env, "CRUN_BOOTSTRAP"), "watch");
    ck_assert_ptr_null(value(env, "CRUN_NOTE_MODULES"));
    ck_assert_ptr_null(value(env, "CRUN_EMPTY_PYTHONPATH"));
    free(env);
    env = worker_env_build(&inputs, with_empty_path);
    ck_assert_pstr_eq(value(env, "PYTHONPATH"), "/lib/bootstrap");
    ck_assert_pstr_eq(value(env, "CRUN_EMPTY_PYTHONPATH"), "1");
    free(env);
}

TEST(local_rank_0_notes_what_the_template_should_import)
{
    const char **env;

    config.bootstrap = "/lib/bootstrap";
    config.warm_modules = "";
    inputs.local_rank = 0;
    env = worker_env_build(&inputs, no_base);
    ck_assert_pstr_eq(value(env, "CRUN_NOTE_MODULES"), "1");
    free(env);
}

TEST(a_template_has_what_all_workers_have_in_common)
{
    static const char *const of_one_worker[] = { "RANK",
                                                 "LOCAL_RANK",
                                                 "GROUP_RANK",
                                                 "NODE_RANK",
                                                 "ROLE_RANK",
                                                 "WORLD_SIZE",
                                                 "GROUP_WORLD_SIZE",
                                                 "ROLE_WORLD_SIZE",
                                                 "MASTER_ADDR",
                                                 "MASTER_PORT",
                                                 "TORCHELASTIC_RESTART_COUNT",
                                                 "TORCHELASTIC_ERROR_FILE",
                                                 "CRUN_EPOCH",
                                                 "CRUN_INSTANCE",
                                                 "CRUN_PROGRESS",
                                                 "CRUN_MEMORY",
                                                 "CRUN_NOTE_MODULES",
                                                 "CUDA_VISIBLE_DEVICES" };
    static const char *const base[] = { "RANK=9",        "MASTER_PORT=1",
                                        "PYTHONPATH=/a", "CUDA_VISIBLE_DEVICES=0,1,2",
                                        "HOME=/h",       NULL };
    const char **env, **worker;

    config.bootstrap = "/lib/bootstrap";
    config.warm_modules = "torch,numpy";
    config.virtual_local_rank = true;
    inputs.launch = "tag";
    env = worker_env_build_template(&inputs, 4711, base);
    worker = worker_env_build(&inputs, base);
    for (size_t i = 0; i < sizeof(of_one_worker) / sizeof(of_one_worker[0]); i++)
        ck_assert_msg(!value(env, of_one_worker[i]), "%s", of_one_worker[i]);
    ck_assert_pstr_eq(value(env, "CRUN_TEMPLATE_FD"), "3");
    ck_assert_pstr_eq(value(env, "CRUN_TEMPLATE_MODULES"), "torch,numpy");
    ck_assert_pstr_eq(value(env, "CRUN_TEMPLATE_PARENT"), "4711");
    for (const char **v = env; *v; v++) {
        char name[64];

        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*v, "="), *v);
        if (strncmp(name, "CRUN_TEMPLATE_", 14) != 0)
            ck_assert_pstr_eq(value(worker, name), value(env, name));
    }
    ck_assert_pstr_eq(value(env, "OMP_NUM_THREADS"), "1");
    ck_assert_pstr_eq(value(env, "HOME"), "/h");
    free(env);
    free(worker);
}

TEST(the_rest_of_the_environment_comes_through)
{
    static const char *const base[] = { "PATH=/bin",  "EMPTY=",       "A=first",
                                        "A=second",   "RANKS=all",    "RAN=k",
                                        "no equals",  "=nameless",    "EQUALS=a=b",
                                        "NUMBERS=\n", "BASH_FUNC()=", NULL };
    const char **env = worker_env_build(&inputs, base);

    ck_assert_pstr_eq(value(env, "PATH"), "/bin");
    ck_assert_pstr_eq(value(env, "EMPTY"), "");
    ck_assert_pstr_eq(value(env, "A"), "first");
    ck_assert_pstr_eq(value(env, "RANKS"), "all");
    ck_assert_pstr_eq(value(env, "RAN"), "k");
    ck_assert_pstr_eq(value(env, "EQUALS"), "a=b");
    ck_assert_pstr_eq(value(env, "NUMBERS"), "\n");
    ck_assert_pstr_eq(value(env, "BASH_FUNC()"), "");
    ck_assert_uint_eq(count(env), OWN_COUNT + 8);
    free(env);
}

TEST(a_large_environment_is_merged_quickly)
{
    enum { LARGE = 20000 };
    const char **base = xcalloc(2 * LARGE + 1, sizeof(*base)), **env;

    for (size_t i = 0; i < LARGE; i++)
        base[i] = base[2 * LARGE - 1 - i] = xasprintf("SERVICE_%zu=%zu", i, i);
    env = worker_env_build(&inputs, base);
    ck_assert_uint_eq(count(env), OWN_COUNT + LARGE);
    ck_assert_pstr_eq(value(env, "SERVICE_19999"), "19999");
    for (size_t i = 0; i < LARGE; i++)
        free((void *)base[i]);
    free(base);
    free(env);
}

TEST(one_worker_alone_may_have_all_threads)
{
    const char **env;

    config.workers = 1;
    env = worker_env_build(&inputs, no_base);
    ck_assert_ptr_null(value(env, "OMP_NUM_THREADS"));
    free(env);
}

TEST(what_there_is_not_is_said_as_torchrun_does)
{
    static const char *const base[] = { "CRUN_PROGRESS=/proc/1/fd/2",
                                        "CRUN_MEMORY=@outer", NULL };
    const char **env;

    inputs.error_file = inputs.progress = inputs.memory = "";
    inputs.agent_store = false;
    env = worker_env_build(&inputs, base);
    ck_assert_pstr_eq(value(env, "TORCHELASTIC_ERROR_FILE"), "");
    ck_assert_pstr_eq(value(env, "TORCHELASTIC_USE_AGENT_STORE"), "False");
    ck_assert_ptr_null(value(env, "CRUN_PROGRESS"));
    ck_assert_ptr_null(value(env, "CRUN_MEMORY"));
    free(env);
}

static const struct {
    const char *entry, *expected; /* NULL: dropped */
} of_the_task[] = {
    { "SLURM_PROCID=1", "5" },
    { "SLURM_LOCALID=0", "1" },
    { "SLURM_NTASKS=2", "7" },
    { "SLURM_NPROCS=2", "7" },
    { "JAX_PROCESS_ID=1", "5" },
    { "SLURM_STEP_NUM_TASKS=2", NULL },
    { "SLURM_PMIX_MAPPING_SERV=x", NULL },
    { "PMI_RANK=1", NULL },
    { "PMIX_RANK=1", NULL },
    { "OMPI_COMM_WORLD_RANK=1", NULL },
    { "OMPI_MCA_ess=^singleton", NULL },
    { "MV2_COMM_WORLD_SIZE=2", NULL },
    { "PALS_RANKID=1", NULL },
    { "FLUX_TASK_RANK=1", NULL },
    /* of the node, the job and the user */
    { "SLURM_NODEID=3", "3" },
    { "SLURM_JOB_ID=4711", "4711" },
    { "SLURM_PROCIDS=all", "all" },
    { "PMIX_MCA_gds=hash", "hash" },
    { "OMPI_MCA_btl=self", "self" },
    { "MV2_USE_CUDA=1", "1" },
    { "FLUX_URI=local", "local" },
};

TEST_EACH(a_worker_does_not_have_the_place_of_crun_itself, of_the_task)
{
    static const char *const kept[] = { "A,PMI*", "SLURM_PROCID", NULL };
    const char *base[2] = { of_the_task[_i].entry, NULL };
    bool is_kept = !strncmp(base[0], "PMI", 3) ||
                   !strncmp(base[0], "SLURM_PROCID=", 13);
    char *name = xasprintf("%.*s", (int)strcspn(base[0], "="), base[0]);
    const char **env = worker_env_build(&inputs, base);

    ck_assert_pstr_eq(value(env, name), of_the_task[_i].expected);
    free(env);
    config.keep_env = kept;
    env = worker_env_build(&inputs, base);
    ck_assert_pstr_eq(value(env, name),
                      is_kept ? base[0] + strlen(name) + 1 : of_the_task[_i].expected);
    free(env);
    free(name);
}

static const struct {
    const char *cuda, *hip; /* as they were; NULL: not set */
    const char *expected;
    bool hip_too;
} devices[] = {
    { NULL, NULL, "1", false },
    { "CUDA_VISIBLE_DEVICES=4,6,7", NULL, "6", false },
    { "CUDA_VISIBLE_DEVICES=4 , 6 ,7", NULL, "6", false },
    { "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b-c", NULL, "GPU-b-c", false },
    { "CUDA_VISIBLE_DEVICES=4,6", "HIP_VISIBLE_DEVICES=2,3", "3", true },
    { "CUDA_VISIBLE_DEVICES=4,6", "HIP_VISIBLE_DEVICES=", "6", false },
    { NULL, "HIP_VISIBLE_DEVICES=2,3", "3", true },
};

TEST_EACH(a_virtual_local_rank_sees_one_gpu, devices)
{
    const char *base[3] = { NULL }, **env;
    unsigned n = 0;

    if (devices[_i].cuda)
        base[n++] = devices[_i].cuda;
    if (devices[_i].hip)
        base[n++] = devices[_i].hip;
    config.virtual_local_rank = true;
    env = worker_env_build(&inputs, base);
    ck_assert_pstr_eq(value(env, "LOCAL_RANK"), "0");
    ck_assert_pstr_eq(value(env, "RANK"), "5");
    ck_assert_pstr_eq(value(env, "CUDA_VISIBLE_DEVICES"), devices[_i].expected);
    if (devices[_i].hip_too)
        ck_assert_pstr_eq(value(env, "HIP_VISIBLE_DEVICES"), devices[_i].expected);
    free(env);
}
