/* SPDX-License-Identifier: MIT */
/* How communicators begin: ranks meet and compare each other. */
#include <arpa/inet.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fakes/nccl/group.h"

#define ID_ADDRESS_AT 8 /* in an id: bootstrap.h, ncclBootstrapHandle, all */
#define ID_PATH_AT 32

struct peer {
    int version;
    char host[128], bus[32];
    cudaUUID_t uuid;
};

struct init {
    struct task task;
    char path[PATH_BYTES];
};

static void read_file(const char *name, char *to, size_t size)
{
    FILE *f = fopen(name, "re");

    to[0] = '\0';
    if (f && !fgets(to, (int)size, f))
        to[0] = '\0';
    if (f)
        fclose(f);
}

static void describe_self(const struct nccl_comm *c, struct peer *self)
{
    const char *host = getenv("NCCL_HOSTID");
    struct cudaDeviceProp properties;

    memset(self, 0, sizeof(*self));
    self->version = c->version;
    if (host && *host) {
        snprintf(self->host, sizeof(self->host), "%s", host);
    } else {
        gethostname(self->host, 64);
        read_file("/proc/sys/kernel/random/boot_id", self->host + strlen(self->host),
                  60);
    }
    cudaDeviceGetPCIBusId(self->bus, sizeof(self->bus), c->device);
    if (cudaGetDeviceProperties(&properties, c->device) == cudaSuccess)
        self->uuid = properties.uuid;
}

static bool is_same_gpu(int version, const struct peer *a, const struct peer *b)
{
    if (strcmp(a->host, b->host) != 0)
        return false;
    if (!rule_gpus_compared_by_uuid(version))
        return strcmp(a->bus, b->bus) == 0;
    return standin_number("NCCL_MULTI_RANK_GPU_ENABLE", 0) == 0 &&
           memcmp(&a->uuid, &b->uuid, sizeof(a->uuid)) == 0;
}

/* As initTransportsRank: each rank compares the others with itself. */
static int compare_peers(struct nccl_comm *c, const struct peer *all)
{
    const struct peer *self = &all[c->rank];

    c->nodes = 0;
    for (int p = 0; p < c->size; p++) {
        bool first = true;

        if (all[p].version != self->version && rule_versions_compared(c->version)) {
            standin_warn(
                "Mismatched NCCL version detected : rank %d version %d rank %d "
                "version %d",
                p, all[p].version, c->rank, self->version);
            return NCCL_BAD_USAGE;
        }
        if (p != c->rank && is_same_gpu(c->version, &all[p], self)) {
            standin_warn("Duplicate GPU detected : rank %d and rank %d both on CUDA "
                         "device %s",
                         c->rank, p, self->bus);
            return NCCL_BAD_USAGE;
        }
        for (int before = 0; before < p; before++)
            first = first && strcmp(all[before].host, all[p].host) != 0;
        c->nodes += first;
    }
    return NCCL_OK;
}

int comm_meet(struct nccl_comm *c, const char *path)
{
    struct peer self, all[RANKS_MAX];
    int result;

    if (!area_open(&c->link, path, c->rank, c->size))
        return NCCL_SYSTEM_ERROR;
    describe_self(c, &self);
    if (!link_gather(&c->link, &self, sizeof(self), all))
        return NCCL_INTERNAL_ERROR;
    result = compare_peers(c, all);
    if (result != NCCL_OK)
        return result;
    return link_host_barrier(&c->link) ? NCCL_OK : NCCL_INTERNAL_ERROR;
}

static int run_init(struct task *t)
{
    const char *path = ((struct init *)(void *)t)->path;
    int result = comm_meet(t->comm, path);

    if (t->comm->rank == 0)
        area_close(path); /* all ranks have opened it, or none can */
    return result;
}

/* Communicators are never freed, so that the use of a destroyed one is noticed. The
 * list is for the leak checker. */
