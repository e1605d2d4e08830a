/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/gpu/gpu_net.h"

#include <stdlib.h>
#include <string.h>

/* The rank's GPU as an object: memory, streams, the batches on their way to it. */

#define WORKSPACE_BYTES ((size_t)32 << 20)

int gpu_trainer_check(cudaError_t code, const char *what, struct err *e)
{
    if (code == cudaSuccess)
        return 0;
    (void)cudaGetLastError(); /* an error that was told is not told again */
    return err_set(e, "%s: %s", what, cudaGetErrorString(code));
}

static int get_memory(void **memory, size_t bytes, struct err *e)
{
    return gpu_trainer_check(cudaMalloc(memory, bytes ? bytes : 1), "the GPU's memory",
                             e);
}

static size_t feed_bytes(const struct gpu_trainer *c)
{
    return sizeof(batch_head) + c->plan.capacity * sizeof(uint64_t);
}

static int open_feed(struct gpu_trainer *c, struct feed *f, struct err *e)
{
    if (gpu_trainer_check(cudaHostAlloc(&f->here, feed_bytes(c), cudaHostAllocDefault),
                          "pinned memory", e) < 0 ||
        get_memory(&f->there, feed_bytes(c), e) < 0)
        return -1;
    if (gpu_trainer_check(cudaEventCreateWithFlags(&f->sent, cudaEventDisableTiming),
                          "an event", e) < 0)
        return -1;
    return gpu_trainer_check(
        cudaEventCreateWithFlags(&f->taken, cudaEventDisableTiming), "an event", e);
}

static int open_layers(struct gpu_trainer *c, struct err *e)
{
    const struct net *n = c->plan.net;
    size_t widest = 0, unrolled = 0, column = c->plan.capacity * gpu_trainer_element(c);

    c->layers = net_layers(n);
    if (get_memory(&c->data[0], net_in(n) * column, e) < 0)
        return -1;
    for (unsigned i = 0; i < c->layers; i++) {
        const struct layer *l = net_layer(n, i);
        size_t rows = gpu_trainer_unrolled_bytes(c, &l->shape);

        widest = l->out > widest ? l->out : widest;
        unrolled = rows > unrolled ? rows : unrolled;
        if (l->in_place)
            c->data[i + 1] = c->data[i];
        else if (get_memory(&c->data[i + 1], l->out * column, e) < 0)
            return -1;
    }
    for (unsigned i = 0; i < 2; i++)
        if (get_memory(&c->spare[i], widest * column, e) < 0)
            return -1;
    return get_memory(&c->unrolled, unrolled, e);
}

static int open_rest(struct gpu_trainer *c, struct err *e)
{
    if (get_memory((void **)&c->head, feed_bytes(c), e) < 0 ||
        get_memory((void **)&c->label, c->plan.capacity, e) < 0 ||
        get_memory((void **)&c->sample_scores,
                   c->plan.capacity * sizeof(*c->sample_scores), e) < 0 ||
        get_memory((void **)&c->score, sizeof(*c->score), e) < 0 ||
        get_memory((void **)&c->part, gpu_trainer_part_bytes(c), e) < 0 ||
        get_memory(&c->workspace, WORKSPACE_BYTES, e) < 0)
        return -1;
    if (gpu_trainer_check(cudaHostAlloc((void **)&c->score_here, sizeof(*c->score_here),
                                        cudaHostAllocDefault),
                          "pinned memory", e) < 0 ||
        gpu_trainer_check(cudaEventCreateWithFlags(&c->noted, cudaEventDisableTiming),
                          "an event", e) < 0)
        return -1;
    return gpu_trainer_check(cudaMemsetAsync(c->score, 0, sizeof(*c->score), c->stream),
                             "cudaMemset", e);
}

static int open_blas(struct gpu_trainer *c, struct err *e)
{
    c->blas = blas_open(e);
    if (!c->blas)
        return -1;
    if (c->blas->create(&c->handle) != CUBLAS_STATUS_SUCCESS ||
        c->blas->set_stream(c->handle, c->stream) != CUBLAS_STATUS_SUCCESS ||
        c->blas->set_workspace(c->handle, c->workspace, WORKSPACE_BYTES) !=
            CUBLAS_STATUS_SUCCESS)
        return err_set(e, "cuBLAS does not work here");
    return 0;
}

