/* SPDX-License-Identifier: MIT */
/*
 * A rank whose data is in the memory of its GPU, for the checks on a machine with GPUs
 * and for the tests on emulated ones:
 *
 *   check    each operation on memory of crun_alloc and of CUDA, against what it should
 *            be
 *   free     crun_free of memory that queued work still uses
 *   graph    captures and replays a CUDA graph while operations are under way
 *   illegal  on the last rank a kernel uses an illegal address
 *   stuck    on the last rank something in the GPU's stream never ends
 *   save     trains, and saves each step in the folder GPU_WORKER_FOLDER without
 * waiting for the GPU; resumes from there. GPU_WORKER_SHARD: as shard. It ignores
 *            SIGTERM, as a program does that saves when it is stopped
 *
 * It prints a line: "rank N: right", or "rank N: STATUS: TEXT" after a failure of the
 * library. It then exits with crun_exit_code, or with 3 if that is 0.
 * GPU_WORKER_TIMEOUT is the timeout of an operation in seconds, GPU_WORKER_TURNS how
 * often "free" repeats what it does.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker-lib/crun/worker.h"

#ifdef CRUN_CUDA
#include <cuda_runtime_api.h>

#include "worker-lib/compute/device.h"

#define COUNT 4096
#define LARGE (4 << 20)
#define FREE_TURNS 20

static crun_world *world;
static int rank, size;

static void leave(int code)
{
    fflush(stdout);
    if (crun_exit_code())
        _exit(crun_exit_code());
    crun_finalize(world);
    if (crun_exit_code())
        _exit(crun_exit_code());
    _exit(code);
}

static void must(crun_status s)
{
    if (s == CRUN_OK)
        return;
    printf("rank %d: %s: %s\n", rank, crun_status_name(s), crun_error_text());
    leave(3);
}

static void cuda_must(cudaError_t code)
{
    if (code == cudaSuccess)
        return;
    printf("rank %d: CUDA: %s\n", rank, cudaGetErrorString(code));
    leave(4);
}

static void fail_wrong(const char *what, size_t at, double got, double wanted)
{
    printf("rank %d: wrong: %s: element %zu is %g, not %g\n", rank, what, at, got,
           wanted);
    leave(1);
}

/* -- check ------------------------------------------------------------------ */

static void put_floats(float *to, size_t count, float value)
{
    float *host = malloc(count * sizeof(*host));

    for (size_t i = 0; i < count; i++)
        host[i] = value + (float)(i % 7);
    must(device_gpu()->put(NULL, to, host, count * sizeof(*host)));
    free(host);
}

/* value, and by how much it grows with i % 7 */
static void expect_floats(const float *from, size_t count, float value, float slope,
                          const char *what)
{
    float *host = malloc(count * sizeof(*host));

    must(device_gpu()->fetch(NULL, host, from, count * sizeof(*host)));
    for (size_t i = 0; i < count; i++)
        if (host[i] != value + slope * (float)(i % 7))
            fail_wrong(what, i, (double)host[i],
                       (double)(value + slope * (float)(i % 7)));
    free(host);
}

static float sum_of_ranks(void)
{
    return (float)(size * (size + 1)) / 2;
}

static void check_reductions(float *in, float *out)
{
    float n = (float)size;

    put_floats(in, COUNT, (float)(rank + 1));
    must(crun_all_reduce(world, in, out, COUNT, CRUN_F32, CRUN_SUM, NULL));
    expect_floats(out, COUNT, sum_of_ranks(), n, "all_reduce");
    must(crun_all_reduce(world, in, in, COUNT, CRUN_F32, CRUN_MAX, NULL));
    expect_floats(in, COUNT, n, 1, "all_reduce in place");
    put_floats(in, COUNT * (size_t)size, (float)(rank + 1));
    must(crun_reduce_scatter(world, in, out, 7, CRUN_F32, CRUN_SUM, NULL));
    expect_floats(out, 7, sum_of_ranks(), n, "reduce_scatter");
}

static void check_copies(float *in, float *out)
{
    int next = (rank + 1) % size, last = (rank + size - 1) % size;

    put_floats(in, COUNT, (float)(rank + 1));
    must(crun_all_gather(world, in, out, 7, CRUN_F32, NULL));
    for (int r = 0; r < size; r++)
        expect_floats(out + 7 * r, 7, (float)(r + 1), 1, "all_gather");
    for (int r = 0; r < size; r++)
        put_floats(in + 7 * r, 7, (float)(100 * rank + r));
    must(crun_all_to_all(world, in, out, 7, CRUN_F32, NULL));
    for (int r = 0; r < size; r++)
        expect_floats(out + 7 * r, 7, (float)(100 * r + rank), 1, "all_to_all");
    put_floats(in, COUNT, (float)(rank + 1));
    must(crun_broadcast(world, in, COUNT, CRUN_F32, size - 1, NULL));
    expect_floats(in, COUNT, (float)size, 1, "broadcast");
    put_floats(in, COUNT, (float)(rank + 1));
    for (int turn = 0; size > 1 && turn < 2; turn++)
        if ((turn == 0) == (rank == 0))
            must(crun_send(world, in, COUNT, CRUN_F32, next));
        else
            must(crun_receive(world, out, COUNT, CRUN_F32, last));
    if (size > 1)
        expect_floats(out, COUNT, (float)(last + 1), 1, "receive");
}

