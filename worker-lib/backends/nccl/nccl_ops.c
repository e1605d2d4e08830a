/* SPDX-License-Identifier: MIT */
/* Operations as calls of NCCL, in the communication thread. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/base/clock.h"
#include "worker-lib/backends/nccl/backend_nccl.h"
#include "worker-lib/engine/flight_recorder.h"

#define LOOK_MS 5
#define SIGNATURE_SIZE 160

static const int types[CRUN_DTYPE_COUNT] = {
    [CRUN_F32] = NCCL_F32,   [CRUN_F64] = NCCL_F64, [CRUN_F16] = NCCL_F16,
    [CRUN_BF16] = NCCL_BF16, [CRUN_I32] = NCCL_I32, [CRUN_I64] = NCCL_I64,
    [CRUN_U8] = NCCL_U8,
};

static const int operations[CRUN_OP_COUNT] = {
    [CRUN_SUM] = NCCL_SUM, [CRUN_MEAN] = NCCL_MEAN,       [CRUN_MIN] = NCCL_MIN,
    [CRUN_MAX] = NCCL_MAX, [CRUN_PRODUCT] = NCCL_PRODUCT,
};

/* -- comparing calls --------------------------------------------------------------- */

/* With CRUN_CHECK=1 each rank compares its call with rank 0's, which is in the store,
 * before it makes the call: otherwise NCCL would hang, or add unrelated data. */
static crun_status compare_calls(struct nccl *n, const struct op *op, const char *key,
                                 const char *mine, struct err *e)
{
    char text[SIGNATURE_SIZE] = "";
    size_t size = sizeof(text) - 1;
    uint64_t until = clock_ms() + op->timeout_ms;
    unsigned turn = 0;
    crun_status s = CRUN_OK;

    while (s == CRUN_OK && store_client_has(n->team.store, key, until) == 0) {
        usleep(LOOK_MS * 1000);
        s = nccl_pause(n, &turn, e);
    }
    if (s == CRUN_OK)
        s = store_client_get(n->team.store, key, text, &size, until, e);
    if (s == CRUN_OK && strcmp(text, mine) != 0) {
        err_set(e, "ranks call different things: rank %u %s, rank %u %s",
                n->team.world_rank[n->team.rank], mine, n->team.world_rank[0], text);
        return CRUN_MISMATCH;
    }
    return s;
}

static crun_status check_calls(struct nccl *n, const struct op *op, struct err *e)
{
    char mine[SIGNATURE_SIZE], key[460];

    if (!n->check || n->team.size == 1 || op->kind == OP_SEND || op->kind == OP_RECEIVE)
        return CRUN_OK;
    op_describe(op, n->team.world_rank, mine, sizeof(mine));
    snprintf(key, sizeof(key), "%snccl-call/%llu", n->team.prefix,
             (unsigned long long)op->sequence);
    if (n->team.rank == 0)
        return store_client_set(n->team.store, key, mine, strlen(mine),
                                clock_ms() + op->timeout_ms, e);
    return compare_calls(n, op, key, mine, e);
}

/* -- calls ------------------------------------------------------------------------- */

/* NCCL multiplies by 1 / n in the element's type: bf16 has no 1 / 3, so the mean would
 * be wrong. */
static bool divides_later(const struct nccl *n, const struct op *op)
{
    bool half = op->type == CRUN_F16 || op->type == CRUN_BF16;

    return op->op == CRUN_MEAN && half && (n->team.size & (n->team.size - 1)) != 0;
}

static crun_status exchange_parts(struct nccl *n, const struct op *op, struct err *e)
{
    size_t bytes = op->count * crun_dtype_size(op->type);
    const struct nccl_calls *c = n->gpu.nccl;
    struct nccl_comm *comm = atomic_load(&n->comm);
    crun_status s = NCCL_CALL(n, "ncclGroupStart", c->group_start());

    for (unsigned p = 0; p < n->team.size && s == CRUN_OK; p++) {
        nccl_enter(n, "ncclSend");
        s = nccl_settle_in_group(n, "ncclSend",
                                 c->send((const char *)op->in + p * bytes, op->count,
                                         types[op->type], (int)p, comm, n->stream),
                                 e);
        if (s != CRUN_OK)
            break;
        nccl_enter(n, "ncclRecv");
        s = nccl_settle_in_group(n, "ncclRecv",
                                 c->recv((char *)op->out + p * bytes, op->count,
                                         types[op->type], (int)p, comm, n->stream),
                                 e);
    }
    if (s != CRUN_OK)
        return s; /* the end of this communicator, and of the group with it */
    return NCCL_CALL(n, "ncclGroupEnd", c->group_end());
}

