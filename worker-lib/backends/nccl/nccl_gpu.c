/* SPDX-License-Identifier: MIT */
#include "worker-lib/backends/nccl/nccl_gpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/hash.h"
#include "worker-lib/backends/nccl/nccl_calls.h"
#include "worker-lib/engine/backend.h"

#define DEVICES_MAX 1024
#define KEY_SIZE 480
#define NCCL_TELLS_PARTS 23000 /* NCCL compares UUIDs since this version */

static crun_status explain_missing_gpu(const struct gpu_calls *cuda, int code,
                                       int count, struct err *e)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int driver = 0, runtime = 0;

    if (code == GPU_NO_DRIVER && cuda->versions(&driver, &runtime) == GPU_OK &&
        driver > 0)
        err_set(e,
                "the NVIDIA driver is too old: it is for CUDA %d.%d, this build for "
                "%d.%d",
                driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    else if (code == GPU_NO_DRIVER)
        err_set(e, "there is no NVIDIA driver on this machine");
    else if (code != GPU_OK && code != GPU_NO_DEVICE)
        err_set(e, "the GPUs cannot be counted: %s", cuda->error_text(code));
    else if (count > 0)
        return CRUN_OK;
    else if (visible)
        err_set(e, "CUDA_VISIBLE_DEVICES is \"%s\": that leaves no GPU", visible);
    else
        err_set(e, "there is an NVIDIA driver on this machine, but no GPU");
    return CRUN_UNSUPPORTED;
}

/* `name` is the source of the text. */
static crun_status read_device_number(const char *name, const char *text, int *number,
                                      struct err *e)
{
    char *end;
    long value = strtol(text, &end, 10);

    if (end != text && !*end && value >= 0 && value < DEVICES_MAX) {
        *number = (int)value;
        return CRUN_OK;
    }
    err_set(e, "%s \"%s\" is not the number of a GPU", name, text);
    return *name == 'C' ? CRUN_BAD_ENVIRONMENT : CRUN_BAD_ARGUMENT;
}

static crun_status choose_gpu(struct nccl_gpu *g, const char *device,
                              unsigned local_rank, unsigned local_size, int count,
                              struct err *e)
{
    const char *variable = getenv("CRUN_DEVICE");
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    crun_status s = CRUN_OK;
    bool one_each = count == 1 && visible && !strchr(visible, ',');

    if (device && strcmp(device, "auto") != 0)
        s = read_device_number("crun_init: device", device, &g->device, e);
    else if (variable && *variable)
        s = read_device_number("CRUN_DEVICE", variable, &g->device, e);
    else /* a launcher may show each rank only its own GPU */
        g->device = one_each ? 0 : (int)local_rank;
    if (s != CRUN_OK || g->device < count)
        return s;
    err_set(e,
            "local rank %u of %u needs GPU %d, and there %s %d: use fewer ranks or "
            "more GPUs (CUDA_VISIBLE_DEVICES)",
            local_rank, local_size, g->device, count == 1 ? "is" : "are", count);
    return CRUN_UNSUPPORTED;
}

crun_status nccl_gpu_find(struct nccl_gpu *g, const char *device, unsigned local_rank,
                          unsigned local_size, uint64_t deadline_ms, struct err *e)
{
    int count = 0, code;
    struct err no_nccl;
    crun_status s, opened;

    memset(g, 0, sizeof(*g));
    opened = nccl_open(&g->nccl, deadline_ms, &no_nccl);
    if (opened == CRUN_TIMEOUT) {
        *e = no_nccl;
        return opened;
    }
    g->cuda = gpu_calls_cuda();
    if (!g->cuda) {
        err_set(e, "this build is without GPUs: make found no CUDA toolkit");
        return CRUN_UNSUPPORTED;
    }
    code = g->cuda->count(&count);
    s = explain_missing_gpu(g->cuda, code, code == GPU_OK ? count : 0, e);
    if (s != CRUN_OK)
        return s;
    if (opened != CRUN_OK) {
        *e = no_nccl;
        return opened;
    }
    g->version = nccl_version();
    return choose_gpu(g, device, local_rank, local_size, count, e);
}

/* -- does it work? ----------------------------------------------------------------- */

static const struct {
    int code;
    const char *hint;
} hints[] = {
    { GPU_NO_MEMORY, "other processes use its memory, see nvidia-smi" },
    { GPU_UNAVAILABLE, "another process uses it, and its compute mode allows only one, "
                       "or none: see nvidia-smi -q -d COMPUTE" },
    { 802, "its links to other GPUs are not ready: is nvidia-fabricmanager running?" },
};

static const char *hint_for(int code)
{
    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
        if (hints[i].code == code)
            return hints[i].hint;
    return NULL;
}

