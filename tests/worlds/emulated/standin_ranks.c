/* SPDX-License-Identifier: MIT */
#include "tests/worlds/emulated/standin_ranks.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "rendezvous/common/base/clock.h"
#include "tests/worlds/rank_threads.h"

#define PATIENCE_MS 20000

struct standin_calls standin;
struct nccl_id standin_id;

void standin_open(void)
{
    static const struct {
        const char *symbol;
        void **to;
    } symbols[] = {
        { "ncclGetUniqueId", (void **)&standin.unique_id },
        { "ncclCommInitRankConfig", (void **)&standin.init },
        { "ncclCommFinalize", (void **)&standin.finalize },
        { "ncclCommDestroy", (void **)&standin.destroy },
        { "ncclCommAbort", (void **)&standin.abort },
        { "ncclCommRevoke", (void **)&standin.revoke },
        { "ncclCommGetAsyncError", (void **)&standin.async_error },
        { "ncclCommSplit", (void **)&standin.split },
        { "ncclMemAlloc", (void **)&standin.mem_alloc },
        { "ncclMemFree", (void **)&standin.mem_free },
        { "ncclCommRegister", (void **)&standin.register_memory },
        { "ncclCommWindowRegister", (void **)&standin.window },
        { "ncclAllReduce", (void **)&standin.all_reduce },
        { "ncclAllGather", (void **)&standin.all_gather },
        { "ncclSend", (void **)&standin.send },
        { "ncclRecv", (void **)&standin.receive },
        { "ncclGroupStart", (void **)&standin.group_start },
        { "ncclGroupEnd", (void **)&standin.group_end },
    };
    void *library = dlopen("libnccl-standin.so", RTLD_NOW);

    ck_assert_msg(library, "%s", dlerror());
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        *symbols[i].to = dlsym(library, symbols[i].symbol);
        ck_assert_ptr_nonnull(*symbols[i].to);
    }
}

struct nccl_config standin_config(int blocking)
{
    return (struct nccl_config){ .size = sizeof(struct nccl_config),
                                 .magic = NCCL_CONFIG_MAGIC,
                                 .version = NCCL_CONFIG_VERSION,
                                 .blocking = blocking,
                                 .cga_cluster_size = INT_MIN,
                                 .ctas_min = INT_MIN,
                                 .ctas_max = INT_MIN,
                                 .split_share = INT_MIN };
}

int standin_settle(comm_t comm, int result)
{
    uint64_t until = clock_ms() + PATIENCE_MS;

    do {
        if (result != NCCL_OK && result != NCCL_IN_PROGRESS)
            return result;
        OK(standin.async_error(comm, &result));
        if (result == NCCL_IN_PROGRESS)
            sched_yield();
        ck_assert_uint_lt(clock_ms(), until);
    } while (result == NCCL_IN_PROGRESS);
    return result;
}

void standin_fill(struct standin_rank *r, float value)
{
    float *host = calloc((size_t)r->size, BYTES);

    for (size_t i = 0; i < (size_t)r->size * COUNT; i++)
        host[i] = value;
    CUDA(cudaMemcpyAsync(r->x, host, (size_t)r->size * BYTES, cudaMemcpyHostToDevice,
                         r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    free(host);
}

float standin_value_at(struct standin_rank *r, size_t i)
{
    float value = -1;

    CUDA(cudaMemcpyAsync(&value, r->x + i, sizeof(value), cudaMemcpyDeviceToHost,
                         r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    return value;
}

int standin_all_reduce(struct standin_rank *r, size_t count)
{
    return standin.all_reduce(r->x, r->x, count, NCCL_F32, NCCL_SUM, r->comm,
                              r->stream);
}

void standin_begin(struct standin_rank *r, unsigned rank, int size, int blocking)
{
    struct nccl_config config = standin_config(blocking);
    int result;

    *r = (struct standin_rank){ .rank = (int)rank, .size = size };
    CUDA(cudaSetDevice((int)rank));
    if (rank == 0)
        OK(standin.unique_id(&standin_id));
    rank_threads_sync();
    result = standin.init(&r->comm, size, standin_id, (int)rank, &config);
    OK(standin_settle(r->comm, result));
    CUDA(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    OK(standin.mem_alloc((void **)&r->x, (size_t)size * BYTES));
    standin_fill(r, 1);
}

void standin_warm_up(struct standin_rank *r)
{
    OK(standin_settle(r->comm, standin_all_reduce(r, COUNT)));
    OK(standin_settle(
        r->comm, standin.all_gather(r->x, r->x, COUNT, NCCL_F32, r->comm, r->stream)));
    CUDA(cudaStreamSynchronize(r->stream));
    standin_fill(r, 1);
    rank_threads_sync();
}

void standin_end(struct standin_rank *r)
{
    CUDA(cudaStreamSynchronize(r->stream));
    OK(standin_settle(r->comm, standin.finalize(r->comm)));
    OK(standin.destroy(r->comm));
    OK(standin.mem_free(r->x));
}

static void *abort_comm(void *arg)
{
    (void)standin.abort((comm_t)arg);
    return NULL;
}

bool standin_aborts(comm_t comm)
{
    struct timespec until;
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, abort_comm, comm), 0);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    if (pthread_timedjoin_np(thread, NULL, &until) == 0)
        return true;
    pthread_detach(thread);
    return false;
}