static int open_card(struct gpu_trainer *c, struct err *e)
{
    int device = 0;

    if (gpu_trainer_check(cudaGetDevice(&device), "the GPU", e) < 0 ||
        gpu_trainer_check(cudaDeviceGetAttribute(
                              &c->processors, cudaDevAttrMultiProcessorCount, device),
                          "the GPU", e) < 0 ||
        gpu_trainer_check(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking),
                          "a stream", e) < 0 ||
        gpu_trainer_check(cudaStreamCreateWithFlags(&c->feeding, cudaStreamNonBlocking),
                          "a stream", e) < 0)
        return -1;
    for (unsigned i = 0; i < FEEDS; i++)
        if (open_feed(c, &c->feed[i], e) < 0)
            return -1;
    if (open_layers(c, e) < 0 || open_rest(c, e) < 0)
        return -1;
    return open_blas(c, e);
}

struct gpu_trainer *gpu_trainer_create(const struct gpu_trainer_plan *p, struct err *e)
{
    struct gpu_trainer *c = (struct gpu_trainer *)calloc(1, sizeof(*c));

    if (!c) {
        err_set(e, "no memory");
        return NULL;
    }
    c->plan = *p;
    if (open_card(c, e) < 0) {
        gpu_trainer_destroy(c);
        return NULL;
    }
    return c;
}

static void close_feed(struct feed *f)
{
    if (f->here)
        cudaFreeHost(f->here);
    cudaFree(f->there);
    if (f->sent)
        cudaEventDestroy(f->sent);
    if (f->taken)
        cudaEventDestroy(f->taken);
}

static void free_memory(struct gpu_trainer *c)
{
    for (unsigned i = 0; i < c->layers; i++)
        if (i == 0 || c->data[i] != c->data[i - 1])
            cudaFree(c->data[i]);
    if (c->layers && c->data[c->layers] != c->data[c->layers - 1])
        cudaFree(c->data[c->layers]);
    void *const all[] = { c->spare[0],  c->spare[1],      c->unrolled, c->head,
                          c->label,     c->sample_scores, c->score,    c->part,
                          c->workspace, c->wide };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        cudaFree(all[i]);
    for (unsigned i = 0; i < 2; i++) {
        cudaFree(c->set[i].images);
        cudaFree(c->set[i].labels);
    }
}

void gpu_trainer_destroy(struct gpu_trainer *c)
{
    if (!c)
        return;
    if (c->graph)
        cudaGraphExecDestroy(c->graph);
    if (c->handle)
        c->blas->destroy(c->handle);
    if (c->stream)
        cudaStreamDestroy(c->stream);
    if (c->feeding)
        cudaStreamDestroy(c->feeding);
    for (unsigned i = 0; i < FEEDS; i++)
        close_feed(&c->feed[i]);
    free_memory(c);
    if (c->score_here)
        cudaFreeHost(c->score_here);
    if (c->noted)
        cudaEventDestroy(c->noted);
    free(c);
}

void *gpu_trainer_alloc(struct gpu_trainer *c, size_t bytes, struct err *e)
{
    if (c->wide || get_memory(&c->wide, bytes, e) < 0)
        return NULL;
    return c->wide;
}

void *gpu_trainer_stream(const struct gpu_trainer *c)
{
    return c->stream;
}

int gpu_trainer_copy(struct gpu_trainer *c, void *to, const void *from, size_t bytes,
                     struct err *e)
{
    if (gpu_trainer_check(
            cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, c->stream),
            "cudaMemcpy", e) < 0)
        return -1;
    return gpu_trainer_check(cudaStreamSynchronize(c->stream), "cudaMemcpy", e);
}

int gpu_trainer_load(struct gpu_trainer *c, enum gpu_trainer_set set,
                     const uint8_t *images, const uint8_t *labels, size_t count,
                     struct err *e)
{
    struct gpu_trainer_data *d = &c->set[set];

    if (get_memory((void **)&d->images, count * IMAGE_PIXELS, e) < 0 ||
        get_memory((void **)&d->labels, count, e) < 0 ||
        gpu_trainer_copy(c, d->images, images, count * IMAGE_PIXELS, e) < 0)
        return -1;
    return gpu_trainer_copy(c, d->labels, labels, count, e);
}

