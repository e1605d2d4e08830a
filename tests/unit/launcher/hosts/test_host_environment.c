/* SPDX-License-Identifier: MIT */
#include "launcher/hosts/host_environment.h"

#include <stdbool.h>

#include "tests/worlds/check_main.h"

#define COUNT(table) ((int)(sizeof(table) / sizeof((table)[0])))

static const struct {
    const char *variable;
    bool travels;
} variables[] = {
    { "PATH=/venv/bin:/usr/bin", true },
    { "PATHS=x", false },
    { "LD_LIBRARY_PATH=/opt/lib", true },
    { "LD_LIBRARY_PATH_64=/opt/lib", true },
    { "LD_PRELOAD=/opt/lib.so", false },
    { "LIBRARY_PATH=/opt/lib", true },
    { "PYTHONPATH=/src", true },
    { "VIRTUAL_ENV=/venv", true },
    { "CONDA_PREFIX=/conda", true },
    { "CUDA_HOME=/cuda", true },
    { "CUDA_VISIBLE_DEVICES=0,1", true },
    { "CUDA_VISIBLE_DEVICES=GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", false },
    { "CUDA_VISIBLE_DEVICES=MIG-GPU-8932f937/1/0", false },
    { "NCCL_DEBUG=INFO", true },
    { "TORCH_NCCL_BLOCKING_WAIT=1", true },
    { "TORCHELASTIC_ERROR_FILE=/tmp/x", false },
    { "PYTORCH_CUDA_ALLOC_CONF=a:b", true },
    { "OMP_NUM_THREADS=4", true },
    { "MKL_NUM_THREADS=4", true },
    { "UCX_TLS=rc", true },
    { "HF_HOME=/hf", true },
    { "HF_TOKEN=secret", false },
    { "TOKENIZERS_PARALLELISM=false", true },
    { "WANDB_PROJECT=p", true },
    { "WANDB_API_KEY=secret", false },
    { "MLFLOW_TRACKING_PASSWORD=secret", false },
    { "NVIDIA_ACCESS_KEY=secret", false },
    { "TORCH_PRIVATE_KEY=secret", false },
    { "PYTHON_PASSPHRASE=secret", false },
    { "WANDB_AUTH=secret", false },
    { "HF_PAT=secret", false },
    { "CUDA_PATH=/cuda", true },
    { "TORCH_WEBHOOK=https://chat/secret", false },
    { "CRUN_STORE_AUTH=address", true },
    { "CRUN_MAX_RESTARTS=3", true },
    { "PET_MAX_RESTARTS=3", true },
    { "CRUN_KEY_FILE=/home/me/key", false },
    { "CRUN_HOSTS=a,b", false },
    { "CRUN_HOSTFILE=f", false },
    { "CRUN_NNODES=2", false },
    { "PET_NODE_RANK=1", false },
    { "DISPLAY=:0", false },
    { "SSH_AUTH_SOCK=/tmp/s", false },
    { "SLURM_JOB_ID=7", false },
    { "AWS_SECRET_ACCESS_KEY=s", false },
    { "HOME=/home/me", false },
    { "NCCL_DEBUG", false }, /* no variable at all */
    { "NCCL_X=", true },
};

TEST_EACH(programs_and_settings_travel_but_no_session_and_no_secret, variables)
{
    const char *const environment[] = { variables[_i].variable, NULL };
    char **list = host_environment_carried(environment, NULL);

    if (variables[_i].travels)
        ck_assert_pstr_eq(list[0], variables[_i].variable);
    else
        ck_assert_ptr_null(list[0]);
    host_environment_free(list);
}

static const char *const here[] = { "NCCL_DEBUG=INFO", "SEED=1",
                                    "DATA_DIR=/data",  "DATA_TOKEN=t",
                                    "DATA_LIST=a=b",   NULL };

static const struct {
    const char *named[4], *list[5];
} additions[] = {
    { { NULL }, { "NCCL_DEBUG=INFO" } },
    { { "SEED" }, { "NCCL_DEBUG=INFO", "SEED=1" } },
    { { "SEED=2" }, { "NCCL_DEBUG=INFO", "SEED=2" } },
    { { "SEED", "SEED=2" }, { "NCCL_DEBUG=INFO", "SEED=2" } },
    { { "SEED=2", "SEED" }, { "NCCL_DEBUG=INFO", "SEED=1" } },
    { { "NCCL_DEBUG=WARN" }, { "NCCL_DEBUG=WARN" } },
    { { "ABSENT" }, { "NCCL_DEBUG=INFO" } },
    { { "EMPTY=" }, { "NCCL_DEBUG=INFO", "EMPTY=" } },
    { { "NEW=a=b\nc d" }, { "NCCL_DEBUG=INFO", "NEW=a=b\nc d" } },
    { { "DATA_*" }, { "NCCL_DEBUG=INFO", "DATA_DIR=/data", "DATA_LIST=a=b" } },
    { { "DATA_TOKEN" }, { "NCCL_DEBUG=INFO", "DATA_TOKEN=t" } },
    { { "DATA_L?ST" }, { "NCCL_DEBUG=INFO", "DATA_LIST=a=b" } },
    { { "SEE" }, { "NCCL_DEBUG=INFO" } },
};

TEST_EACH(x_adds_a_variable_by_name_value_or_pattern, additions)
{
    char **list = host_environment_carried(here, additions[_i].named);
    int i = 0;

    for (; additions[_i].list[i]; i++)
        ck_assert_pstr_eq(list[i], additions[_i].list[i]);
    ck_assert_ptr_null(list[i]);
    host_environment_free(list);
}

static const struct {
    const char *text;
    bool ok;
} values[] = {
    { "A", true },      { "A_1=x", true }, { "a=", true },   { "NCCL_*", true },
    { "*", true },      { "", false },     { "=x", false },  { "1A=x", false },
    { "A B=x", false }, { "A*=x", false }, { "A,B", false },
};

TEST_EACH(a_value_of_x_is_checked, values)
{
    struct err e;

    ck_assert_int_eq(host_environment_check(values[_i].text, &e),
                     values[_i].ok ? 0 : -1);
}
