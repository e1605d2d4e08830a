/* SPDX-License-Identifier: MIT */
/* The table of device.h for a GPU, on top of gpu_calls.h. */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "rendezvous/common/base/clock.h"
#include "worker-lib/compute/gpu_calls.h"
#include "worker-lib/core/status.h"
#include "worker-lib/crun/worker.h"

#define SPINS 1000 /* about a millisecond */
#define PAUSE_NS 50000
#define PAUSE_NS_MAX 5000000
#define WAIT_MS 3600000 /* until device_limit_waits says it */

static _Atomic uint64_t wait_ms = WAIT_MS;

struct device_note {
    void *bytes; /* pinned */
    struct gpu_event *arrived;
};

/* Never NULL in the functions below: device_gpu checks it first. */
static const struct gpu_calls *cuda_calls(void)
{
    return gpu_calls_cuda();
}

static crun_status check_code(int code, const char *what)
{
    struct err e;

    if (code == GPU_OK)
        return CRUN_OK;
    return status_fail_with(
        gpu_calls_failed(cuda_calls(), GPU_CALLS_DEVICE, what, code, &e), &e);
}

/* -- waits ------------------------------------------------------------------------- */

void device_limit_waits(uint64_t ms)
{
    atomic_store(&wait_ms, ms);
}

static crun_status device_check_wait(const char *what, uint64_t began_ms)
{
    uint64_t limit = atomic_load(&wait_ms);
    const char *name = gpu_calls_name(GPU_CALLS_DEVICE);

    if (crun_exit_code())
        return status_fail(CRUN_SYSTEM, "%s: %s hangs", what, name);
    if (clock_ms() - began_ms > limit)
        return status_fail(CRUN_TIMEOUT,
                           "%s: %s has not done the work before it for %.3g s", what,
                           name, (double)limit / 1000);
    return CRUN_OK;
}

/*
 * Waits for the event, or without one for all that is in the queue. A kernel of NCCL
 * may wait for a rank that is lost; the library aborts the kernel at its deadline, and
 * if it does not end even then, this wait ends. It also ends if another kernel hangs.
 */
static crun_status gpu_await(struct gpu_event *event, void *queue, const char *what)
{
    const struct gpu_calls *gpu = cuda_calls();
    struct timespec pause = { .tv_nsec = PAUSE_NS };
    uint64_t began_ms = clock_ms();
    crun_status s = CRUN_OK;

    for (unsigned n = 0; s == CRUN_OK; n++) {
        int code = event ? gpu->event_query(event) : gpu->stream_query(queue);

        if (code != GPU_NOT_READY)
            return check_code(code, what);
        s = device_check_wait(what, began_ms);
        if (n <= SPINS)
            continue;
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < PAUSE_NS_MAX) /* about a hundredth of the whole wait */
            pause.tv_nsec += pause.tv_nsec / 100;
    }
    return s;
}

/* -- memory ------------------------------------------------------------------------ */

static crun_status gpu_set_device(int device)
{
    gpu_calls_learn(cuda_calls(), device);
    return check_code(cuda_calls()->set_device(device), "cudaSetDevice");
}

static crun_status gpu_device_alloc(size_t bytes, void **memory)
{
    crun_status s = check_code(cuda_calls()->alloc(memory, bytes ? bytes : 1),
                               "cudaMalloc");

    if (s == CRUN_OK)
        s = check_code(cuda_calls()->zero(*memory, bytes, NULL), "cudaMemset");
    return s == CRUN_OK ? check_code(cuda_calls()->stream_sync(NULL), "cudaMemset") : s;
}

static void gpu_free(void *memory)
{
    if (memory)
        (void)cuda_calls()->free(memory);
}

static crun_status gpu_zero(void *queue, void *to, size_t bytes)
{
    return check_code(cuda_calls()->zero(to, bytes, queue), "cudaMemset");
}

static crun_status gpu_copy(void *queue, void *to, const void *from, size_t bytes)
{
    return check_code(cuda_calls()->copy(to, from, bytes, queue), "cudaMemcpy");
}

/*
 * The program's memory may be pinned; then it is read only when the stream reaches the
 * copy. If it is not, the copy waits by itself for the work before it.
 */
static crun_status gpu_copy_and_wait(void *queue, void *to, const void *from,
                                     size_t bytes)
{
    crun_status s = gpu_await(NULL, queue, "cudaMemcpy");

    if (s == CRUN_OK)
        s = check_code(cuda_calls()->copy(to, from, bytes, queue), "cudaMemcpy");
    return s == CRUN_OK ? gpu_await(NULL, queue, "cudaMemcpy") : s;
}

static crun_status gpu_put_word(void *queue, int32_t *to, int32_t value)
{
    return check_code(cuda_calls()->put_word(queue, to, value), "a kernel");
}

