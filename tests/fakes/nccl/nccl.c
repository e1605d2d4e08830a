/* SPDX-License-Identifier: MIT */
/* The calls of NCCL that the worker library makes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fakes/nccl/comm.h"

#define VERSION 22809
#define REGISTER_US 20000
#define API __attribute__((visibility("default")))

/* The calls have NCCL's names, which no header of ours declares. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define BEGIN_CALL(call, rank)                                                         \
    int result;                                                                        \
    enum fault fault = standin_fault(call, rank, &result);                             \
    if (result)                                                                        \
    return result

static int finish_call(struct nccl_comm *c, enum fault fault)
{
    if (c && fault == FAULT_ASYNC)
        atomic_store(&c->state, NCCL_REMOTE_ERROR);
    return NCCL_OK;
}

/* -- the library ------------------------------------------------------------ */

API int ncclGetVersion(int *version)
{
    BEGIN_CALL("ncclGetVersion", -1);
    *version = standin_number("CRUN_STANDIN_VERSION", VERSION);
    return finish_call(NULL, fault);
}

API const char *ncclGetErrorString(int code)
{
    static const char *const names[] = { "no error",
                                         "unhandled cuda error",
                                         "unhandled system error",
                                         "internal error",
                                         "invalid argument",
                                         "invalid usage",
                                         "remote process exited",
                                         "in progress" };

    return code >= 0 && code <= NCCL_IN_PROGRESS ? names[code] : "unknown";
}

API const char *ncclGetLastError(struct nccl_comm *c)
{
    (void)c;
    return standin_last_error();
}

API int ncclMemAlloc(void **memory, size_t bytes)
{
    BEGIN_CALL("ncclMemAlloc", -1);
    *memory = standin_alloc(bytes);
    (void)fault;
    return *memory ? NCCL_OK : NCCL_CUDA_ERROR;
}

API int ncclMemFree(void *memory)
{
    BEGIN_CALL("ncclMemFree", -1);
    (void)fault;
    return standin_free(memory) ? NCCL_OK : NCCL_BAD_ARGUMENT;
}

/* -- communicators ---------------------------------------------------------- */

/* Memory of rank 0's, which others find under its number for as long as it lives. */
API int ncclGetUniqueId(struct nccl_id *id)
{
    int fd;

    BEGIN_CALL("ncclGetUniqueId", -1);
    fd = memfd_create("nccl-standin", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(struct area)) < 0)
        return NCCL_SYSTEM_ERROR;
    memset(id, 0, sizeof(*id));
    snprintf(id->bytes, sizeof(id->bytes), "/proc/%d/fd/%d", (int)getpid(), fd);
    return finish_call(NULL, fault);
}

static void *meet_ranks(void *arg)
{
    struct nccl_comm *c = arg;
    int fd = open(c->id.bytes, O_RDWR | O_CLOEXEC), none = NCCL_IN_PROGRESS;
    int self, own;

    if (fd >= 0)
        c->area = mmap(NULL, sizeof(struct area), PROT_READ | PROT_WRITE, MAP_SHARED,
                       fd, 0);
    if (fd >= 0)
        close(fd);
    if (fd < 0 || c->area == MAP_FAILED) {
        c->area = NULL;
        atomic_store(&c->state, NCCL_SYSTEM_ERROR);
        return NULL;
    }
    if (comm_barrier(c))
        atomic_compare_exchange_strong(&c->state, &none, NCCL_OK);
    if (c->rank == 0 && sscanf(c->id.bytes, "/proc/%d/fd/%d", &self, &own) == 2)
        close(own);
    return NULL;
}

static void *leave_ranks(void *arg)
{
    struct nccl_comm *c = arg;
    int none = NCCL_IN_PROGRESS;

    while (atomic_load(&c->kernels) > 0 && !atomic_load(&c->aborted))
        usleep(100);
    if (comm_barrier(c))
        atomic_compare_exchange_strong(&c->state, &none, NCCL_OK);
    return NULL;
}

static int run_helper(struct nccl_comm *c, void *(*what)(void *arg))
{
    if (c->helped)
        pthread_join(c->helper, NULL);
    atomic_store(&c->state, NCCL_IN_PROGRESS);
    c->helped = pthread_create(&c->helper, NULL, what, c) == 0;
    return c->helped ? NCCL_IN_PROGRESS : NCCL_SYSTEM_ERROR;
}

