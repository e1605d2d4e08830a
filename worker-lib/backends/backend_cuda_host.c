/* SPDX-License-Identifier: MIT */
/*
 * For GPUs without NCCL, and for ranks that share a GPU: data on a GPU is copied to
 * pinned memory of the host, where another backend (shm within a node) runs the
 * operation. The data is copied in chunks, through two slots in turn: while the
 * operation runs on one chunk, the next chunk is copied from the GPU and the previous
 * one is copied back.
 *
 * An operation waits for the work in the program's stream at the time of the call. It
 * is over when its result is back on the GPU.
 */
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/clock.h"
#include "worker-lib/backends/backend_select.h"
#include "worker-lib/device/gpu_calls.h"

#define CHUNK_BYTES ((size_t)4 << 20) /* of a slot, for all ranks' parts */
#define SLOTS 2
#define DEVICES_MAX 1024

struct cuda_slot {
    char *in, *out; /* pinned; of the inner backend */
    struct gpu_event *come;
};

struct cuda_host {
    struct backend backend;
    struct team team;
    struct backend *inner;
    const struct gpu_calls *gpu;
    struct gpu_stream *copying;
    struct cuda_slot slot[SLOTS];
};

static struct cuda_host *cuda_host_of(struct backend *b)
{
    return (struct cuda_host *)(void *)b;
}

static crun_status check_gpu(struct cuda_host *h, int code, const char *call,
                             struct err *e)
{
    return code == GPU_OK ? CRUN_OK : gpu_calls_failed(h->gpu, call, code, e);
}

/* -- marks ------------------------------------------------------------------------- */

/* An event for each operation that was called and has not begun. Creating one is cheap;
 * it is destroyed when it has been waited for. */
static crun_status mark_cuda_host(struct backend *b, struct op *op, struct err *e)
{
    struct cuda_host *h = cuda_host_of(b);
    struct gpu_event *event;
    crun_status s = check_gpu(h, h->gpu->set_device(h->backend.device), "cudaSetDevice",
                              e);

    if (s == CRUN_OK)
        s = check_gpu(h, h->gpu->event_create_untimed(&event), "cudaEventCreate", e);
    if (s != CRUN_OK)
        return s;
    op->mark = event;
    return check_gpu(h, h->gpu->event_record(event, h->backend.stream),
                     "cudaEventRecord", e);
}

static crun_status await_mark(struct cuda_host *h, const struct op *op, struct err *e)
{
    struct gpu_event *event = op->mark;
    crun_status s = CRUN_OK;

    if (!event)
        return CRUN_OK;
    s = check_gpu(h, h->gpu->stream_wait(h->copying, event), "cudaStreamWaitEvent", e);
    (void)h->gpu->event_destroy(event);
    return s;
}

/* -- an operation in chunks -------------------------------------------------------- */

/* How many parts of `count` elements an operation reads and writes. */
struct parts {
    unsigned in, out;
};

static struct parts parts_of(const struct cuda_host *h, enum op_kind kind)
{
    unsigned size = h->team.size;
    bool splits = kind == OP_REDUCE_SCATTER || kind == OP_ALL_TO_ALL;
    bool joins = kind == OP_ALL_GATHER || kind == OP_ALL_TO_ALL;
    bool one_way = kind == OP_SEND || kind == OP_RECEIVE;

    return (struct parts){ one_way && kind == OP_RECEIVE ? 0
                           : splits                      ? size
                                                         : 1,
                           one_way && kind == OP_SEND ? 0
                           : joins                    ? size
                                                      : 1 };
}

/* An operation on the GPU's memory, and its division into chunks. */
struct chunked_op {
    const struct op *op;
    struct parts parts;
    size_t element, most; /* elements of a part in a chunk */
};

static crun_status fetch_chunk(struct cuda_host *h, const struct chunked_op *j,
                               size_t at, size_t n, struct cuda_slot *slot,
                               struct err *e)
{
    const char *from = j->op->in;
    int code = GPU_OK;

    for (unsigned p = 0; p < j->parts.in && code == GPU_OK; p++)
        code = h->gpu->copy(slot->in + p * n * j->element,
                            from + (p * j->op->count + at) * j->element, n * j->element,
                            h->copying);
    if (code == GPU_OK)
        code = h->gpu->event_record(slot->come, h->copying);
    return check_gpu(h, code, "cudaMemcpy", e);
}