/* Divided once, in f32: over three ranks the mean of ones is one. */
static void check_mean_of_halves(void *memory)
{
    uint16_t host[64], one = 0x3f80;

    for (size_t i = 0; i < 64; i++)
        host[i] = one;
    must(device_gpu()->put(NULL, memory, host, sizeof(host)));
    must(crun_all_reduce(world, memory, memory, 64, CRUN_BF16, CRUN_MEAN, NULL));
    must(device_gpu()->fetch(NULL, host, memory, sizeof(host)));
    for (size_t i = 0; i < 64; i++)
        if (host[i] != one)
            fail_wrong("mean of bf16", i, host[i], one);
}

static void check_all(void)
{
    size_t bytes = COUNT * sizeof(float) * (size_t)size;

    for (int way = 0; way < 4; way++) { /* memory of crun_alloc, or only of CUDA */
        void *in, *out;

        if (way & 1)
            must(crun_alloc(world, bytes, &in));
        else
            cuda_must(cudaMalloc(&in, bytes));
        if (way & 2)
            must(crun_alloc(world, bytes, &out));
        else
            cuda_must(cudaMalloc(&out, bytes));
        check_reductions(in, out);
        check_copies(in, out);
        check_mean_of_halves(in);
        if (way & 1)
            crun_free(world, in);
        else
            cuda_must(cudaFree(in));
        if (way & 2)
            crun_free(world, out);
        else
            cuda_must(cudaFree(out));
    }
    must(crun_barrier(world, NULL));
}

/* -- the others ------------------------------------------------------------- */

static void check_free(void)
{
    const char *turns = getenv("GPU_WORKER_TURNS");
    void *source;

    cuda_must(cudaMalloc(&source, LARGE));
    for (int turn = 0; turn < (turns ? atoi(turns) : FREE_TURNS); turn++) {
        void *memory;

        must(crun_alloc(world, LARGE, &memory));
        for (int i = 0; i < 50; i++)
            cuda_must(cudaMemcpyAsync(memory, source, LARGE, cudaMemcpyDefault, NULL));
        must(crun_all_reduce(world, memory, memory, LARGE / 4, CRUN_F32, CRUN_MAX,
                             NULL));
        must(device_gpu()->copy(NULL, source, memory, LARGE));
        crun_free(world, memory);
        cuda_must(cudaStreamSynchronize(NULL));
    }
    cuda_must(cudaFree(source));
    must(crun_barrier(world, NULL));
}

/* Of a copy, in the mode in which the calls of other threads may invalidate a capture.
 * Meanwhile the library's threads ask for the end of `work`. */
static cudaGraphExec_t capture_copy(cudaStream_t stream, float *to, const float *from,
                                    crun_work *work)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    crun_status s;

    cuda_must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    cuda_must(cudaMemcpyAsync(to, from, LARGE, cudaMemcpyDefault, stream));
    s = crun_all_reduce(world, to, to, COUNT, CRUN_F32, CRUN_MAX, NULL);
    if (s != CRUN_UNSUPPORTED)
        fail_wrong("all_reduce in a capture", 0, s, CRUN_UNSUPPORTED);
    while (!crun_is_done(work))
        usleep(100);
    cuda_must(cudaStreamEndCapture(stream, &graph));
    cuda_must(cudaGraphInstantiate(&exec, graph, 0));
    cuda_must(cudaGraphDestroy(graph));
    return exec;
}

static void check_graph(void)
{
    cudaStream_t stream;
    cudaGraphExec_t graph;
    crun_work *work;
    float *in, *out, n = (float)size;

    cuda_must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    must(crun_set_stream(world, stream));
    must(crun_alloc(world, LARGE, (void **)&in));
    must(crun_alloc(world, LARGE, (void **)&out));
    put_floats(in, LARGE / sizeof(float), (float)(rank + 1));
    must(crun_all_reduce(world, in, in, LARGE / 4, CRUN_F32, CRUN_SUM, &work));
    graph = capture_copy(stream, out, in, work);
    must(crun_wait(work));
    for (int turn = 0; turn < 3; turn++) {
        put_floats(in, LARGE / sizeof(float), (float)(rank + turn));
        cuda_must(cudaGraphLaunch(graph, stream));
        must(crun_all_reduce(world, out, out, LARGE / 4, CRUN_F32, CRUN_SUM, NULL));
        cuda_must(cudaStreamSynchronize(stream));
        expect_floats(out, LARGE / sizeof(float),
                      sum_of_ranks() + n * (float)(turn - 1), n,
                      "all_reduce of a replay");
    }
    cuda_must(cudaGraphExecDestroy(graph));
    crun_free(world, in);
    crun_free(world, out);
    must(crun_set_stream(world, NULL));
    cuda_must(cudaStreamDestroy(stream));
    must(crun_barrier(world, NULL));
}

