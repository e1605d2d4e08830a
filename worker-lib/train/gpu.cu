/* SPDX-License-Identifier: MIT */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "worker-lib/train/gpu_blas.cuh"
#include "worker-lib/train/gpu_kernels.cuh"

#define THREADS 256
#define BLOCKS_MAX 4096
#define PAUSE_NS 20000
#define PAUSE_NS_MAX 5000000

static struct {
    char name[48];
    size_t capacity;
    cudaStream_t stream;
    cudaEvent_t reached;
    char failed[512]; /* the first failure of queued work; "": none */
    float *images;
    uint64_t *sample;
    uint8_t *label;
    struct sample_score *score;
    struct host_batch {
        float *images;
        uint8_t *label;
        struct sample_score *score;
    } host;
    float *ones; /* one for each row of a layer's output */
} gpu;

static void gpu_learn_name(int device)
{
    char bus[24];

    if (cudaDeviceGetPCIBusId(bus, sizeof(bus), device) == cudaSuccess)
        snprintf(gpu.name, sizeof(gpu.name), "GPU %d (%s)", device, bus);
    else
        snprintf(gpu.name, sizeof(gpu.name), "GPU %d", device);
}

static int gpu_check(cudaError_t code, const char *what, struct err *e)
{
    if (code == cudaSuccess)
        return 0;
    (void)cudaGetLastError(); /* so that a later call does not report it again */
    return err_set(e, "%s: %s on %s", what, cudaGetErrorString(code), gpu.name);
}

static void gpu_note_failure(const char *what)
{
    if (what && !*gpu.failed)
        snprintf(gpu.failed, sizeof(gpu.failed), "%s", what);
}

static void gpu_note_code(cudaError_t code)
{
    gpu_note_failure(code == cudaSuccess ? NULL : cudaGetErrorString(code));
}

static void gpu_note_launch(void)
{
    gpu_note_code(cudaGetLastError());
}

static int gpu_check_noted(struct err *e)
{
    return *gpu.failed ? err_set(e, "a kernel: %s on %s", gpu.failed, gpu.name) : 0;
}

/* -- memory ------------------------------------------------------------------------ */

static void *gpu_alloc(size_t bytes)
{
    void *memory = NULL;

    if (cudaMalloc(&memory, bytes) != cudaSuccess)
        gpu_note_launch();
    return memory;
}

/* Waits for all work before: kernels of the library may wait for a rank that is lost.
 * It aborts them at its deadline; if they do not end even then, crun_exit_code is not
 * 0. */
static int gpu_wait(struct err *e)
{
    struct timespec pause = { 0, PAUSE_NS };
    cudaError_t code = cudaEventRecord(gpu.reached, gpu.stream);

    if (code == cudaSuccess)
        while ((code = cudaEventQuery(gpu.reached)) == cudaErrorNotReady) {
            if (crun_exit_code())
                return err_set(e, "%s hangs", gpu.name);
            nanosleep(&pause, NULL);
            if (pause.tv_nsec < PAUSE_NS_MAX) /* about a hundredth of the wait */
                pause.tv_nsec += pause.tv_nsec / 100;
        }
    return gpu_check(code, "waiting", e);
}

/* A copy to or from pageable memory has accessed that memory when the call returns. */
static int gpu_copy(void *to, const void *from, size_t bytes, struct err *e)
{
    if (gpu_check_noted(e) < 0 || gpu_wait(e) < 0)
        return -1;
    return gpu_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, gpu.stream),
                     "cudaMemcpy", e);
}

static float *gpu_load(struct data *d, const uint64_t *sample, struct batch *b)
{
    struct err e;

    data_get(d, sample, b->size, gpu.host.images, gpu.host.label);
    if (gpu_copy(gpu.images, gpu.host.images, b->size * IMAGE_PIXELS * sizeof(float),
                 &e) < 0 ||
        gpu_copy(gpu.label, gpu.host.label, b->size, &e) < 0 ||
        gpu_copy(gpu.sample, sample, b->size * sizeof(*sample), &e) < 0)
        gpu_note_failure(e.text);
    b->sample = gpu.sample;
    b->label = gpu.label;
    return gpu.images;
}

/* -- arithmetic -------------------------------------------------------------------- */

static unsigned gpu_blocks(size_t items)
{
    size_t blocks = (items + THREADS - 1) / THREADS;

    return (unsigned)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX);
}

#define LAUNCH(kernel, items, ...)                                                     \
    do {                                                                               \
        LAUNCH_ALONE(kernel, gpu_blocks(items), THREADS, gpu.stream, __VA_ARGS__);     \
        gpu_note_launch();                                                             \
    } while (0)

static void gpu_multiply(const struct product *p)
{
    gpu_note_failure(blas_multiply(p, gpu.stream));
}

/* A product with a row of ones. */
static void gpu_sum_rows(const float *from, size_t rows, size_t columns, float *out)
{
    struct product p = {};

    p.out = out;
    p.a = gpu.ones;
    p.b = from;
    p.rows = 1;
    p.columns = columns;
    p.depth = rows;
    gpu_multiply(&p);
}

static void gpu_relu_backward(float *dy, const float *y, size_t count)
{
    LAUNCH(relu_backward_kernel, count, dy, y, (uint32_t)count);
}

static size_t images_numbers(const struct images *s)
{
    return s->count * s->side * s->side * s->channels;
}

static gpu_images gpu_images_of(const struct images *s)
{
    return { (uint32_t)s->count, (uint32_t)s->side, (uint32_t)s->channels };
}

