/* SPDX-License-Identifier: MIT */
/* The calls of NCCL that put operations into streams, and those of the library. */
#include <stdlib.h>

#include "tests/fakes/nccl/group.h"

#define TYPES 10
#define OPS 5

/* -- the library ------------------------------------------------------------------- */

COMM_API int ncclGetVersion(int *version)
{
    int result;

    (void)standin_fault("ncclGetVersion", -1, &result);
    if (result == NCCL_OK)
        *version = standin_version();
    return result;
}

COMM_API const char *ncclGetErrorString(int code)
{
    static const char *const names[] = {
        "no error",
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "internal error - please report this issue to the NCCL developers",
        "invalid argument (run with NCCL_DEBUG=WARN for details)",
        "invalid usage (run with NCCL_DEBUG=WARN for details)",
        "remote process exited or there was a network error",
        "NCCL operation in progress"
    };

    return code >= 0 && code <= NCCL_IN_PROGRESS ? names[code] : "unknown result code";
}

COMM_API const char *ncclGetLastError(struct nccl_comm *c)
{
    return standin_last_warning();
}

/* -- operations -------------------------------------------------------------------- */

static bool is_message(const struct operation *o)
{
    return o->kind == SEND || o->kind == RECEIVE;
}

/* As ArgsCheck; 3 and 5 are types that the project does not use. */
static int check_arguments(const struct operation *o)
{
    const struct nccl_comm *c = o->task.comm;
    bool is_type = o->type >= 0 && o->type < TYPES;

    if (o->peer < 0 || o->peer >= c->size) {
        standin_warn("invalid root %d (root should be in the 0..%d range)", o->peer,
                     c->size);
        return NCCL_BAD_ARGUMENT;
    }
    if (!is_type || o->op < 0 || o->op >= OPS) {
        standin_warn("invalid type %d or reduction operation %d", o->type, o->op);
        return NCCL_BAD_ARGUMENT;
    }
    if (o->type == 0 || o->type == 3 || o->type == 5)
        standin_refuse("type %d is not implemented", o->type);
    return NCCL_OK;
}

/* Whether a kernel of its own kind is used: rule 20. */
static bool is_symmetric(const struct operation *o)
{
    const struct nccl_comm *c = o->task.comm;
    bool reduces = o->kind == ALL_REDUCE || o->kind == REDUCE_SCATTER;
    bool sums = o->op == NCCL_SUM &&
                (o->type == NCCL_F32 || o->type == NCCL_F16 || o->type == NCCL_BF16);

    return c->nodes == 1 && (o->kind == ALL_GATHER || (reduces && sums)) &&
           memory_is_symmetric(c, o->in) && memory_is_symmetric(c, o->out);
}

/* Whether the kernel of this operation cannot use one of its buffers. */
static bool is_faulty(const struct operation *o)
{
    const struct nccl_comm *c = o->task.comm;
    bool reads = o->kind != RECEIVE && (o->kind != BROADCAST || c->rank == o->peer);

    if (o->count == 0)
        return false;
    return (reads && !memory_is_reachable(c, o->in)) ||
           (o->kind != SEND && !memory_is_reachable(c, o->out));
}

static int append_operation(struct operation *o)
{
    struct nccl_comm *c = o->task.comm;

    if (!is_message(o) && o->count == 0) {
        free(o);
        return NCCL_OK;
    }
    o->faulty = is_faulty(o);
    o->symmetric = c->size > 1 && is_symmetric(o);
    if (!is_message(o) && c->size == 1)
        return kernel_launch(c, o, o->stream);
    return group_add(&o->task);
}

/* As ncclEnqueueCheck. */
static int enqueue_operation(const char *call, struct operation as)
{
    struct nccl_comm *c = as.task.comm;
    int result = comm_enter(c, call, &as.fault), ended;
    struct operation *o;

    if (result != NCCL_OK)
        return comm_break(c, result);
    group_begin();
    result = comm_ready(c);
    if (result == NCCL_OK)
        result = check_arguments(&as);
    if (result == NCCL_OK) {
        o = malloc(sizeof(*o));
        if (!o)
            abort();
        as.task.stage = STAGE_OPERATION;
        *o = as;
        if (as.fault == FAULT_ASYNC)
            atomic_store(&c->breaks, true);
        result = append_operation(o);
    }
    if (result != NCCL_OK && !c->blocking)
        comm_set_state(c, result);
    group_note_error(result);
    ended = group_finish();
    if (ended != NCCL_OK && ended != NCCL_IN_PROGRESS)
        return comm_leave(c, FAULT_NONE, ended);
    if (!c->blocking)
        result = comm_state(c);
    return comm_leave(c, FAULT_NONE, result);
}

/* A call that is a group of its own: rule 4. */
static int enqueue_message(const char *call, struct operation as)
{
    int result, ended;

    if (!rule_message_returns_early(standin_version()))
        return enqueue_operation(call, as);
    group_begin();
    result = enqueue_operation(call, as);
    ended = group_finish();
    return ended != NCCL_OK && ended != NCCL_IN_PROGRESS ? ended : result;
}

/* With the arguments that all calls have. */
#define OPERATION(...)                                                                 \
    (struct operation)                                                                 \
    {                                                                                  \
        .task.comm = c, .stream = (cudaStream_t)stream, __VA_ARGS__                    \
    }

COMM_API int ncclAllReduce(const void *in, void *out, size_t count, int type, int op,
                           struct nccl_comm *c, struct gpu_stream *stream)
{
    return enqueue_operation("ncclAllReduce",
                             OPERATION(.kind = ALL_REDUCE, .in = in, .out = out,
                                       .count = count, .type = type, .op = op));
}

COMM_API int ncclBroadcast(const void *in, void *out, size_t count, int type, int root,
                           struct nccl_comm *c, struct gpu_stream *stream)
{
    return enqueue_operation("ncclBroadcast",
                             OPERATION(.kind = BROADCAST, .in = in, .out = out,
                                       .count = count, .type = type, .peer = root));
}

COMM_API int ncclReduceScatter(const void *in, void *out, size_t count, int type,
                               int op, struct nccl_comm *c, struct gpu_stream *stream)
{
    return enqueue_operation("ncclReduceScatter",
                             OPERATION(.kind = REDUCE_SCATTER, .in = in, .out = out,
                                       .count = count, .type = type, .op = op));
}

COMM_API int ncclAllGather(const void *in, void *out, size_t count, int type,
                           struct nccl_comm *c, struct gpu_stream *stream)
{
    return enqueue_operation("ncclAllGather",
                             OPERATION(.kind = ALL_GATHER, .in = in, .out = out,
                                       .count = count, .type = type));
}

COMM_API int ncclSend(const void *in, size_t count, int type, int peer,
                      struct nccl_comm *c, struct gpu_stream *stream)
{
    return enqueue_message("ncclSend", OPERATION(.kind = SEND, .in = in, .count = count,
                                                 .type = type, .peer = peer));
}

COMM_API int ncclRecv(void *out, size_t count, int type, int peer, struct nccl_comm *c,
                      struct gpu_stream *stream)
{
    return enqueue_message("ncclRecv",
                           OPERATION(.kind = RECEIVE, .out = out, .count = count,
                                     .type = type, .peer = peer));
}