API int ncclCommInitRankConfig(struct nccl_comm **comm, int size, struct nccl_id id,
                               int rank, struct nccl_config *config)
{
    struct nccl_comm *c;
    int code;

    BEGIN_CALL("ncclCommInitRankConfig", rank);
    if (config->magic != NCCL_CONFIG_MAGIC || config->blocking != 0 || size > RANKS_MAX)
        return NCCL_BAD_ARGUMENT;
    c = calloc(1, sizeof(*c));
    if (!c)
        return NCCL_SYSTEM_ERROR;
    c->rank = rank;
    c->size = size;
    c->id = id;
    *comm = c;
    code = run_helper(c, meet_ranks);
    finish_call(c, fault);
    return code;
}

static void destroy_comm(struct nccl_comm *c)
{
    atomic_store(&c->aborted, true);
    if (c->helped)
        pthread_join(c->helper, NULL);
    while (atomic_load(&c->kernels) > 0)
        usleep(100);
    if (c->area)
        munmap(c->area, sizeof(struct area));
    free(c);
}

/* No further call while one is under way: NCCL's ncclCommEnsureReady. */
static int ensure_ready(struct nccl_comm *c)
{
    int state = atomic_load(&c->state);

    return state == NCCL_IN_PROGRESS ? NCCL_BAD_ARGUMENT : state;
}

API int ncclCommFinalize(struct nccl_comm *c)
{
    int state = ensure_ready(c);

    BEGIN_CALL("ncclCommFinalize", c->rank);
    (void)fault;
    return state == NCCL_OK ? run_helper(c, leave_ranks) : state;
}

API int ncclCommDestroy(struct nccl_comm *c)
{
    int result;

    (void)standin_fault("ncclCommDestroy", c->rank, &result);
    destroy_comm(c); /* as far as it could */
    return result;
}

API int ncclCommAbort(struct nccl_comm *c)
{
    int result;

    (void)standin_fault("ncclCommAbort", c->rank, &result);
    destroy_comm(c); /* as far as it could */
    return result;
}

API int ncclCommGetAsyncError(struct nccl_comm *c, int *state)
{
    BEGIN_CALL("ncclCommGetAsyncError", c->rank);
    finish_call(c, fault);
    *state = atomic_load(&c->state);
    return NCCL_OK;
}

/* Over when all ranks have come, and never before the caller can look. */
static void *register_window(void *arg)
{
    struct nccl_comm *c = arg;
    int none = NCCL_IN_PROGRESS;

    usleep(REGISTER_US);
    if (comm_barrier(c))
        atomic_compare_exchange_strong(&c->state, &none, NCCL_OK);
    return NULL;
}

/* It returns success while it runs in a thread of its own, also where the communicator
 * does not block: dev_runtime.cc of NCCL 2.28.9, lines 917 to 921. */
API int ncclCommWindowRegister(struct nccl_comm *c, void *memory, size_t bytes,
                               struct nccl_window **window, int flags)
{
    int code, state = ensure_ready(c);

    BEGIN_CALL("ncclCommWindowRegister", c->rank);
    if (state != NCCL_OK)
        return state;
    if (bytes % 4096 || flags != NCCL_WINDOW_SYMMETRIC)
        return NCCL_BAD_ARGUMENT;
    *window = memory;
    code = run_helper(c, register_window);
    return code == NCCL_IN_PROGRESS ? finish_call(c, fault) : code;
}

/* It only notes the memory; a handle that is NULL would not be returned. */
API int ncclCommRegister(struct nccl_comm *c, void *memory, size_t bytes, void **handle)
{
    BEGIN_CALL("ncclCommRegister", c->rank);
    if (bytes == 0)
        return NCCL_BAD_ARGUMENT;
    *handle = memory;
    return finish_call(c, fault);
}

API int ncclCommDeregister(struct nccl_comm *c, void *handle)
{
    BEGIN_CALL("ncclCommDeregister", c->rank);
    (void)handle;
    return finish_call(c, fault);
}

API int ncclCommSplit(struct nccl_comm *c, int color, int key, struct nccl_comm **child,
                      struct nccl_config *config)
{
    BEGIN_CALL("ncclCommSplit", c->rank);
    (void)color;
    (void)key;
    (void)config;
    (void)fault;
    *child = NULL;
    return NCCL_INTERNAL_ERROR; /* not here */
}

