/* SPDX-License-Identifier: MIT */
/*
 * For GPUs without NCCL, and for ranks that share a GPU: data on a GPU is copied to
 * pinned memory of the host, where another backend (shm within a node) runs the
 * operation. The data is copied in chunks, through two slots in turn: while the
 * operation runs on one chunk, the next chunk is copied from the GPU and the previous
 * one is copied back.
 *
 * An operation waits for the work in the program's stream at the time of the call. It
 * is over when its result is back on the GPU. Waits for the GPU have the operation's
 * time limit. A copy by CUDA to memory that is not pinned has none, so such data goes
 * through the slots as well.
 */
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/clock.h"
#include "worker-lib/backends/backend_select.h"
#include "worker-lib/backends/gpu_watch.h"

#define CHUNK_BYTES ((size_t)4 << 20) /* of a slot, for all ranks' parts */
#define SLOTS 2
/* A rank that only waits for others reports later than one whose GPU hangs. */
#define LATER_MS 500

struct cuda_slot {
    char *in, *out; /* pinned; of the inner backend */
    struct gpu_event *come;
};

struct cuda_area { /* of crun_alloc */
    struct cuda_area *next;
    void *memory;
};

struct cuda_host {
    struct backend backend;
    struct team team;
    struct backend *inner;
    const struct gpu_calls *gpu;
    struct gpu_watch watch;
    struct gpu_stream *copying;
    struct gpu_event *copied; /* all that was queued in `copying` */
    struct cuda_slot slot[SLOTS];
    pthread_mutex_t lock; /* of the areas */
    struct cuda_area *areas;
};

static struct cuda_host *cuda_host_of(struct backend *b)
{
    return (struct cuda_host *)(void *)b;
}

#define HOST_CALL(h, name, call) WATCHED(&(h)->watch, name, call)

/* This thread uses the GPU of its rank, and does not disturb captures of streams. *mode
 * is for leave_gpu, also after a failure. */
static crun_status enter_gpu(struct cuda_host *h, int *mode, struct err *e)
{
    crun_status s = HOST_CALL(
        h, "cudaThreadExchangeStreamCaptureMode",
        (*mode = GPU_CAPTURE_RELAXED, h->gpu->exchange_capture_mode(mode)));

    return s == CRUN_OK
               ? HOST_CALL(h, "cudaSetDevice", h->gpu->set_device(h->backend.device))
               : s;
}

static void leave_gpu(struct cuda_host *h, int mode)
{
    (void)h->gpu->exchange_capture_mode(&mode);
}

/* -- waits ------------------------------------------------------------------------- */

/* `op`: NULL for crun_alloc. */
static crun_status await_event(struct cuda_host *h, struct gpu_event *event,
                               const struct op *op, uint64_t deadline_ms, struct err *e)
{
    uint64_t begun_ms = clock_ms();
    crun_status s = gpu_watch_await(&h->watch, event, deadline_ms, e);
    char what[160] = "crun_alloc";
    uint64_t waited_ms = op && op->timeout_ms ? op->timeout_ms : clock_ms() - begun_ms;

    if (s != CRUN_TIMEOUT || e->code == ERROR_ABORTED)
        return s;
    if (op)
        op_describe(op, h->team.world_rank, what, sizeof(what));
    err_wrap(e, "waited %.3g s in %s", (double)waited_ms / 1000, what);
    return s;
}

/* Waits until all copies are done. */
static crun_status await_copies(struct cuda_host *h, const struct op *op,
                                uint64_t deadline_ms, struct err *e)
{
    crun_status s = HOST_CALL(h, "cudaEventRecord",
                              h->gpu->event_record(h->copied, h->copying));

    return s == CRUN_OK ? await_event(h, h->copied, op, deadline_ms, e) : s;
}

/* The inner backend's part of an operation. */
static crun_status run_by_inner(struct cuda_host *h, struct op op, struct err *e)
{
    op.mark = NULL;
    op.deadline_ms += LATER_MS;
    return h->inner->calls->run(h->inner, &op, e);
}

/* -- marks ------------------------------------------------------------------------- */

/* An event for each operation that was called and has not begun. Creating one is cheap;
 * it is destroyed when it has been waited for. */
static crun_status mark_cuda_host(struct backend *b, struct op *op, struct err *e)
{
    struct cuda_host *h = cuda_host_of(b);
    struct gpu_event *event = NULL;
    crun_status s = HOST_CALL(h, "cudaSetDevice",
                              h->gpu->set_device(h->backend.device));

    if (s == CRUN_OK)
        s = gpu_calls_refuse_capture(h->gpu, h->backend.stream, op_call_name(op), e);
    if (s == CRUN_OK)
        s = HOST_CALL(h, "cudaEventCreate", h->gpu->event_create_untimed(&event));
    if (s == CRUN_OK)
        s = HOST_CALL(h, "cudaEventRecord",
                      h->gpu->event_record(event, h->backend.stream));
    if (s == CRUN_OK)
        op->mark = event;
    else if (event)
        (void)h->gpu->event_destroy(event);
    return s;
}

