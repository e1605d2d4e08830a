/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/gpu/gpu_net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern "C" {
#include "rendezvous/common/base/clock.h"
}

/* The memory, the streams, and the batches on their way to the GPU. */

#define WORKSPACE_BYTES ((size_t)32 << 20)
#define SPINS 1000 /* about a millisecond */
#define PAUSE_NS 50000
#define TIMEOUT 300 /* the default of CRUN_TIMEOUT */
#define WAIT_MAX 1000000

/* "GPU 3 (0000:1b:00.0)": a process trains on one GPU. */
static char name_of_gpu[48] = "the GPU";

static void gpu_learn_name(int device)
{
    char bus[24];

    if (cudaDeviceGetPCIBusId(bus, sizeof(bus), device) == cudaSuccess)
        snprintf(name_of_gpu, sizeof(name_of_gpu), "GPU %d (%s)", device, bus);
    else
        snprintf(name_of_gpu, sizeof(name_of_gpu), "GPU %d", device);
}

const char *gpu_trainer_device_name(void)
{
    return name_of_gpu;
}

int gpu_check(cudaError_t code, const char *what, struct err *e)
{
    if (code == cudaSuccess)
        return 0;
    (void)cudaGetLastError(); /* so that a later call does not report it again */
    return err_set(e, "%s: %s on %s", what, cudaGetErrorString(code), name_of_gpu);
}

/* More than the library's limit for work that waits for other ranks. */
static unsigned gpu_wait_seconds(void)
{
    const char *text = getenv("CRUN_TIMEOUT");
    double timeout = text ? strtod(text, NULL) : 0;

    return 10 + 2 * (unsigned)(timeout > 0 && timeout < WAIT_MAX ? timeout : TIMEOUT);
}

/*
 * Waits for an event as cudaEventSynchronize does, but not for ever: kernels of the
 * library may wait for a rank that is lost. The library aborts them at its deadline; if
 * they do not end even then, crun_exit_code is not 0. If no other rank waits for this
 * one, as at the end, only the limit here ends it.
 */
static int gpu_wait(cudaEvent_t event, const char *what, struct err *e)
{
    const struct timespec pause = { 0, PAUSE_NS };
    unsigned seconds = gpu_wait_seconds();
    uint64_t until = clock_ms() + seconds * 1000ull;
    cudaError_t code;

    for (unsigned n = 0; (code = cudaEventQuery(event)) == cudaErrorNotReady; n++) {
        if (crun_exit_code())
            return err_set(e, "%s: %s hangs", what, name_of_gpu);
        if (clock_ms() > until)
            return err_set(e, "%s: %s has not done its work for %u s", what,
                           name_of_gpu, seconds);
        if (n > SPINS)
            nanosleep(&pause, NULL);
    }
    return gpu_check(code, what, e);
}

/* Waits for all work of the stream. */
static int gpu_trainer_wait(struct gpu_trainer *g, const char *what, struct err *e)
{
    if (gpu_check(cudaEventRecord(g->reached, g->stream), what, e) < 0)
        return -1;
    return gpu_wait(g->reached, what, e);
}

static int gpu_alloc(void **memory, size_t bytes, struct err *e)
{
    return gpu_check(cudaMalloc(memory, bytes ? bytes : 1), "the GPU's memory", e);
}

static size_t feed_bytes(const struct gpu_trainer *g)
{
    return sizeof(batch_head) + g->plan.capacity * sizeof(uint64_t);
}

static int gpu_trainer_open_feed(struct gpu_trainer *g, struct batch_feed *f,
                                 struct err *e)
{
    if (gpu_check(cudaHostAlloc(&f->host, feed_bytes(g), cudaHostAllocDefault),
                  "pinned memory", e) < 0 ||
        gpu_alloc(&f->device, feed_bytes(g), e) < 0)
        return -1;
    if (gpu_check(cudaEventCreateWithFlags(&f->sent, cudaEventDisableTiming),
                  "an event", e) < 0)
        return -1;
    return gpu_check(cudaEventCreateWithFlags(&f->consumed, cudaEventDisableTiming),
                     "an event", e);
}