static crun_status return_chunk(struct cuda_host *h, const struct chunked_op *j,
                                size_t at, size_t n, const char *from, struct err *e)
{
    char *to = j->op->out;
    int code = GPU_OK;

    for (unsigned p = 0; p < j->parts.out && code == GPU_OK; p++)
        code = h->gpu->copy(to + (p * j->op->count + at) * j->element,
                            from + p * n * j->element, n * j->element, h->copying);
    return check_gpu(h, code, "cudaMemcpy", e);
}

static crun_status run_chunk(struct cuda_host *h, const struct chunked_op *j, size_t n,
                             struct cuda_slot *slot, struct err *e)
{
    bool in_place = j->op->kind == OP_ALL_REDUCE || j->op->kind == OP_BROADCAST;
    struct op op = *j->op;
    crun_status s = check_gpu(h, h->gpu->event_sync(slot->come), "the GPU", e);

    op.mark = NULL;
    op.count = n;
    op.in = j->parts.in ? slot->in : NULL;
    op.out = !j->parts.out ? NULL : in_place ? slot->in : slot->out;
    return s == CRUN_OK ? h->inner->calls->run(h->inner, &op, e) : s;
}

static crun_status run_chunks(struct cuda_host *h, const struct chunked_op *j,
                              struct err *e)
{
    size_t count = j->op->count, most = j->most;
    crun_status s = fetch_chunk(h, j, 0, count < most ? count : most, &h->slot[0], e);
    bool in_place = j->op->kind == OP_ALL_REDUCE || j->op->kind == OP_BROADCAST;
    unsigned turn = 0;

    for (size_t at = 0; s == CRUN_OK && at < count; at += most, turn = !turn) {
        struct cuda_slot *slot = &h->slot[turn];
        size_t n = count - at < most ? count - at : most, next = at + n;

        if (next < count)
            s = fetch_chunk(h, j, next, count - next < most ? count - next : most,
                            &h->slot[!turn], e);
        if (s == CRUN_OK)
            s = run_chunk(h, j, n, slot, e);
        if (s == CRUN_OK)
            s = return_chunk(h, j, at, n, in_place ? slot->in : slot->out, e);
    }
    if (s == CRUN_OK)
        s = check_gpu(h, h->gpu->stream_sync(h->copying), "the GPU", e);
    return s;
}

static bool is_on_device(const struct cuda_host *h, const void *memory)
{
    bool device = false;

    return memory && h->gpu->on_device(memory, &device) == GPU_OK && device;
}

/* -- messages ---------------------------------------------------------------------- */

/* The chunks of a message, as the other rank makes them, too. `stage` (NULL: the data
 * stays where it is) is the host's memory for it. */
static bool add_chunks(struct op_group *to, const struct op *op, char *stage)
{
    size_t element = crun_dtype_size(op->type), most = CHUNK_BYTES / element, at = 0;

    do {
        struct op chunk = *op;

        chunk.count = op->count - at < most ? op->count - at : most;
        if (op->kind == OP_SEND)
            chunk.in = (stage ? stage : (const char *)op->in) + at * element;
        else
            chunk.out = (stage ? stage : (char *)op->out) + at * element;
        if (!op_group_add(to, &chunk))
            return false;
        at += chunk.count;
    } while (at < op->count);
    return true;
}

struct staged_message {
    const struct op *op;
    char *memory; /* NULL: its buffer is the host's */
};

static size_t message_bytes(const struct op *op)
{
    return op->count * crun_dtype_size(op->type);
}

static crun_status stage_message(struct cuda_host *h, struct staged_message *m,
                                 struct op_group *chunks, struct err *e)
{
    const struct op *op = m->op;
    crun_status s = CRUN_OK;

    if (op->count > 0 && is_on_device(h, op->kind == OP_SEND ? op->in : op->out)) {
        m->memory = malloc(message_bytes(op));
        if (m->memory && op->kind == OP_SEND)
            s = check_gpu(
                h, h->gpu->copy(m->memory, op->in, message_bytes(op), h->copying),
                "cudaMemcpy", e);
        if (!m->memory)
            s = CRUN_NO_MEMORY;
    }
    if (s == CRUN_OK && !add_chunks(chunks, op, m->memory))
        s = CRUN_NO_MEMORY;
    if (s == CRUN_NO_MEMORY)
        err_set(e, "no memory for a message of %zu bytes", message_bytes(op));
    return s;
}

static crun_status exchange_staged(struct cuda_host *h, const struct op *op,
                                   struct staged_message *m, struct op_group *chunks,
                                   struct err *e)
{
    unsigned count = op_members(op);
    struct op inner = *op;
    crun_status s = CRUN_OK;