/* Until the library says why it ends. */
static void use_until_end(void)
{
    float *memory;

    cuda_must(cudaMalloc((void **)&memory, COUNT * sizeof(float)));
    for (;;) {
        must(crun_all_reduce(world, memory, memory, COUNT, CRUN_F32, CRUN_MAX, NULL));
        must(crun_barrier(world, NULL));
    }
}

static void use_illegal_address(void)
{
    must(crun_barrier(world, NULL));
    if (rank == size - 1)
        must(device_gpu()->narrow(NULL, (uint16_t *)64, (const float *)64, COUNT,
                                  CRUN_BF16));
    use_until_end();
}

static void never_return(void *arg)
{
    for (;;)
        pause();
}

static void block_stream(void)
{
#ifdef CRUN_EMULATED
    cuda_must(cuda_emulated_queue_waiting(NULL, never_return, NULL, NULL));
#else
    cuda_must(cudaLaunchHostFunc(NULL, never_return, NULL));
#endif
}

static void get_stuck(void)
{
    must(crun_barrier(world, NULL));
    if (rank == size - 1)
        block_stream();
    use_until_end();
}

/* -- save ------------------------------------------------------------------- */

#define SAVE_COUNT 300000 /* several pieces, and more than one bucket */
#define SAVE_STEPS 6

static crun_status train_step(crun_ddp *ddp, crun_optim *optim, int p, const float *g)
{
    crun_status s = crun_ddp_begin(ddp, true);

    if (s == CRUN_OK)
        s = device_gpu()->copy(NULL, crun_ddp_gradient(ddp, p), g,
                               SAVE_COUNT * sizeof(*g));
    if (s == CRUN_OK)
        s = crun_ddp_ready(ddp, p);
    if (s == CRUN_OK)
        s = crun_ddp_finish(ddp);
    return s == CRUN_OK ? crun_optim_step(optim, NULL) : s;
}

/* Saves that are under way after a failure are ended, too. */
static void train_and_save(void)
{
    float *gradient, value = 0, m = 0, mean = sum_of_ranks() / (float)size;
    const char *shard = getenv("GPU_WORKER_SHARD");
    crun_ddp_options options = { .shard = shard ? atoi(shard) : 0 };
    crun_checkpoints *checkpoints;
    uint64_t step = 0;
    crun_optim *optim;
    crun_ddp *ddp;
    crun_status s;
    int p;

    must(crun_ddp_create(&ddp, world, &options));
    p = crun_ddp_parameter(ddp, "w", SAVE_COUNT);
    must(crun_ddp_seal(ddp));
    must(crun_ddp_broadcast(ddp, 0));
    must(crun_optim_create(
        &optim, ddp,
        &(crun_optim_options){ .kind = CRUN_SGD, .lr = 1, .momentum = 0.5f }));
    must(crun_checkpoints_open(
        &checkpoints, world,
        &(crun_checkpoint_options){ .directory = getenv("GPU_WORKER_FOLDER"),
                                    .keep = 100 }));
    cuda_must(cudaMalloc((void **)&gradient, SAVE_COUNT * sizeof(float)));
    put_floats(gradient, SAVE_COUNT, (float)(rank + 1));
    s = crun_checkpoint_load(checkpoints, "", &step, ddp, optim, NULL, NULL, 0);
    if (s == CRUN_NOT_FOUND)
        s = CRUN_OK;
    while (s == CRUN_OK && step < SAVE_STEPS) {
        s = train_step(ddp, optim, p, gradient);
        if (s == CRUN_OK)
            s = crun_checkpoint_save(checkpoints, ++step, ddp, optim, NULL, NULL, 0);
    }
    crun_checkpoints_close(checkpoints);
    must(s);
    for (int i = 0; i < SAVE_STEPS; i++, value -= m)
        m = m / 2 + mean;
    must(crun_barrier(world, NULL));
    expect_floats(crun_ddp_value(ddp, p), SAVE_COUNT, value, value / mean,
                  "the parameters");
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    { "check", check_all },   { "free", check_free },
    { "graph", check_graph }, { "illegal", use_illegal_address },
    { "stuck", get_stuck },   { "save", train_and_save },
};

int main(int argc, char **argv)
{
    const char *timeout = getenv("GPU_WORKER_TIMEOUT");
    crun_options options = { .backend = "nccl",
                             .device = "auto",
                             .timeout_s = timeout ? atof(timeout) : 60,
                             .init_timeout_s = 120 };

    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        if (argc != 2 || strcmp(argv[1], scenarios[i].name) != 0)
            continue;
        if (scenarios[i].run == train_and_save)
            signal(SIGTERM, SIG_IGN);
        must(crun_init(&world, &options));
        rank = crun_rank(world);
        size = crun_size(world);
        scenarios[i].run();
        printf("rank %d: right\n", rank);
        leave(0);
    }
    fprintf(stderr, "usage: gpu-worker check|free|graph|illegal|stuck|save\n");
    return 2;
}

#else

int main(void)
{
    fprintf(stderr, "gpu-worker: this build is without CUDA\n");
    return 1;
}
#endif