static int gpu_trainer_open_layers(struct gpu_trainer *g, struct err *e)
{
    const struct net *n = g->plan.net;
    size_t widest = 0, unrolled = 0,
           column = g->plan.capacity * gpu_net_element_size(g);

    g->layers = net_layers(n);
    if (gpu_alloc(&g->data[0], net_in(n) * column, e) < 0)
        return -1;
    for (unsigned i = 0; i < g->layers; i++) {
        const struct layer *l = net_layer(n, i);
        size_t rows = gpu_net_unrolled_bytes(g, &l->shape);

        if (l->out * g->plan.capacity > UINT32_MAX) /* kernels count in 32 bits */
            return err_set(e, "a batch of %zu is too large", g->plan.capacity);
        widest = l->out > widest ? l->out : widest;
        unrolled = rows > unrolled ? rows : unrolled;
        if (l->in_place)
            g->data[i + 1] = g->data[i];
        else if (gpu_alloc(&g->data[i + 1], l->out * column, e) < 0)
            return -1;
    }
    for (unsigned i = 0; i < 2; i++)
        if (gpu_alloc(&g->spare[i], widest * column, e) < 0)
            return -1;
    return gpu_alloc(&g->unrolled, unrolled, e);
}

static int gpu_trainer_open_rest(struct gpu_trainer *g, struct err *e)
{
    if (gpu_alloc((void **)&g->head, feed_bytes(g), e) < 0 ||
        gpu_alloc((void **)&g->label, g->plan.capacity, e) < 0 ||
        gpu_alloc((void **)&g->sample_scores,
                  g->plan.capacity * sizeof(*g->sample_scores), e) < 0 ||
        gpu_alloc((void **)&g->score, sizeof(*g->score), e) < 0 ||
        gpu_alloc((void **)&g->part, gpu_net_part_bytes(g), e) < 0 ||
        gpu_alloc(&g->workspace, WORKSPACE_BYTES, e) < 0)
        return -1;
    if (gpu_check(cudaHostAlloc((void **)&g->score_host, sizeof(*g->score_host),
                                cudaHostAllocDefault),
                  "pinned memory", e) < 0 ||
        gpu_check(cudaEventCreateWithFlags(&g->noted, cudaEventDisableTiming),
                  "an event", e) < 0 ||
        gpu_check(cudaEventCreateWithFlags(&g->reached, cudaEventDisableTiming),
                  "an event", e) < 0)
        return -1;
    return gpu_check(cudaMemsetAsync(g->score, 0, sizeof(*g->score), g->stream),
                     "cudaMemset", e);
}

static int gpu_trainer_open_blas(struct gpu_trainer *g, struct err *e)
{
    g->blas = blas_open(e);
    if (!g->blas)
        return -1;
    if (g->blas->create(&g->handle) != CUBLAS_STATUS_SUCCESS ||
        g->blas->set_stream(g->handle, g->stream) != CUBLAS_STATUS_SUCCESS ||
        g->blas->set_workspace(g->handle, g->workspace, WORKSPACE_BYTES) !=
            CUBLAS_STATUS_SUCCESS)
        return err_set(e, "cuBLAS cannot be initialized");
    return 0;
}

static int gpu_trainer_open(struct gpu_trainer *g, struct err *e)
{
    int device = 0;

    if (gpu_check(cudaGetDevice(&device), "cudaGetDevice", e) < 0)
        return -1;
    gpu_learn_name(device);
    if (gpu_check(cudaDeviceGetAttribute(&g->processors, cudaDevAttrMultiProcessorCount,
                                         device),
                  "cudaDeviceGetAttribute", e) < 0 ||
        gpu_check(cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking),
                  "a stream", e) < 0 ||
        gpu_check(cudaStreamCreateWithFlags(&g->feeding, cudaStreamNonBlocking),
                  "a stream", e) < 0)
        return -1;
    for (unsigned i = 0; i < FEEDS; i++)
        if (gpu_trainer_open_feed(g, &g->feed[i], e) < 0)
            return -1;
    if (gpu_trainer_open_layers(g, e) < 0 || gpu_trainer_open_rest(g, e) < 0)
        return -1;
    return gpu_trainer_open_blas(g, e);
}

struct gpu_trainer *gpu_trainer_create(const struct gpu_trainer_plan *p, struct err *e)
{
    struct gpu_trainer *g = (struct gpu_trainer *)calloc(1, sizeof(*g));

