/* SPDX-License-Identifier: MIT */
#include "launcher/hosts/host_environment.h"

#include <fnmatch.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"

/* Each is a name, or a prefix with '*' after it. */
static const char *const carried[] = {
    /* programs, libraries and modules */
    "PATH", "LD_LIBRARY*", "LIBRARY_PATH", "PYTHON*", "VIRTUAL_ENV*", "CONDA_*",
    /* GPUs */
    "CUDA*", "NVIDIA_*", "HIP_*", "HSA_*", "ROCM*", "ROCR_*", "MIOPEN_*",
    /* networks between workers */
    "NCCL*", "RCCL*", "GLOO_*", "UCX*", "FI_*", "MV2_*", "NVSHMEM_*",
    /* threads and memory */
    "OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "MALLOC_*",
    /* training */
    "TORCH*", "PYTORCH*", "TRITON*", "XLA_*", "JAX_*", "TF_*", "HF_*", "TRANSFORMERS_*",
    "TOKENIZERS_*", "DS_*", "DEEPSPEED_*", "ACCELERATE_*", "MLFLOW_*", "WANDB_*",
    /* crun */
    "CRUN_*", "PET_*", "NO_COLOR", NULL
};

/* Stronger than the table above. */
static const char *const kept[] = {
    /* what the launcher has used, and what it decides for each host */
    "CRUN_HOST*", "CRUN_ENV", "CRUN_WDIR", "CRUN_NP", "CRUN_PPN", "CRUN_NPERNODE",
    "CRUN_NNODES", "CRUN_NODE_RANK", "CRUN_MASTER_*", "CRUN_RDZV_ENDPOINT",
    "CRUN_STANDALONE", "CRUN_LOCAL_ADDR", "CRUN_RUNTIME_DIR", "CRUN_DRY_RUN",
    "PET_HOST*", "PET_ENV", "PET_WDIR", "PET_NP", "PET_PPN", "PET_NPERNODE",
    "PET_NNODES", "PET_NODE_RANK", "PET_MASTER_*", "PET_RDZV_ENDPOINT",
    "PET_STANDALONE", "PET_LOCAL_ADDR", "PET_DRY_RUN",
    /* files of this machine */
    "TORCHELASTIC_ERROR_FILE", "CRUN_KEY*", "PET_KEY*",
    /* of Terraform, which may be secrets */
    "TF_VAR_*", "TF_CLI_*", NULL
};

/* Parts of names whose values are secrets. */
static const char *const secret_words[] = { "TOKEN",      "SECRET",     "PASSWORD",
                                            "PASSWD",     "PASSPHRASE", "APIKEY",
                                            "API_KEY",    "ACCESS_KEY", "PRIVATE_KEY",
                                            "CREDENTIAL", "AUTH",       "WEBHOOK",
                                            NULL };

/* Names with such a part that are no secrets. */
static const char *const public_names[] = { "TOKENIZERS_*", "CRUN_STORE_AUTH",
                                            "PET_STORE_AUTH", NULL };

static bool name_matches(const char *name, size_t length, const char *pattern)
{
    size_t fixed = strcspn(pattern, "*");

    return pattern[fixed] ? length >= fixed && memcmp(name, pattern, fixed) == 0
                          : length == fixed && memcmp(name, pattern, fixed) == 0;
}

static bool table_has_name(const char *const *table, const char *name, size_t length)
{
    for (; *table; table++)
        if (name_matches(name, length, *table))
            return true;
    return false;
}

static bool is_secret_name(const char *name, size_t length)
{
    for (const char *const *word = secret_words; *word; word++)
        if (memmem(name, length, *word, strlen(*word)))
            return !table_has_name(public_names, name, length);
    return name_matches(name, length, "CRUN_KEY*") ||
           (length > 4 && memcmp(name + length - 4, "_PAT", 4) == 0);
}

/* A list by UUID names the GPUs of this machine. */
static bool value_is_local(const char *name, size_t length, const char *value)
{
    return memmem(name, length, "VISIBLE_DEVICES", 15) &&
           (strstr(value, "GPU-") || strstr(value, "MIG-"));
}

static bool variable_travels(const char *variable, size_t length)
{
    return table_has_name(carried, variable, length) &&
           !table_has_name(kept, variable, length) &&
           !is_secret_name(variable, length) &&
           !value_is_local(variable, length, variable + length + 1);
}

int host_environment_check(const char *text, struct err *e)
{
    size_t length = strcspn(text, "="), letters = 0;

    for (; letters < length; letters++) {
        char c = text[letters];

        if (!(c == '_' || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
              (c >= '0' && c <= '9' && letters > 0) ||
              (text[length] == '\0' && strchr("*?", c))))
            break;
    }
    if (length == 0 || letters < length)
        return err_set(e, "\"%s\" is not NAME, NAME=value, or a pattern as in NCCL_*",
                       text);
    return 0;
}

/* Adds "NAME=value" or takes the place of an equal name. */
static void add_variable(char **list, size_t *count, const char *variable)
{
    size_t length = strcspn(variable, "=") + 1, i = 0;

    while (i < *count && strncmp(list[i], variable, length) != 0)
        i++;
    if (i == *count)
        ++*count;
    else
        free(list[i]);
    list[i] = xstrdup(variable);
}

/* What one value of -x adds. */
static void add_named(char **list, size_t *count, const char *const *environ,
                      const char *named)
{
    size_t length = strlen(named);
    bool is_pattern = strpbrk(named, "*?") != NULL;

    if (strchr(named, '=')) {
        add_variable(list, count, named);
        return;
    }
    for (; *environ; environ++) {
        size_t name = strcspn(*environ, "=");
        char *copy;

        if ((*environ)[name] != '=')
            continue;
        if (!is_pattern && name == length && memcmp(*environ, named, length) == 0)
            add_variable(list, count, *environ);
        if (!is_pattern)
            continue;
        copy = xmemdup(*environ, name + 1);
        copy[name] = '\0';
        if (fnmatch(named, copy, 0) == 0 && !is_secret_name(copy, name))
            add_variable(list, count, *environ);
        free(copy);
    }
}

char **host_environment_carried(const char *const *environ, const char *const *named)
{
    size_t most = 0, count = 0;
    char **list;

    while (environ[most])
        most++;
    for (const char *const *n = named; n && *n; n++)
        most++;
    list = xcalloc(most + 1, sizeof(*list));
    for (const char *const *v = environ; *v; v++) {
        size_t length = strcspn(*v, "=");

        if ((*v)[length] == '=' && variable_travels(*v, length))
            add_variable(list, &count, *v);
    }
    for (; named && *named; named++)
        add_named(list, &count, environ, *named);
    return list;
}

void host_environment_free(char **list)
{
    for (char **v = list; v && *v; v++)
        free(*v);
    free(list);
}
