/* SPDX-License-Identifier: MIT */
/* Operations as calls of NCCL, in the communication thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/bytes.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/text.h"
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
    char text[SIGNATURE_SIZE] = "", its[SIGNATURE_SIZE];
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
    if (s == CRUN_BAD_ARGUMENT) /* rank 0's is too long to be a call */
        return CRUN_MISMATCH;
    if (s == CRUN_OK && strcmp(text, mine) != 0) {
        err_set(e, "ranks call different things: rank %u %s, rank %u %s",
                n->team.world_rank[n->team.rank], mine, n->team.world_rank[0],
                text_printable(text, its, sizeof(its)));
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

/* One operation in NCCL: a member of a group, or the only one. */
struct nccl_member {
    struct op op;
    size_t ins, outs; /* bytes of its buffers in host memory, */
    void *back;       /* and where its result is copied to */
};

struct nccl_launch {
    struct nccl_member *member;
    unsigned count;
    bool grouped; /* between ncclGroupStart and ncclGroupEnd */
};

static crun_status settle_call(struct nccl *n, bool grouped, const char *call,
                               int result, struct err *e)
{
    return grouped ? nccl_settle_in_group(n, call, result, e)
                   : nccl_settle(n, call, result, e);
}

#define LAUNCH_CALL(n, name, call)                                                     \
    settle_call(n, grouped, name,                                                      \
                nccl_enter_comm(n, name) ? (call) : NCCL_IN_PROGRESS, e)

/* An all_to_all, as messages between ncclGroupStart and ncclGroupEnd. */
static crun_status exchange_parts(struct nccl *n, const struct op *op, struct err *e)
{
    size_t bytes = op->count * crun_dtype_size(op->type);
    const struct nccl_calls *c = n->gpu.nccl;
    struct nccl_comm *comm = atomic_load(&n->comm);
    const bool grouped = true;
    crun_status s = CRUN_OK;

    for (unsigned p = 0; p < n->team.size && s == CRUN_OK; p++) {
        s = LAUNCH_CALL(n, "ncclSend",
                        c->send((const char *)op->in + p * bytes, op->count,
                                types[op->type], (int)p, comm, n->stream));
        if (s == CRUN_OK)
            s = LAUNCH_CALL(n, "ncclRecv",
                            c->recv((char *)op->out + p * bytes, op->count,
                                    types[op->type], (int)p, comm, n->stream));
    }
    return s;
}

static crun_status launch_all_reduce(struct nccl *n, const struct op *op, int as,
                                     bool grouped, struct err *e)
{
    return LAUNCH_CALL(n, "ncclAllReduce",
                       n->gpu.nccl->all_reduce(op->in, op->out, op->count,
                                               types[op->type], as,
                                               atomic_load(&n->comm), n->stream));
}

static crun_status launch_call(struct nccl *n, const struct op *op, bool grouped,
                               struct err *e)
{
    const struct nccl_calls *c = n->gpu.nccl;
    struct nccl_comm *comm = atomic_load(&n->comm);
    int type = types[op->type], peer = op->peer;
    int as = divides_later(n, op) ? NCCL_SUM : operations[op->op];

    switch (op->kind) {
    case OP_ALL_REDUCE:
    case OP_BARRIER:
        return launch_all_reduce(n, op, as, grouped, e);
    case OP_BROADCAST:
        return LAUNCH_CALL(
            n, "ncclBroadcast",
            c->broadcast(op->in, op->out, op->count, type, peer, comm, n->stream));
    case OP_REDUCE_SCATTER:
        return LAUNCH_CALL(
            n, "ncclReduceScatter",
            c->reduce_scatter(op->in, op->out, op->count, type, as, comm, n->stream));
    case OP_ALL_GATHER:
        return LAUNCH_CALL(
            n, "ncclAllGather",
            c->all_gather(op->in, op->out, op->count, type, comm, n->stream));
    case OP_SEND:
        return LAUNCH_CALL(n, "ncclSend",
                           c->send(op->in, op->count, type, peer, comm, n->stream));
    case OP_RECEIVE:
        return LAUNCH_CALL(n, "ncclRecv",
                           c->recv(op->out, op->count, type, peer, comm, n->stream));
    default:
        return exchange_parts(n, op, e);
    }
}

static crun_status launch_members(struct nccl *n, const struct nccl_launch *l,
                                  struct err *e)
{
    const struct nccl_calls *c = n->gpu.nccl;
    crun_status s = l->grouped ? NCCL_CALL(n, "ncclGroupStart", c->group_start())
                               : CRUN_OK;

    for (unsigned i = 0; i < l->count && s == CRUN_OK; i++)
        if (l->member[i].op.count > 0)
            s = launch_call(n, &l->member[i].op, l->grouped, e);
    if (s != CRUN_OK || !l->grouped)
        return s; /* a failure ends this communicator, and the group with it */
    return NCCL_CALL(n, "ncclGroupEnd", c->group_end());
}

static crun_status divide_sums(struct nccl *n, const struct nccl_launch *l,
                               struct err *e)
{
    crun_status s = CRUN_OK;

    for (unsigned i = 0; i < l->count && s == CRUN_OK; i++) {
        const struct op *op = &l->member[i].op;

        if (op->count > 0 && divides_later(n, op))
            s = GPU_CALL(n, "dividing",
                         n->gpu.cuda->divide(op->out, op->count, op->type, n->team.size,
                                             n->stream));
    }
    return s;
}

/* Operations of all worlds are launched in the order of their calls; those of crun_init
 * and crun_alloc have no turn. */
static crun_status await_turn(struct nccl *n, struct nccl_work *w, struct err *e)
{
    struct gpu_event *previous;
    crun_status s = CRUN_OK;
    unsigned turn = 0;

    atomic_store(&w->is_behind, true);
    while (s == CRUN_OK && !nccl_turn_has_come(n->line, &w->turn))
        s = nccl_pause(n, &turn, e);
    atomic_store(&w->is_behind, false);
    previous = s == CRUN_OK ? nccl_turn_previous(n->line, &w->turn, n) : NULL;
    return previous ? GPU_CALL(n, "cudaStreamWaitEvent",
                               n->gpu.cuda->stream_wait(n->stream, previous))
                    : s;
}

/* Queues it in our stream, between the two events. */
static crun_status launch_work(struct nccl *n, struct nccl_work *w,
                               const struct nccl_launch *l, struct err *e)
{
    const struct gpu_calls *cuda = n->gpu.cuda;
    crun_status s = await_turn(n, w, e);

    if (s == CRUN_OK && w->begun)
        s = GPU_CALL(n, "cudaEventRecord", cuda->event_record(w->begun, n->stream));
    if (s == CRUN_OK)
        s = launch_members(n, l, e);
    if (s == CRUN_OK)
        s = divide_sums(n, l, e);
    if (s == CRUN_OK)
        s = GPU_CALL(n, "cudaEventRecord", cuda->event_record(w->done, n->stream));
    nccl_turn_give_back(n->line, &w->turn, n, s == CRUN_OK ? w->done : NULL);
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
    crun_status s = CRUN_OK;

    if (count > 0)
        s = GPU_CALL(n, "cudaPointerGetAttributes",
                     n->gpu.cuda->on_device(memory, &device));
    *host = count > 0 && !device;
    return s;
}

#define STAGE_ALIGNMENT 256

static size_t stage_room(size_t bytes)
{
    return bytes_round_up(bytes, STAGE_ALIGNMENT);
}

/* A barrier has no data: an all-reduce of one element makes all ranks wait for each
 * other. */
static crun_status measure_member(struct nccl *n, struct nccl_member *m, struct err *e)
{
    struct op *op = &m->op;
    size_t item = crun_dtype_size(op->type);
    bool host_in = false, host_out = false;
    crun_status s;

    if (op->kind == OP_BARRIER) {
        m->ins = sizeof(float);
        return CRUN_OK;
    }
    s = is_host(n, op->in, in_count(n, op), &host_in, e);
    if (s == CRUN_OK)
        s = is_host(n, op->out, out_count(n, op), &host_out, e);
    m->ins = host_in ? in_count(n, op) * item : 0;
    m->outs = host_out ? out_count(n, op) * item : 0;
    return s;
}

/* Host memory is copied to the GPU first, to these parts of the staging buffers. */
static crun_status copy_in(struct nccl *n, struct nccl_member *m, char *in, char *out,
                           struct err *e)
{
    struct op *op = &m->op;
    crun_status s = CRUN_OK;

    if (op->kind == OP_BARRIER) {
        *op = (struct op){ .kind = OP_ALL_REDUCE,
                           .type = CRUN_F32,
                           .op = CRUN_SUM,
                           .in = in,
                           .out = in,
                           .count = 1 };
        return CRUN_OK;
    }
    if (m->ins) {
        s = GPU_CALL(n, "cudaMemcpyAsync",
                     n->gpu.cuda->copy(in, op->in, m->ins, n->stream));
        op->in = in;
    }
    if (m->outs) {
        m->back = op->out;
        op->out = out;
    }
    return s;
}

static crun_status copy_all_in(struct nccl *n, const struct nccl_launch *l,
                               struct err *e)
{
    size_t ins = 0, outs = 0;
    void *in = NULL, *out = NULL;
    crun_status s = CRUN_OK;

    for (unsigned i = 0; i < l->count && s == CRUN_OK; i++) {
        s = measure_member(n, &l->member[i], e);
        ins += stage_room(l->member[i].ins);
        outs += stage_room(l->member[i].outs);
    }
    if (s == CRUN_OK && ins)
        s = nccl_stage(n, 0, ins, &in, e);
    if (s == CRUN_OK && outs)
        s = nccl_stage(n, 1, outs, &out, e);
    ins = outs = 0;
    for (unsigned i = 0; i < l->count && s == CRUN_OK; i++) {
        struct nccl_member *m = &l->member[i];

        s = copy_in(n, m, (char *)in + ins, (char *)out + outs, e);
        ins += stage_room(m->ins);
        outs += stage_room(m->outs);
    }
    return s;
}

static crun_status copy_all_out(struct nccl *n, struct nccl_work *w,
                                const struct nccl_launch *l, struct err *e)
{
    const struct gpu_calls *cuda = n->gpu.cuda;
    crun_status s = CRUN_OK;
    bool any = false;

    for (unsigned i = 0; i < l->count && s == CRUN_OK; i++) {
        const struct nccl_member *m = &l->member[i];

        if (m->back)
            s = GPU_CALL(n, "cudaMemcpyAsync",
                         cuda->copy(m->back, m->op.out, m->outs, n->stream));
        any |= m->back != NULL;
    }
    if (s == CRUN_OK && any)
        s = GPU_CALL(n, "cudaEventRecord", cuda->event_record(w->done, n->stream));
    return s == CRUN_OK && any ? nccl_await(n, w->done, e) : s;
}

/* A copy from the host's memory may block in CUDA until the stream has reached it, so
 * the stream must be empty, and this thread waits for that. */
static crun_status run_staged(struct nccl *n, struct nccl_work *w,
                              const struct nccl_launch *l, struct err *e)
{
    crun_status s;

    atomic_store(&w->is_behind, true);
    s = nccl_idle(n, e);
    if (s == CRUN_OK && w->task == TASK_OPERATION && w->device)
        s = nccl_await(n, w->ready, e);
    atomic_store(&w->is_behind, false);
    atomic_store(&w->running_ms, clock_ms());
    if (s == CRUN_OK)
        s = copy_all_in(n, l, e);
    if (s == CRUN_OK)
        s = launch_work(n, w, l, e);
    if (s == CRUN_OK)
        s = nccl_await(n, w->done, e);
    return s == CRUN_OK ? copy_all_out(n, w, l, e) : s;
}

static crun_status run_members(struct nccl *n, struct nccl_work *w,
                               const struct nccl_launch *l, struct err *e)
{
    crun_status s = CRUN_OK;

    for (unsigned i = 0; i < l->count; i++)
        l->member[i] = (struct nccl_member){ .op = op_member(&w->op, i) };
    if (w->task == TASK_OPERATION) {
        for (unsigned i = 0; i < l->count && s == CRUN_OK; i++)
            s = check_calls(n, &l->member[i].op, e);
        if (s == CRUN_OK && !w->host)
            s = GPU_CALL(n, "cudaStreamWaitEvent",
                         n->gpu.cuda->stream_wait(n->stream, w->ready));
    }
    if (s != CRUN_OK)
        return s;
    return w->host ? run_staged(n, w, l, e) : launch_work(n, w, l, e);
}

crun_status nccl_run(struct nccl *n, struct nccl_work *w, struct err *e)
{
    bool grouped = w->op.kind == OP_GROUP;
    struct nccl_member only;
    struct nccl_launch l = { &only, op_members(&w->op),
                             grouped || w->op.kind == OP_ALL_TO_ALL };
    crun_status s;

    atomic_store(&w->running_ms, clock_ms());
    if (n->team.flight && w->task == TASK_OPERATION)
        w->entry = flight_recorder_begin(n->team.flight, &w->op, clock_us());
    if (grouped)
        l.member = calloc(l.count + 1, sizeof(*l.member));
    if (!l.member) {
        err_set(e, "no memory for a group of %u", l.count);
        return CRUN_NO_MEMORY;
    }
    s = run_members(n, w, &l, e);
    if (grouped)
        free(l.member);
    return s;
}