    if (!g) {
        err_set(e, "no memory");
        return NULL;
    }
    g->plan = *p;
    if (gpu_trainer_open(g, e) < 0) {
        gpu_trainer_destroy(g);
        return NULL;
    }
    return g;
}

static void gpu_trainer_close_feed(struct batch_feed *f)
{
    if (f->host)
        cudaFreeHost(f->host);
    cudaFree(f->device);
    if (f->sent)
        cudaEventDestroy(f->sent);
    if (f->consumed)
        cudaEventDestroy(f->consumed);
}

static void gpu_trainer_free_memory(struct gpu_trainer *g)
{
    for (unsigned i = 0; i < g->layers; i++)
        if (i == 0 || g->data[i] != g->data[i - 1])
            cudaFree(g->data[i]);
    if (g->layers && g->data[g->layers] != g->data[g->layers - 1])
        cudaFree(g->data[g->layers]);
    void *const all[] = { g->spare[0],  g->spare[1],      g->unrolled, g->head,
                          g->label,     g->sample_scores, g->score,    g->part,
                          g->workspace, g->wide };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        cudaFree(all[i]);
    for (unsigned i = 0; i < 2; i++) {
        cudaFree(g->set[i].images);
        cudaFree(g->set[i].labels);
    }
}

void gpu_trainer_destroy(struct gpu_trainer *g)
{
    if (!g)
        return;
    for (unsigned i = 0; i < 2; i++)
        if (g->graph[i].exec)
            cudaGraphExecDestroy(g->graph[i].exec);
    if (g->handle)
        g->blas->destroy(g->handle);
    if (g->stream)
        cudaStreamDestroy(g->stream);
    if (g->feeding)
        cudaStreamDestroy(g->feeding);
    for (unsigned i = 0; i < FEEDS; i++)
        gpu_trainer_close_feed(&g->feed[i]);
    gpu_trainer_free_memory(g);
    if (g->score_host)
        cudaFreeHost(g->score_host);
    if (g->noted)
        cudaEventDestroy(g->noted);
    if (g->reached)
        cudaEventDestroy(g->reached);
    free(g);
}

void *gpu_trainer_alloc_wide(struct gpu_trainer *g, size_t bytes, struct err *e)
{
    if (g->wide || gpu_alloc(&g->wide, bytes, e) < 0)
        return NULL;
    return g->wide;
}

void *gpu_trainer_stream(const struct gpu_trainer *g)
{
    return g->stream;
}

int gpu_trainer_copy(struct gpu_trainer *g, void *to, const void *from, size_t bytes,
                     struct err *e)
{
    /* a copy of pageable memory waits by itself for the work before it */
    if (gpu_trainer_wait(g, "cudaMemcpy", e) < 0 ||
        gpu_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, g->stream),
                  "cudaMemcpy", e) < 0)
        return -1;
    return gpu_trainer_wait(g, "cudaMemcpy", e);
}

int gpu_trainer_load_set(struct gpu_trainer *g, enum gpu_trainer_set set,
                         const uint8_t *images, const uint8_t *labels, size_t count,
                         struct err *e)
{
    struct gpu_trainer_data *d = &g->set[set];

    if (gpu_alloc((void **)&d->images, count * IMAGE_PIXELS, e) < 0 ||
        gpu_alloc((void **)&d->labels, count, e) < 0 ||
        gpu_trainer_copy(g, d->images, images, count * IMAGE_PIXELS, e) < 0)
        return -1;
    return gpu_trainer_copy(g, d->labels, labels, count, e);
}

void gpu_trainer_bind_parameter(struct gpu_trainer *g, unsigned parameter,
                                const float *value, const void *half, void *gradient)
{
    g->parameter[parameter] = (struct gpu_trainer_parameter){ value,
                                                              half ? half : value,
                                                              gradient };
}

/* -- batches --------------------------------------------------------------------- */

/*
 * The batch is copied in a separate stream, overlapping with the computation, and then
 * to the address that the kernels (and the graph) read. The host waits only for a free
 * buffer: until the batch FEEDS before this one has been sent.
 */