static void gpu_unroll(const float *x, float *rows, const struct images *s)
{
    LAUNCH(unroll_kernel, images_numbers(s) * FILTER * FILTER, x, rows,
           gpu_images_of(s));
}

static void gpu_roll(const float *rows, float *dx, const struct images *s)
{
    LAUNCH(roll_kernel, images_numbers(s), rows, dx, gpu_images_of(s));
}

static void gpu_pool(const float *x, float *y, const struct images *s)
{
    LAUNCH(pool_kernel, images_numbers(s) / 4, x, y, gpu_images_of(s));
}

static void gpu_unpool(const float *x, const float *dy, float *dx,
                       const struct images *s)
{
    LAUNCH(unpool_kernel, images_numbers(s) / 4, x, dy, dx, gpu_images_of(s));
}

static void gpu_dropout(float *data, size_t width, unsigned dropped,
                        const struct batch *b)
{
    LAUNCH(dropout_kernel, b->size * width / HASH_BYTES, data, (uint32_t)width, dropped,
           *b);
}

static void gpu_loss(float *outputs, const struct batch *b, float scale,
                     const float *factor)
{
    LAUNCH(loss_kernel, b->size, outputs, *b, scale, factor, gpu.score);
}

static int gpu_score(const struct batch *b, struct score *score, struct err *e)
{
    if (gpu_copy(gpu.host.score, gpu.score, b->size * sizeof(*gpu.score), e) < 0)
        return -1;
    for (size_t i = 0; i < b->size; i++) {
        score->loss += gpu.host.score[i].loss;
        score->right += gpu.host.score[i].right;
    }
    score->samples += (double)b->size;
    return 0;
}

static void gpu_narrow(void *to, const float *from, size_t count, crun_dtype type)
{
    LAUNCH(narrow_kernel, count, (uint16_t *)to, from, (uint32_t)count,
           type == CRUN_BF16);
}

/* -- graphs ------------------------------------------------------------------------ */

#define PARTS_MAX 16

static struct {
    cudaGraphExec_t part[PARTS_MAX];
    unsigned open; /* the part that is recorded */
} graphs;

/* The library's threads make calls of CUDA meanwhile. */
static void gpu_record(unsigned part)
{
    assert(part < PARTS_MAX);
    graphs.open = part;
    gpu_note_code(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeThreadLocal));
}

static void gpu_end_record(void)
{
    cudaGraphExec_t *exec = &graphs.part[graphs.open];
    cudaGraph_t graph = NULL;
    cudaError_t code = cudaStreamEndCapture(gpu.stream, &graph);

    if (*exec) /* of the pass before, which is over */
        gpu_note_code(cudaGraphExecDestroy(*exec));
    *exec = NULL;
    gpu_note_code(code);
    if (code != cudaSuccess)
        return;
    gpu_note_code(cudaGraphInstantiate(exec, graph, 0));
    gpu_note_code(cudaGraphDestroy(graph));
}

static void gpu_replay(unsigned part)
{
    gpu_note_code(cudaGraphLaunch(graphs.part[part], gpu.stream));
}

/* -- opening ----------------------------------------------------------------------- */

static int gpu_open(crun_dtype precision, struct err *e)
{
    size_t rows = gpu.capacity * IMAGE_PIXELS;
    int device = 0;

    if (gpu_check(cudaGetDevice(&device), "cudaGetDevice", e) < 0)
        return -1;
    gpu_learn_name(device);
    if (gpu_check(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking),
                  "a stream", e) < 0 ||
        gpu_check(cudaEventCreateWithFlags(&gpu.reached, cudaEventDisableTiming),
                  "an event", e) < 0 ||
        blas_open(precision, e) < 0)
        return -1;
    gpu.images = (float *)gpu_alloc(rows * sizeof(*gpu.images));
    gpu.sample = (uint64_t *)gpu_alloc(gpu.capacity * sizeof(*gpu.sample));
    gpu.label = (uint8_t *)gpu_alloc(gpu.capacity);
    gpu.score = (sample_score *)gpu_alloc(gpu.capacity * sizeof(*gpu.score));
    gpu.ones = (float *)gpu_alloc(rows * sizeof(*gpu.ones));
    gpu.host = { (float *)malloc(rows * sizeof(float)), (uint8_t *)malloc(gpu.capacity),
                 (sample_score *)malloc(gpu.capacity * sizeof(sample_score)) };
    if (!gpu.host.images || !gpu.host.label || !gpu.host.score)
        return err_set(e, "no memory");
    LAUNCH(fill_kernel, rows, gpu.ones, (uint32_t)rows, 1.0f);
    return gpu_check_noted(e);
}

const struct compute *compute_on_gpu(size_t capacity, crun_dtype precision,
                                     struct err *e)
{
    static struct compute compute;

    gpu.capacity = capacity;
    if (gpu_open(precision, e) < 0)
        return NULL;
    compute.images_at_once = capacity;
    compute.stream = gpu.stream;
    compute.gpu = gpu.name;
    compute.alloc = gpu_alloc;
    compute.copy = gpu_copy;
    compute.load = gpu_load;
    compute.multiply = gpu_multiply;
    compute.sum_rows = gpu_sum_rows;
    compute.relu_backward = gpu_relu_backward;
    compute.unroll = gpu_unroll;
    compute.roll = gpu_roll;
    compute.pool = gpu_pool;
    compute.unpool = gpu_unpool;
    compute.dropout = gpu_dropout;
    compute.loss = gpu_loss;
    compute.score = gpu_score;
    compute.narrow = gpu_narrow;
    compute.record = gpu_record;
    compute.end_record = gpu_end_record;
    compute.replay = gpu_replay;
    return &compute;
}