static crun_status launch_all_reduce(struct nccl *n, const struct op *op, int as,
                                     struct err *e)
{
    return NCCL_CALL(n, "ncclAllReduce",
                     n->gpu.nccl->all_reduce(op->in, op->out, op->count,
                                             types[op->type], as, atomic_load(&n->comm),
                                             n->stream));
}

static crun_status launch_call(struct nccl *n, const struct op *op, struct err *e)
{
    const struct nccl_calls *c = n->gpu.nccl;
    struct nccl_comm *comm = atomic_load(&n->comm);
    int type = types[op->type], peer = op->peer;
    int as = divides_later(n, op) ? NCCL_SUM : operations[op->op];

    switch (op->kind) {
    case OP_ALL_REDUCE:
    case OP_BARRIER:
        return launch_all_reduce(n, op, as, e);
    case OP_BROADCAST:
        return NCCL_CALL(
            n, "ncclBroadcast",
            c->broadcast(op->in, op->out, op->count, type, peer, comm, n->stream));
    case OP_REDUCE_SCATTER:
        return NCCL_CALL(
            n, "ncclReduceScatter",
            c->reduce_scatter(op->in, op->out, op->count, type, as, comm, n->stream));
    case OP_ALL_GATHER:
        return NCCL_CALL(
            n, "ncclAllGather",
            c->all_gather(op->in, op->out, op->count, type, comm, n->stream));
    case OP_SEND:
        return NCCL_CALL(n, "ncclSend",
                         c->send(op->in, op->count, type, peer, comm, n->stream));
    case OP_RECEIVE:
        return NCCL_CALL(n, "ncclRecv",
                         c->recv(op->out, op->count, type, peer, comm, n->stream));
    default:
        return exchange_parts(n, op, e);
    }
}

/* Into our stream, between the two events. */
static crun_status launch_op(struct nccl *n, struct nccl_work *w, const struct op *op,
                             struct err *e)
{
    const struct gpu_calls *cuda = n->gpu.cuda;
    int code = cuda->event_record(w->begun, n->stream);
    crun_status s = CRUN_OK;

    if (code != GPU_OK)
        return gpu_calls_failed(n->gpu.cuda, "cudaEventRecord", code, e);
    if (op->count > 0)
        s = launch_call(n, op, e);
    if (s == CRUN_OK && op->count > 0 && divides_later(n, op)) {
        code = cuda->divide(op->out, op->count, op->type, n->team.size, n->stream);
        if (code != GPU_OK)
            return gpu_calls_failed(n->gpu.cuda, "dividing", code, e);
    }
    if (s == CRUN_OK) {
        code = cuda->event_record(w->done, n->stream);
        if (code != GPU_OK)
            return gpu_calls_failed(n->gpu.cuda, "cudaEventRecord", code, e);
    }
    return s;
}

/* -- the host's memory ------------------------------------------------------------- */

/* How many elements an operation reads and writes here. */
static size_t in_count(const struct nccl *n, const struct op *op)
{
    bool many = op->kind == OP_REDUCE_SCATTER || op->kind == OP_ALL_TO_ALL;

    return op->kind == OP_RECEIVE ? 0 : op->count * (many ? n->team.size : 1);
}

static size_t out_count(const struct nccl *n, const struct op *op)
{
    bool many = op->kind == OP_ALL_GATHER || op->kind == OP_ALL_TO_ALL;

    return op->kind == OP_SEND ? 0 : op->count * (many ? n->team.size : 1);
}

static crun_status is_host(struct nccl *n, const void *memory, size_t count, bool *host,
                           struct err *e)
{
    bool device = false;
    int code = count ? n->gpu.cuda->on_device(memory, &device) : GPU_OK;