static int gpu_trainer_send_batch(struct gpu_trainer *g,
                                  const struct gpu_trainer_batch *b, struct err *e)
{
    struct batch_feed *f = &g->feed[g->batches++ % FEEDS];
    batch_head *head = (batch_head *)f->host;
    size_t bytes = sizeof(*head) + b->size * sizeof(*b->sample);
    cudaError_t code;

    if (gpu_wait(f->sent, "sending a batch", e) < 0)
        return -1;
    *head = (batch_head){ b->seed, b->scale, (uint32_t)b->size };
    memcpy(head + 1, b->sample, b->size * sizeof(*b->sample));
    code = cudaStreamWaitEvent(g->feeding, f->consumed, 0);
    if (code == cudaSuccess)
        code = cudaMemcpyAsync(f->device, f->host, bytes, cudaMemcpyHostToDevice,
                               g->feeding);
    if (code == cudaSuccess)
        code = cudaEventRecord(f->sent, g->feeding);
    if (code == cudaSuccess)
        code = cudaStreamWaitEvent(g->stream, f->sent, 0);
    if (code == cudaSuccess)
        code = cudaMemcpyAsync(g->head, f->device, bytes, cudaMemcpyDeviceToDevice,
                               g->stream);
    if (code == cudaSuccess)
        code = cudaEventRecord(f->consumed, g->stream);
    return gpu_check(code, "sending a batch", e);
}

/*
 * The kernels read the seed, the scale and the numbers of the samples in GPU memory, so
 * a graph is right for all batches of its size. `ready` is not called: a capture must
 * not contain calls of the library.
 */
static int gpu_trainer_record_graph(struct gpu_trainer *g,
                                    const struct gpu_trainer_batch *b,
                                    cudaGraphExec_t *exec, struct err *e)
{
    cudaGraph_t graph = NULL;
    cudaError_t code = cudaStreamBeginCapture(g->stream,
                                              cudaStreamCaptureModeThreadLocal);
    int rc;

    if (gpu_check(code, "cudaStreamBeginCapture", e) < 0)
        return -1;
    rc = gpu_net_compute(g, b, NULL, NULL, e);
    code = cudaStreamEndCapture(g->stream, &graph);
    if (rc == 0)
        rc = gpu_check(code, "cudaStreamEndCapture", e);
    if (rc == 0)
        rc = gpu_check(cudaGraphInstantiate(exec, graph, 0), "cudaGraphInstantiate", e);
    if (graph)
        cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    return rc;
}

/* The graph of this batch, or NULL if its kernels have to be queued one by one. */
static cudaGraphExec_t gpu_trainer_graph_of(struct gpu_trainer *g,
                                            const struct gpu_trainer_batch *b)
{
    struct gpu_trainer_graph *graph = &g->graph[b->accumulate];

    if (!b->training || b->size != g->plan.graph_size)
        return NULL;
    if (!graph->prepared)
        graph->prepared = true;
    else if (!graph->exec &&
             gpu_trainer_record_graph(g, b, &graph->exec, &g->graph_failure) < 0)
        g->plan.graph_size = 0;
    return graph->exec;
}

const char *gpu_trainer_graph_failure(const struct gpu_trainer *g)
{
    return g->graph_failure.text;
}

int gpu_trainer_run_batch(struct gpu_trainer *g, const struct gpu_trainer_batch *b,
                          void (*ready)(void *arg, unsigned parameter), void *arg,
                          struct err *e)
{
    cudaGraphExec_t graph;

    if (gpu_trainer_send_batch(g, b, e) < 0)
        return -1;
    graph = gpu_trainer_graph_of(g, b);
    if (!graph)
        return gpu_net_compute(g, b, ready, arg, e);
    if (gpu_check(cudaGraphLaunch(graph, g->stream), "the graph", e) < 0)
        return -1;
    for (unsigned p = net_parameters(g->plan.net); ready && p-- > 0;)
        ready(arg, p);
    return 0;
}

int gpu_trainer_note_score(struct gpu_trainer *g, struct err *e)
{
    if (gpu_check(cudaMemcpyAsync(g->score_host, g->score, sizeof(*g->score),
                                  cudaMemcpyDeviceToHost, g->stream),
                  "the loss", e) < 0)
        return -1;
    return gpu_check(cudaEventRecord(g->noted, g->stream), "the loss", e);
}

int gpu_trainer_read_score(struct gpu_trainer *g, struct score *sum, struct err *e)
{
    if (gpu_wait(g->noted, "the loss", e) < 0)
        return -1;
    *sum = *g->score_host;
    return 0;
}