    for (unsigned i = 0; i < count && s == CRUN_OK; i++) {
        m[i].op = op_member_at(op, i);
        s = stage_message(h, &m[i], chunks, e);
    }
    inner.kind = OP_GROUP;
    inner.group = chunks;
    inner.mark = NULL;
    if (s == CRUN_OK)
        s = check_gpu(h, h->gpu->stream_sync(h->copying), "the GPU", e);
    if (s == CRUN_OK)
        s = h->inner->calls->run(h->inner, &inner, e);
    for (unsigned i = 0; i < count && s == CRUN_OK; i++)
        if (m[i].memory && m[i].op->kind == OP_RECEIVE)
            s = check_gpu(h,
                          h->gpu->copy(m[i].op->out, m[i].memory,
                                       message_bytes(m[i].op), h->copying),
                          "cudaMemcpy", e);
    return s == CRUN_OK ? check_gpu(h, h->gpu->stream_sync(h->copying), "the GPU", e)
                        : s;
}

/* All messages must be able to progress, so each has memory for all its data. */
static crun_status exchange_messages(struct cuda_host *h, const struct op *op,
                                     struct err *e)
{
    unsigned count = op_members(op);
    struct staged_message *m = calloc(count + 1, sizeof(*m));
    struct op_group chunks = { 0 };
    crun_status s;

    if (!m) {
        err_set(e, "no memory for %u messages", count);
        return CRUN_NO_MEMORY;
    }
    s = exchange_staged(h, op, m, &chunks, e);
    for (unsigned i = 0; i < count; i++)
        free(m[i].memory);
    free(m);
    free(chunks.member);
    return s;
}

/* -- running ----------------------------------------------------------------------- */

static crun_status run_cuda_host(struct backend *b, const struct op *op, struct err *e)
{
    struct cuda_host *h = cuda_host_of(b);
    struct parts parts = parts_of(h, op->kind);
    bool messages = op_is_message(op) || op->kind == OP_GROUP;
    unsigned widest = parts.in > parts.out ? parts.in : parts.out;
    size_t element = crun_dtype_size(op->type);
    struct chunked_op j = { op, parts, element, CHUNK_BYTES / element / widest };
    crun_status s = check_gpu(h, h->gpu->set_device(h->backend.device), "cudaSetDevice",
                              e);
    bool there = op->count > 0 && (is_on_device(h, op->in) || is_on_device(h, op->out));
    struct op plain = *op;

    if (s == CRUN_OK)
        s = await_mark(h, op, e);
    plain.mark = NULL;
    if (s == CRUN_OK && messages && !there)
        return exchange_messages(h, op, e);
    if (s == CRUN_OK && !there)
        return h->inner->calls->run(h->inner, &plain, e);
    return s == CRUN_OK ? run_chunks(h, &j, e) : s;
}

/* -- memory ------------------------------------------------------------------------ */

static crun_status alloc_cuda_host(struct backend *b, size_t bytes,
                                   uint64_t deadline_ms, void **memory, struct err *e)
{
    struct cuda_host *h = cuda_host_of(b);
    size_t whole = bytes ? bytes : 1;
    crun_status s = check_gpu(h, h->gpu->set_device(h->backend.device), "cudaSetDevice",
                              e);

    (void)deadline_ms;
    if (s == CRUN_OK)
        s = check_gpu(h, h->gpu->alloc(memory, whole), "cudaMalloc", e);
    if (s == CRUN_OK)
        s = check_gpu(h, h->gpu->zero(*memory, whole, h->copying), "cudaMemset", e);
    return s == CRUN_OK ? check_gpu(h, h->gpu->stream_sync(h->copying), "the GPU", e)
                        : s;
}

static bool free_cuda_host(struct backend *b, void *memory)
{
    struct cuda_host *h = cuda_host_of(b);

    if (!is_on_device(h, memory))
        return false;
    (void)h->gpu->free(memory);
    return true;
}

/* Shared with the ranks of this node, so that the inner backend needs no copy. */
static crun_status pin_slot(struct cuda_host *h, char **memory, uint64_t deadline_ms,
                            struct err *e)
{
    const struct backend_calls *inner = h->inner->calls;
    size_t bytes = CHUNK_BYTES + (size_t)h->team.size * 64;
    void *shared = NULL;
    crun_status s = inner->alloc(h->inner, bytes, deadline_ms, &shared, e);