    *host = count > 0 && !device;
    return code == GPU_OK
               ? CRUN_OK
               : gpu_calls_failed(n->gpu.cuda, "cudaPointerGetAttributes", code, e);
}

/* Host memory is copied to the GPU first, into `op`, and back at the end. */
static crun_status copy_in(struct nccl *n, struct op *op, void **back, struct err *e)
{
    size_t item = crun_dtype_size(op->type), ins = in_count(n, op) * item;
    size_t outs = out_count(n, op) * item;
    bool host_in, host_out;
    void *memory = NULL;
    crun_status s = is_host(n, op->in, ins, &host_in, e);
    int code = GPU_OK;

    *back = NULL;
    if (s == CRUN_OK)
        s = is_host(n, op->out, outs, &host_out, e);
    if (s == CRUN_OK && host_in) {
        s = nccl_stage(n, 0, ins, &memory, e);
        if (s == CRUN_OK)
            code = n->gpu.cuda->copy(memory, op->in, ins, n->stream);
        op->in = memory;
    }
    if (s == CRUN_OK && host_out) {
        *back = op->out;
        s = nccl_stage(n, 1, outs, &op->out, e);
    }
    return code == GPU_OK ? s
                          : gpu_calls_failed(n->gpu.cuda, "cudaMemcpyAsync", code, e);
}

static crun_status copy_out(struct nccl *n, struct nccl_work *w, const struct op *op,
                            void *back, struct err *e)
{
    size_t bytes = out_count(n, op) * crun_dtype_size(op->type);
    int code = n->gpu.cuda->copy(back, op->out, bytes, n->stream);

    if (code == GPU_OK)
        code = n->gpu.cuda->event_record(w->done, n->stream);
    if (code != GPU_OK)
        return gpu_calls_failed(n->gpu.cuda, "cudaMemcpyAsync", code, e);
    return nccl_await(n, w->done, e);
}

/* A copy from the host's memory may block in CUDA until the stream has reached it, so
 * the stream must be empty, and this thread waits for that. */
static crun_status run_staged(struct nccl *n, struct nccl_work *w, struct op *op,
                              struct err *e)
{
    void *back = NULL;
    crun_status s;

    atomic_store(&w->running_ms, 0); /* earlier work has its own time limit */
    s = nccl_idle(n, e);
    if (s == CRUN_OK && w->task == TASK_OPERATION && w->device)
        s = nccl_await(n, w->ready, e);
    atomic_store(&w->running_ms, clock_ms());
    if (s == CRUN_OK)
        s = copy_in(n, op, &back, e);
    if (s == CRUN_OK)
        s = launch_op(n, w, op, e);
    if (s == CRUN_OK)
        s = nccl_await(n, w->done, e);
    if (s == CRUN_OK && back)
        s = copy_out(n, w, op, back, e);
    return s;
}

/* A barrier has no data: an all-reduce of one element makes all ranks wait for each
 * other. */
static crun_status prepare_barrier(struct nccl *n, struct op *op, struct err *e)
{
    void *memory = NULL;
    crun_status s = nccl_stage(n, 0, sizeof(float), &memory, e);

    op->in = op->out = memory;
    op->type = CRUN_F32;
    op->op = CRUN_SUM;
    op->count = 1;
    return s;
}

crun_status nccl_run(struct nccl *n, struct nccl_work *w, struct err *e)
{
    struct op op = w->op;
    bool barrier = op.kind == OP_BARRIER;
    crun_status s = CRUN_OK;
    int code = GPU_OK;

    atomic_store(&w->running_ms, clock_ms());
    if (n->team.flight && w->task == TASK_OPERATION)
        w->entry = flight_recorder_begin(n->team.flight, &op, clock_us());
    if (w->task == TASK_OPERATION) {
        s = check_calls(n, &op, e);
        if (s == CRUN_OK && !w->host)
            code = n->gpu.cuda->stream_wait(n->stream, w->ready);
    }
    if (code != GPU_OK)
        return gpu_calls_failed(n->gpu.cuda, "cudaStreamWaitEvent", code, e);
    if (s == CRUN_OK && barrier)
        s = prepare_barrier(n, &op, e);
    if (s != CRUN_OK)
        return s;
    return w->host ? run_staged(n, w, &op, e) : launch_op(n, w, &op, e);
}