crun_status nccl_gpu_open(const struct nccl_gpu *g, struct err *e)
{
    int code = g->cuda->set_device(g->device);
    size_t available, total;
    const char *hint;

    gpu_calls_learn(g->cuda, g->device);
    /* CUDA before 12 creates its context in the first call that needs one */
    if (code == GPU_OK)
        code = g->cuda->memory_info(&available, &total);
    if (code == GPU_OK)
        return CRUN_OK;
    hint = hint_for(code);
    err_set(e, "%s cannot be used: %s (CUDA error %d)%s%s", gpu_calls_name(g->device),
            g->cuda->error_text(code), code, hint ? ": " : "", hint ? hint : "");
    return code == GPU_NO_MEMORY ? CRUN_NO_MEMORY : CRUN_SYSTEM;
}

/* -- each rank has its own --------------------------------------------------------- */

char *nccl_gpu_host(char *buf, size_t size)
{
    memset(buf, 0, size);
    if (gethostname(buf, size - 1) < 0)
        snprintf(buf, size, "unknown");
    return buf;
}

/* How NCCL identifies a host: by NCCL_HOSTID, or by the host's name and boot. */
static uint64_t hash_host(void)
{
    const char *given = getenv("NCCL_HOSTID");
    char host[256], boot[64] = "";
    uint64_t hash;
    FILE *f;

    if (given)
        return hash_fnv1a(HASH_FNV1A_BASIS, given, strlen(given));
    nccl_gpu_host(host, sizeof(host));
    f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f && !fgets(boot, sizeof(boot), f))
        boot[0] = '\0';
    if (f)
        fclose(f);
    hash = hash_fnv1a(HASH_FNV1A_BASIS, host, strlen(host));
    return hash_fnv1a(hash, boot, strlen(boot));
}

struct gpu_claim {
    uint32_t rank;
    struct gpu_identity identity;
};

/* With this variable NCCL 2.30 accepts several ranks on one GPU. */
static bool nccl_shares_gpus(const struct nccl_gpu *g)
{
    const char *variable = getenv("NCCL_MULTI_RANK_GPU_ENABLE");

    return g->version >= NCCL_TELLS_PARTS && variable && atoi(variable) != 0;
}

static void explain_shared_gpu(const struct nccl_gpu *g, const struct gpu_claim *mine,
                               const struct gpu_claim *its, struct err *e)
{
    bool same = memcmp(mine->identity.uuid, its->identity.uuid,
                       sizeof(mine->identity.uuid)) == 0;
    char version[24];

    if (same)
        err_set(e,
                "ranks %u and %u both use GPU %d (%s): each needs a GPU of its own "
                "(CUDA_VISIBLE_DEVICES, CRUN_DEVICE)",
                its->rank, mine->rank, g->device, mine->identity.bus);
    else
        err_set(e,
                "ranks %u and %u use parts (MIG) of one GPU (%s), and NCCL %s needs a "
                "GPU for each rank: use NCCL 2.30",
                its->rank, mine->rank, mine->identity.bus,
                nccl_version_text(g->version, version, sizeof(version)));
}

/* The first rank on a GPU writes a claim to the store, where the second one finds
 * it. */
crun_status nccl_gpu_claim(const struct nccl_gpu *g, const struct team *team,
                           uint64_t deadline_ms, struct err *e)
{
    struct gpu_claim mine = { .rank = team->world_rank[team->rank] }, its;
    char count[KEY_SIZE], who[KEY_SIZE];
    size_t size = sizeof(its);
    uint64_t hash = hash_host();
    int64_t sum = 0;
    crun_status s;

    if (team->size == 1 || nccl_shares_gpus(g) ||
        g->cuda->identify(g->device, &mine.identity) != GPU_OK)
        return CRUN_OK;
    if (g->version >= NCCL_TELLS_PARTS)
        hash = hash_fnv1a(hash, mine.identity.uuid, sizeof(mine.identity.uuid));
    else
        hash = hash_fnv1a(hash, mine.identity.bus, strlen(mine.identity.bus));
    snprintf(count, sizeof(count), "%sgpu/%" PRIx64, team->prefix, hash);
    snprintf(who, sizeof(who), "%sgpu/%" PRIx64 "/who", team->prefix, hash);
    s = store_client_add(team->store, count, 1, &sum, deadline_ms, e);
    if (s == CRUN_OK && sum == 1)
        return store_client_set(team->store, who, &mine, sizeof(mine), deadline_ms, e);
    if (s == CRUN_OK)
        s = store_client_get(team->store, who, &its, &size, deadline_ms, e);
    if (s != CRUN_OK || size != sizeof(its))
        return s;
    explain_shared_gpu(g, &mine, &its, e);
    return CRUN_UNSUPPORTED;
}

crun_status nccl_gpu_check_version(const struct nccl_gpu *g, const struct team *team,
                                   int version_of_first, const char *host_of_first,
                                   struct err *e)
{
    char its[24], mine[24], host[64];

    if (g->version == version_of_first)
        return CRUN_OK;
    err_set(e,
            "rank %u on %s has NCCL %s, and rank %u on %.63s has NCCL %s: all ranks "
            "need the same version",
            team->world_rank[team->rank], nccl_gpu_host(host, sizeof(host)),
            nccl_version_text(g->version, mine, sizeof(mine)), team->world_rank[0],
            host_of_first, nccl_version_text(version_of_first, its, sizeof(its)));
    return CRUN_UNSUPPORTED;
}