static void keep_comm(struct nccl_comm *c)
{
    static struct nccl_comm *_Atomic all;

    c->next_of_all = atomic_load(&all);
    while (!atomic_compare_exchange_weak(&all, &c->next_of_all, c))
        ;
}

static const char *_Atomic last_name = "";

/* Of the last communicator; for tests. */
COMM_API const char *standin_last_name(void)
{
    return atomic_load(&last_name);
}

struct nccl_comm *comm_make(int rank, int size, const struct nccl_config *config)
{
    struct nccl_comm *c = calloc(1, sizeof(*c));
    int blocking = config && config->blocking != INT_MIN ? config->blocking : 1;

    if (!c)
        abort();
    keep_comm(c);
    c->magic = COMM_MAGIC;
    c->rank = rank;
    c->size = size;
    c->version = standin_version();
    c->blocking = standin_number("NCCL_COMM_BLOCKING", blocking) != 0;
    cudaGetDevice(&c->device);
    atomic_store(&last_name,
                 config && config->size >= sizeof(*config) && config->comm_name
                     ? config->comm_name
                     : "");
    return c;
}

bool comm_is_config(const struct nccl_config *config)
{
    if (!config)
        return true;
    if (config->magic != NCCL_CONFIG_MAGIC ||
        config->size < offsetof(struct nccl_config, comm_name) ||
        (config->blocking != INT_MIN && config->blocking != 0 &&
         config->blocking != 1)) {
        standin_warn("ncclConfig_t argument is not valid");
        return false;
    }
    if (config->split_share != INT_MIN && config->split_share != 0)
        standin_refuse("splitShare is not implemented");
    return true;
}

COMM_API int ncclCommInitRankConfig(struct nccl_comm **comm, int size,
                                    struct nccl_id id, int rank,
                                    struct nccl_config *config)
{
    int result;
    enum fault fault = standin_fault("ncclCommInitRankConfig", rank, &result);
    struct nccl_comm *c = NULL;
    struct init *t;

    if (result != NCCL_OK) {
        standin_warn("%s", standin_last_error());
        return result;
    }
    if (size > RANKS_MAX)
        standin_refuse("more than %d ranks", RANKS_MAX);
    if (!comm || size < 1 || rank < 0 || rank >= size || !comm_is_config(config)) {
        standin_warn("Invalid rank requested : %d/%d", rank, size);
        if (comm)
            *comm = NULL;
        return group_note_error(NCCL_BAD_ARGUMENT);
    }
    t = calloc(1, sizeof(*t));
    if (!t)
        abort();
    group_begin();
    c = comm_make(rank, size, config);
    atomic_store(&c->state, NCCL_IN_PROGRESS);
    __atomic_store_n(comm, c, __ATOMIC_RELEASE);
    t->task.comm = c;
    t->task.run = run_init;
    memcpy(t->path, id.bytes + ID_PATH_AT, sizeof(t->path));
    comm_note_call(c, "ncclCommInitRankConfig");
    atomic_store(&c->breaks, fault == FAULT_ASYNC);
    group_note_error(group_add(&t->task));
    result = group_finish();
    if (c->blocking)
        comm_set_state(c, result);
    else if (result == NCCL_OK || result == NCCL_IN_PROGRESS)
        result = comm_state(c);
    return comm_leave(c, FAULT_NONE, result);
}

static void put_address(struct nccl_id *id)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    const char *text = getenv("CRUN_STANDIN_ADDRESS");

    if (text && inet_pton(AF_INET, text, &address.sin_addr) == 1)
        memcpy(id->bytes + ID_ADDRESS_AT, &address, sizeof(address));
}

COMM_API int ncclGetUniqueId(struct nccl_id *id)
{
    int result;

    (void)standin_fault("ncclGetUniqueId", -1, &result);
    if (result != NCCL_OK) {
        standin_warn("%s", standin_last_error());
        return result;
    }
    memset(id, 0, sizeof(*id));
    put_address(id);
    return area_create(id->bytes + ID_PATH_AT) ? NCCL_OK : NCCL_SYSTEM_ERROR;
}