API int ncclCommWindowDeregister(struct nccl_comm *c, struct nccl_window *window)
{
    BEGIN_CALL("ncclCommWindowDeregister", c->rank);
    (void)window;
    return finish_call(c, fault);
}

/* -- operations ------------------------------------------------------------- */

static _Thread_local struct kernel group;
static _Thread_local struct gpu_stream *group_stream;
static _Thread_local bool grouped;

static int launch_kernel(struct nccl_comm *c, struct kernel k, enum fault fault,
                         struct gpu_stream *stream)
{
    int state = ensure_ready(c);

    if (state != NCCL_OK)
        return state;
    k.comm = c;
    k.fault = fault;
    kernel_launch(&k, stream);
    return finish_call(c, fault);
}

/* `number` is the operation, the root, or nothing. */
static int launch_collective(const char *call, struct kernel k, int number,
                             struct nccl_comm *c, struct gpu_stream *stream)
{
    BEGIN_CALL(call, c->rank);
    k.op = k.root = number;
    return launch_kernel(c, k, fault, stream);
}

#define COLLECTIVE(kernel_kind)                                                        \
    (struct kernel)                                                                    \
    {                                                                                  \
        .kind = (kernel_kind), .in = in, .out = out, .count = count, .type = type      \
    }

API int ncclAllReduce(const void *in, void *out, size_t count, int type, int op,
                      struct nccl_comm *c, struct gpu_stream *stream)
{
    return launch_collective("ncclAllReduce", COLLECTIVE(KERNEL_ALL_REDUCE), op, c,
                             stream);
}

API int ncclBroadcast(const void *in, void *out, size_t count, int type, int root,
                      struct nccl_comm *c, struct gpu_stream *stream)
{
    return launch_collective("ncclBroadcast", COLLECTIVE(KERNEL_BROADCAST), root, c,
                             stream);
}

API int ncclReduceScatter(const void *in, void *out, size_t count, int type, int op,
                          struct nccl_comm *c, struct gpu_stream *stream)
{
    return launch_collective("ncclReduceScatter", COLLECTIVE(KERNEL_REDUCE_SCATTER), op,
                             c, stream);
}

API int ncclAllGather(const void *in, void *out, size_t count, int type,
                      struct nccl_comm *c, struct gpu_stream *stream)
{
    return launch_collective("ncclAllGather", COLLECTIVE(KERNEL_ALL_GATHER), 0, c,
                             stream);
}

/* Alone, or with others at the group's end. */
static int add_message(struct nccl_comm *c, struct nccl_message m, enum fault fault,
                       struct gpu_stream *stream)
{
    int state = ensure_ready(c);

    if (state != NCCL_OK)
        return state;
    if (!grouped) {
        struct kernel k = { .kind = KERNEL_MESSAGES, .messages = 1 };

        k.message[0] = m;
        return launch_kernel(c, k, fault, stream);
    }
    if (group.messages == MESSAGES_MAX)
        return NCCL_INTERNAL_ERROR;
    group.comm = c;
    group.fault = group.fault ? group.fault : fault;
    group.message[group.messages++] = m;
    group_stream = stream;
    return finish_call(c, fault);
}

API int ncclSend(const void *in, size_t count, int type, int peer, struct nccl_comm *c,
                 struct gpu_stream *stream)
{
    struct nccl_message m = { true, in, NULL, count * kernel_item(type), 0, peer };

    BEGIN_CALL("ncclSend", c->rank);
    return add_message(c, m, fault, stream);
}

API int ncclRecv(void *out, size_t count, int type, int peer, struct nccl_comm *c,
                 struct gpu_stream *stream)
{
    struct nccl_message m = { false, NULL, out, count * kernel_item(type), 0, peer };

    BEGIN_CALL("ncclRecv", c->rank);
    return add_message(c, m, fault, stream);
}

API int ncclGroupStart(void)
{
    BEGIN_CALL("ncclGroupStart", -1);
    (void)fault;
    memset(&group, 0, sizeof(group));
    group.kind = KERNEL_MESSAGES;
    grouped = true;
    return NCCL_OK;
}

API int ncclGroupEnd(void)
{
    BEGIN_CALL("ncclGroupEnd", -1);
    grouped = false;
    if (group.messages > 0)
        return launch_kernel(group.comm, group, group.fault ? group.fault : fault,
                             group_stream);
    return NCCL_OK;
}