void gpu_trainer_bind(struct gpu_trainer *c, unsigned parameter, const float *value,
                      const void *half, void *gradient)
{
    c->parameter[parameter] = (struct gpu_trainer_parameter){ value,
                                                              half ? half : value,
                                                              gradient };
}

/* -- batches ------------------------------------------------------------------------
 */

/*
 * The batch goes over in a stream of its own, beside what is computed, and from there
 * to where the kernels (and a graph) look for it. The host waits only for a place to
 * write to: for the batch FEEDS before this one to have been sent.
 */
static int send(struct gpu_trainer *c, const struct gpu_trainer_batch *b, struct err *e)
{
    struct feed *f = &c->feed[c->batches++ % FEEDS];
    batch_head *head = (batch_head *)f->here;
    size_t bytes = sizeof(*head) + b->size * sizeof(*b->sample);
    cudaError_t code = cudaEventSynchronize(f->sent);

    if (code == cudaSuccess) {
        *head = (batch_head){ b->seed, b->scale, (uint32_t)b->size };
        memcpy(head + 1, b->sample, b->size * sizeof(*b->sample));
        code = cudaStreamWaitEvent(c->feeding, f->taken, 0);
    }
    if (code == cudaSuccess)
        code = cudaMemcpyAsync(f->there, f->here, bytes, cudaMemcpyHostToDevice,
                               c->feeding);
    if (code == cudaSuccess)
        code = cudaEventRecord(f->sent, c->feeding);
    if (code == cudaSuccess)
        code = cudaStreamWaitEvent(c->stream, f->sent, 0);
    if (code == cudaSuccess)
        code = cudaMemcpyAsync(c->head, f->there, bytes, cudaMemcpyDeviceToDevice,
                               c->stream);
    if (code == cudaSuccess)
        code = cudaEventRecord(f->taken, c->stream);
    return gpu_trainer_check(code, "sending a batch", e);
}

/* Record once what all whole batches do alike. Where that does not work they go on
 * without. */
static void record(struct gpu_trainer *c, const struct gpu_trainer_batch *b)
{
    struct err e;
    cudaGraph_t graph = NULL;
    cudaError_t code = cudaStreamBeginCapture(c->stream,
                                              cudaStreamCaptureModeThreadLocal);

    if (code == cudaSuccess) {
        int rc = gpu_trainer_compute(c, b, NULL, NULL, &e);

        code = cudaStreamEndCapture(c->stream, &graph);
        if (rc == 0 && code == cudaSuccess)
            code = cudaGraphInstantiate(&c->graph, graph, 0);
        if (graph)
            cudaGraphDestroy(graph);
    }
    if (code != cudaSuccess || !c->graph)
        c->plan.graph = false;
    (void)cudaGetLastError();
}

/* Nothing but `send` may differ from one to the next. */
static bool fits_graph(const struct gpu_trainer *c, const struct gpu_trainer_batch *b)
{
    return c->plan.graph && b->training && !b->accumulate &&
           b->size == c->plan.capacity && c->batches > 1;
}

int gpu_trainer_run(struct gpu_trainer *c, const struct gpu_trainer_batch *b,
                    void (*ready)(void *arg, unsigned parameter), void *arg,
                    struct err *e)
{
    if (send(c, b, e) < 0)
        return -1;
    if (fits_graph(c, b) && !c->graph)
        record(c, b);
    if (!fits_graph(c, b) || !c->graph)
        return gpu_trainer_compute(c, b, ready, arg, e);
    if (gpu_trainer_check(cudaGraphLaunch(c->graph, c->stream), "the graph", e) < 0)
        return -1;
    for (unsigned p = net_parameters(c->plan.net); ready && p-- > 0;)
        ready(arg, p);
    return 0;
}

int gpu_trainer_note_score(struct gpu_trainer *c, struct err *e)
{
    if (gpu_trainer_check(cudaMemcpyAsync(c->score_here, c->score, sizeof(*c->score),
                                          cudaMemcpyDeviceToHost, c->stream),
                          "the loss", e) < 0)
        return -1;
    return gpu_trainer_check(cudaEventRecord(c->noted, c->stream), "the loss", e);
}

int gpu_trainer_read_score(struct gpu_trainer *c, struct score *sum, struct err *e)
{
    if (gpu_trainer_check(cudaEventSynchronize(c->noted), "the loss", e) < 0)
        return -1;
    *sum = *c->score_here;
    return 0;
}