static crun_status await_mark(struct cuda_host *h, const struct op *op, struct err *e)
{
    struct gpu_event *event = op->mark;
    crun_status s = CRUN_OK;

    if (!event)
        return CRUN_OK;
    s = HOST_CALL(h, "cudaStreamWaitEvent", h->gpu->stream_wait(h->copying, event));
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

/* An operation on the GPU's memory, and its division into chunks. One of the buffers
 * may be the host's. */
struct chunked_op {
    const struct op *op;
    struct parts parts;
    size_t element, most;           /* elements of a part in a chunk */
    bool in_is_there, out_is_there; /* on the GPU */
};

static crun_status fetch_chunk(struct cuda_host *h, const struct chunked_op *j,
                               size_t at, size_t n, struct cuda_slot *slot,
                               struct err *e)
{
    /* earlier work may still fill the host's buffer, or read the slot */
    crun_status s = j->parts.in && !j->in_is_there
                        ? await_copies(h, j->op, j->op->deadline_ms, e)
                        : CRUN_OK;

    for (unsigned p = 0; p < j->parts.in && s == CRUN_OK; p++) {
        const char *from = (const char *)j->op->in +
                           (p * j->op->count + at) * j->element;
        char *to = slot->in + p * n * j->element;

        if (j->in_is_there)
            s = HOST_CALL(h, "cudaMemcpyAsync",
                          h->gpu->copy(to, from, n * j->element, h->copying));
        else
            memcpy(to, from, n * j->element);
    }
    return s == CRUN_OK ? HOST_CALL(h, "cudaEventRecord",
                                    h->gpu->event_record(slot->come, h->copying))
                        : s;
}

static crun_status return_chunk(struct cuda_host *h, const struct chunked_op *j,
                                size_t at, size_t n, const char *from, struct err *e)
{
    crun_status s = CRUN_OK;

    for (unsigned p = 0; p < j->parts.out && s == CRUN_OK; p++) {
        char *to = (char *)j->op->out + (p * j->op->count + at) * j->element;
        const char *part = from + p * n * j->element;

        if (j->out_is_there)
            s = HOST_CALL(h, "cudaMemcpyAsync",
                          h->gpu->copy(to, part, n * j->element, h->copying));
        else
            memcpy(to, part, n * j->element);
    }
    return s;
}

static crun_status run_chunk(struct cuda_host *h, const struct chunked_op *j, size_t n,
                             struct cuda_slot *slot, struct err *e)
{
    bool in_place = j->op->kind == OP_ALL_REDUCE || j->op->kind == OP_BROADCAST;
    struct op op = *j->op;
    crun_status s = await_event(h, slot->come, j->op, j->op->deadline_ms, e);

    op.count = n;
    op.in = j->parts.in ? slot->in : NULL;
    op.out = !j->parts.out ? NULL : in_place ? slot->in : slot->out;
    return s == CRUN_OK ? run_by_inner(h, op, e) : s;
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
    return s == CRUN_OK ? await_copies(h, j->op, j->op->deadline_ms, e) : s;
}

static bool is_on_device(struct cuda_host *h, const void *memory)
{
    bool device = false;
    int code;

    if (!memory)
        return false;
    gpu_watch_enter(&h->watch, "cudaPointerGetAttributes");
    code = gpu_watch_leave(&h->watch, h->gpu->on_device(memory, &device));
    return code == GPU_OK && device;
}

/* -- messages ---------------------------------------------------------------------- */

/* The chunks of a message, which the other rank divides in the same way. `stage` is
 * host memory for its data, or NULL: the data stays where it is. */
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
    char *memory; /* NULL: its buffer is in host memory */
};

static size_t message_bytes(const struct op *op)
{
    return op->count * crun_dtype_size(op->type);
}

static size_t chunk_at(size_t at, size_t bytes)
{
    return bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
}

static crun_status begin_fetch(struct cuda_host *h, struct cuda_slot *slot,
                               const char *from, size_t bytes, struct err *e)
{
    crun_status s = HOST_CALL(h, "cudaMemcpyAsync",
                              h->gpu->copy(slot->in, from, bytes, h->copying));

    return s == CRUN_OK ? HOST_CALL(h, "cudaEventRecord",
                                    h->gpu->event_record(slot->come, h->copying))
                        : s;
}