    if (s == CRUN_OK && !shared)
        shared = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    *memory = shared;
    if (s == CRUN_OK && !shared) {
        err_set(e, "no memory");
        return CRUN_NO_MEMORY;
    }
    if (s == CRUN_OK)
        s = check_gpu(h, h->gpu->host_register(shared, bytes), "cudaHostRegister", e);
    return s;
}

static void unpin_slot(struct cuda_host *h, char *memory)
{
    if (!memory)
        return;
    (void)h->gpu->host_unregister(memory);
    if (!h->inner->calls->free(h->inner, memory))
        free(memory);
}

/* -- life -------------------------------------------------------------------------- */

static void abort_cuda_host(struct backend *b)
{
    struct cuda_host *h = cuda_host_of(b);

    h->inner->calls->abort(h->inner);
}

static void close_cuda_host(struct backend *b)
{
    struct cuda_host *h = cuda_host_of(b);

    for (unsigned i = 0; i < SLOTS && h->inner; i++) {
        unpin_slot(h, h->slot[i].in);
        unpin_slot(h, h->slot[i].out);
        if (h->slot[i].come)
            (void)h->gpu->event_destroy(h->slot[i].come);
    }
    if (h->copying)
        (void)h->gpu->stream_destroy(h->copying);
    if (h->inner)
        h->inner->calls->close(h->inner);
    free(h);
}

/* A GPU for each rank if there are enough; else ranks share them. */
static crun_status choose_device(struct cuda_host *h, struct err *e)
{
    const char *asked = h->team.device, *variable = getenv("CRUN_DEVICE");
    int count = 0;
    long number = h->team.local_rank;
    char *end = "";

    if (!h->gpu) {
        err_set(e, "backend cuda-host: this build is without CUDA");
        return CRUN_UNSUPPORTED;
    }
    if (h->gpu->count(&count) != GPU_OK || count < 1) {
        err_set(e, "backend cuda-host: there is no GPU on this machine, or no driver");
        return CRUN_UNSUPPORTED;
    }
    if (!asked || strcmp(asked, "auto") == 0)
        asked = variable && *variable ? variable : NULL;
    if (asked)
        number = strtol(asked, &end, 10);
    if (*end || number < 0 || (asked && number >= count)) {
        err_set(e, "\"%s\" is not the number of a GPU: there %s %d", asked,
                count == 1 ? "is" : "are", count);
        return CRUN_BAD_ARGUMENT;
    }
    h->backend.device = (int)(number % count);
    return check_gpu(h, h->gpu->set_device(h->backend.device), "cudaSetDevice", e);
}

static crun_status open_slots(struct cuda_host *h, uint64_t deadline_ms, struct err *e)
{
    crun_status s = check_gpu(h, h->gpu->stream_create_plain(&h->copying),
                              "cudaStreamCreate", e);

    for (unsigned i = 0; i < SLOTS && s == CRUN_OK; i++) {
        s = pin_slot(h, &h->slot[i].in, deadline_ms, e);
        if (s == CRUN_OK)
            s = pin_slot(h, &h->slot[i].out, deadline_ms, e);
        if (s == CRUN_OK)
            s = check_gpu(h, h->gpu->event_create_untimed(&h->slot[i].come),
                          "cudaEventCreate", e);
    }
    return s;
}

static crun_status open_cuda_host(struct backend **b, const struct team *team,
                                  uint64_t deadline_ms, struct err *e)
{
    struct cuda_host *h = calloc(1, sizeof(*h));
    crun_status s;

    if (!h) {
        err_set(e, "no memory");
        return CRUN_NO_MEMORY;
    }
    h->backend.calls = &backend_cuda_host;
    h->backend.has_device = true;
    h->gpu = gpu_calls_cuda();
    h->team = *team;
    s = choose_device(h, e);
    if (s == CRUN_OK)
        s = backend_for_hosts(team)->open(&h->inner, team, deadline_ms, e);
    if (s == CRUN_OK)
        s = open_slots(h, deadline_ms, e);
    if (s == CRUN_OK)
        *b = &h->backend;
    else
        close_cuda_host(&h->backend);
    return s;
}

const struct backend_calls backend_cuda_host = {
    .name = "cuda-host",
    .open = open_cuda_host,
    .run = run_cuda_host,
    .abort = abort_cuda_host,
    .alloc = alloc_cuda_host,
    .free = free_cuda_host,
    .close = close_cuda_host,
    .mark = mark_cuda_host,
};