static crun_status gpu_host_alloc(size_t bytes, void **memory)
{
    return check_code(cuda_calls()->host_alloc(memory, bytes ? bytes : 1),
                      "cudaHostAlloc");
}

static void gpu_host_free(void *memory)
{
    if (memory)
        (void)cuda_calls()->host_free(memory);
}

/* -- queues ------------------------------------------------------------------------ */

static crun_status gpu_make_queue(void **queue)
{
    struct gpu_stream *stream = NULL;
    int code = cuda_calls()->stream_create_plain(&stream);

    *queue = stream;
    return check_code(code, "cudaStreamCreate");
}

static void gpu_free_queue(void *queue)
{
    if (!queue)
        return;
    (void)cuda_calls()->stream_sync(queue);
    (void)cuda_calls()->stream_destroy(queue);
}

static crun_status gpu_follow(void *queue, void *earlier)
{
    const struct gpu_calls *gpu = cuda_calls();
    struct gpu_event *reached;
    int code = gpu->event_create_untimed(&reached);

    if (code != GPU_OK)
        return check_code(code, "cudaEventCreate");
    code = gpu->event_record(reached, earlier);
    if (code == GPU_OK)
        code = gpu->stream_wait(queue, reached);
    (void)gpu->event_destroy(reached);
    return check_code(code, "cudaStreamWaitEvent");
}

/* -- notes ------------------------------------------------------------------------- */

static void gpu_free_note(struct device_note *n)
{
    if (!n)
        return;
    if (n->arrived)
        (void)cuda_calls()->event_destroy(n->arrived);
    if (n->bytes)
        (void)cuda_calls()->host_free(n->bytes);
    free(n);
}

static struct device_note *gpu_make_note(void)
{
    struct device_note *n = calloc(1, sizeof(*n));

    if (n && (cuda_calls()->host_alloc(&n->bytes, NOTE_BYTES) != GPU_OK ||
              cuda_calls()->event_create_untimed(&n->arrived) != GPU_OK)) {
        gpu_free_note(n);
        return NULL;
    }
    return n;
}

static crun_status gpu_write_note(void *queue, struct device_note *n, const void *from,
                                  size_t bytes)
{
    int code = bytes ? cuda_calls()->copy(n->bytes, from, bytes, queue) : GPU_OK;

    return check_code(code ? code : cuda_calls()->event_record(n->arrived, queue),
                      "cudaMemcpy");
}

static const void *gpu_read_note(struct device_note *n)
{
    return gpu_await(n->arrived, NULL, "a wait for the GPU") == CRUN_OK ? n->bytes
                                                                        : NULL;
}

/* -- numbers ----------------------------------------------------------------------- */

static crun_status gpu_squares(void *queue, struct squares_work *work, double *sum,
                               const void *g, size_t count, crun_dtype type)
{
    return check_code(cuda_calls()->squares(queue, work, sum, g, count, type),
                      "the gradient's norm");
}

static crun_status gpu_prepare(void *queue, struct optim_control *c,
                               const struct optim_request *r, const double *sums)
{
    return check_code(cuda_calls()->prepare(queue, c, r, sums), "the optimizer's step");
}

static crun_status gpu_step(void *queue, const struct optim_control *c,
                            enum optim_rule rule, const struct step_arrays *a,
                            size_t count)
{
    return check_code(cuda_calls()->step(queue, c, rule, a, count),
                      "the optimizer's step");
}

static crun_status gpu_narrow(void *queue, uint16_t *to, const float *from,
                              size_t count, crun_dtype type)
{
    return check_code(cuda_calls()->narrow(queue, to, from, count, type),
                      "rounding to half precision");
}

static const struct device_ops ops = {
    .name = "cuda",
    .queued = true,
    .set_device = gpu_set_device,
    .alloc = gpu_device_alloc,
    .free = gpu_free,
    .zero = gpu_zero,
    .copy = gpu_copy,
    .put = gpu_copy_and_wait,
    .fetch = gpu_copy_and_wait,
    .put_word = gpu_put_word,
    .host_alloc = gpu_host_alloc,
    .host_free = gpu_host_free,
    .make_queue = gpu_make_queue,
    .free_queue = gpu_free_queue,
    .follow = gpu_follow,
    .make_note = gpu_make_note,
    .free_note = gpu_free_note,
    .write_note = gpu_write_note,
    .read_note = gpu_read_note,
    .squares = gpu_squares,
    .prepare = gpu_prepare,
    .step = gpu_step,
    .narrow = gpu_narrow,
};

const struct device_ops *device_gpu(void)
{
    static _Atomic bool found; /* a later error of the GPU is not a missing driver */
    int count = 0;

    if (cuda_calls() && !atomic_load(&found))
        atomic_store(&found, cuda_calls()->count(&count) == GPU_OK && count > 0);
    return atomic_load(&found) ? &ops : NULL;
}