/* From the GPU, to memory that is not pinned. */
static crun_status fetch_message(struct cuda_host *h, const struct op *op,
                                 const struct staged_message *m, struct err *e)
{
    size_t bytes = message_bytes(m->op);
    const char *from = m->op->in;
    crun_status s = begin_fetch(h, &h->slot[0], from, chunk_at(0, bytes), e);
    unsigned turn = 0;

    for (size_t at = 0; at < bytes && s == CRUN_OK; at += CHUNK_BYTES, turn = !turn) {
        size_t next = at + CHUNK_BYTES;

        if (next < bytes)
            s = begin_fetch(h, &h->slot[!turn], from + next, chunk_at(next, bytes), e);
        if (s == CRUN_OK)
            s = await_event(h, h->slot[turn].come, op, op->deadline_ms, e);
        if (s == CRUN_OK)
            memcpy(m->memory + at, h->slot[turn].in, chunk_at(at, bytes));
    }
    return s;
}

/* To the GPU. */
static crun_status return_message(struct cuda_host *h, const struct op *op,
                                  const struct staged_message *m, struct err *e)
{
    size_t bytes = message_bytes(m->op);
    char *to = m->op->out;
    crun_status s = CRUN_OK;
    unsigned turn = 0;

    for (size_t at = 0; at < bytes && s == CRUN_OK; at += CHUNK_BYTES, turn = !turn) {
        struct cuda_slot *slot = &h->slot[turn];

        s = await_event(h, slot->come, op, op->deadline_ms, e);
        if (s != CRUN_OK)
            break;
        memcpy(slot->in, m->memory + at, chunk_at(at, bytes));
        s = HOST_CALL(h, "cudaMemcpyAsync",
                      h->gpu->copy(to + at, slot->in, chunk_at(at, bytes), h->copying));
        if (s == CRUN_OK)
            s = HOST_CALL(h, "cudaEventRecord",
                          h->gpu->event_record(slot->come, h->copying));
    }
    return s;
}

static crun_status stage_message(struct cuda_host *h, const struct op *whole,
                                 struct staged_message *m, struct op_group *chunks,
                                 struct err *e)
{
    const struct op *op = m->op;
    crun_status s = CRUN_OK;

    if (op->count > 0 && is_on_device(h, op->kind == OP_SEND ? op->in : op->out)) {
        m->memory = malloc(message_bytes(op));
        if (m->memory && op->kind == OP_SEND)
            s = fetch_message(h, whole, m, e);
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
        s = stage_message(h, op, &m[i], chunks, e);
    }
    inner.kind = OP_GROUP;
    inner.group = chunks;
    if (s == CRUN_OK)
        s = await_copies(h, op, op->deadline_ms, e);
    if (s == CRUN_OK)
        s = run_by_inner(h, inner, e);
    for (unsigned i = 0; i < count && s == CRUN_OK; i++)
        if (m[i].memory && m[i].op->kind == OP_RECEIVE)
            s = return_message(h, op, &m[i], e);
    return s == CRUN_OK ? await_copies(h, op, op->deadline_ms, e) : s;
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

static crun_status run_host_op(struct cuda_host *h, const struct op *op, struct err *e)
{
    struct parts parts = parts_of(h, op->kind);
    bool messages = op_is_message(op) || op->kind == OP_GROUP;
    unsigned widest = parts.in > parts.out ? parts.in : parts.out;
    size_t element = crun_dtype_size(op->type);
    struct chunked_op j = { op,    parts, element, CHUNK_BYTES / element / widest,
                            false, false };
    crun_status s = await_mark(h, op, e);

    if (s != CRUN_OK)
        return s;
    j.in_is_there = op->count > 0 && is_on_device(h, op->in);
    j.out_is_there = op->count > 0 && is_on_device(h, op->out);
    if (j.in_is_there || j.out_is_there)
        return run_chunks(h, &j, e);
    return messages ? exchange_messages(h, op, e) : run_by_inner(h, *op, e);
}

static crun_status run_cuda_host(struct backend *b, const struct op *op, struct err *e)
{
    struct cuda_host *h = cuda_host_of(b);
    int mode;
    crun_status s = enter_gpu(h, &mode, e);

    if (s == CRUN_OK) {
        s = run_host_op(h, op, e);
        if (s != CRUN_OK)
            s = gpu_watch_settle(&h->watch, h->copying, h->copied, s, e);
    }
    leave_gpu(h, mode);
    return s;
}

/* -- memory ------------------------------------------------------------------------ */

static void free_watched(struct cuda_host *h, void *memory)
{
    gpu_watch_enter(&h->watch, "cudaFree");
    (void)gpu_watch_leave(&h->watch, h->gpu->free(memory));
}

static crun_status alloc_zeroed(struct cuda_host *h, size_t bytes, uint64_t deadline_ms,
                                void **memory, struct err *e)
{
    crun_status s = HOST_CALL(h, "cudaMalloc", h->gpu->alloc(memory, bytes));

    if (s != CRUN_OK)
        return s;
    s = HOST_CALL(h, "cudaMemsetAsync", h->gpu->zero(*memory, bytes, h->copying));
    if (s == CRUN_OK)
        s = await_copies(h, NULL, deadline_ms, e);
    if (s == CRUN_OK)
        return s;
    s = gpu_watch_settle(&h->watch, h->copying, h->copied, s, e);
    if (!atomic_load(&h->watch.stuck))
        free_watched(h, *memory);
    *memory = NULL;
    return s;
}

static crun_status alloc_cuda_host(struct backend *b, size_t bytes,
                                   uint64_t deadline_ms, void **memory, struct err *e)
{
    struct cuda_host *h = cuda_host_of(b);
    struct cuda_area *area = calloc(1, sizeof(*area));
    int mode;
    crun_status s;

    if (!area) {
        err_set(e, "no memory");
        return CRUN_NO_MEMORY;
    }
    s = enter_gpu(h, &mode, e);
    if (s == CRUN_OK)
        s = alloc_zeroed(h, bytes ? bytes : 1, deadline_ms, memory, e);
    leave_gpu(h, mode);
    if (s != CRUN_OK) {
        free(area);
        return s;
    }
    area->memory = *memory;
    pthread_mutex_lock(&h->lock);
    area->next = h->areas;
    h->areas = area;
    pthread_mutex_unlock(&h->lock);
    return s;
}

static bool forget_area(struct cuda_host *h, const void *memory)
{
    struct cuda_area **at = &h->areas, *area;

    pthread_mutex_lock(&h->lock);
    while (*at && (*at)->memory != memory)
        at = &(*at)->next;
    area = *at;
    if (area)
        *at = area->next;
    pthread_mutex_unlock(&h->lock);
    free(area);
    return area != NULL;
}

/* Does not ask CUDA where the memory is: once the GPU has failed, CUDA cannot
 * answer. */
static bool free_cuda_host(struct backend *b, void *memory)
{
    struct cuda_host *h = cuda_host_of(b);
    struct err e;
    int mode;

    if (!forget_area(h, memory))
        return false;
    if (atomic_load(&h->watch.stuck)) /* cudaFree waits for the GPU */
        return true;
    if (enter_gpu(h, &mode, &e) == CRUN_OK)
        free_watched(h, memory);
    leave_gpu(h, mode);
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
        s = HOST_CALL(h, "cudaHostRegister", h->gpu->host_register(shared, bytes));
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

    struct cuda_area *next;

    gpu_watch_close(&h->watch);
    if (atomic_load(&h->watch.stuck)) /* the GPU may still use everything */
        return;
    for (unsigned i = 0; i < SLOTS && h->inner; i++) {
        unpin_slot(h, h->slot[i].in);
        unpin_slot(h, h->slot[i].out);
        if (h->slot[i].come)
            (void)h->gpu->event_destroy(h->slot[i].come);
    }
    if (h->copied)
        (void)h->gpu->event_destroy(h->copied);
    if (h->copying)
        (void)h->gpu->stream_destroy(h->copying);
    if (h->inner)
        h->inner->calls->close(h->inner);
    for (struct cuda_area *area = h->areas; area; area = next) {
        next = area->next;
        free(area);
    }
    pthread_mutex_destroy(&h->lock);
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
    gpu_calls_learn(h->gpu, h->backend.device);
    return CRUN_OK;
}

static crun_status open_slots(struct cuda_host *h, uint64_t deadline_ms, struct err *e)
{
    crun_status s = HOST_CALL(h, "cudaSetDevice",
                              h->gpu->set_device(h->backend.device));

    if (s == CRUN_OK)
        s = HOST_CALL(h, "cudaStreamCreate", h->gpu->stream_create_plain(&h->copying));
    if (s == CRUN_OK)
        s = HOST_CALL(h, "cudaEventCreate", h->gpu->event_create_untimed(&h->copied));

    for (unsigned i = 0; i < SLOTS && s == CRUN_OK; i++) {
        s = pin_slot(h, &h->slot[i].in, deadline_ms, e);
        if (s == CRUN_OK)
            s = pin_slot(h, &h->slot[i].out, deadline_ms, e);
        if (s == CRUN_OK)
            s = HOST_CALL(h, "cudaEventCreate",
                          h->gpu->event_create_untimed(&h->slot[i].come));
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
    pthread_mutex_init(&h->lock, NULL);
    h->backend.calls = &backend_cuda_host;
    h->backend.has_device = true;
    h->gpu = gpu_calls_cuda();
    h->team = *team;
    s = choose_device(h, e);
    if (s == CRUN_OK)
        s = backend_for_hosts(team)->open(&h->inner, team, deadline_ms, e);
    if (s == CRUN_OK)
        s = gpu_watch_open(&h->watch, h->gpu, h->backend.device, &h->team, h->inner, e);
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
