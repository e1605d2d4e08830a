/* SPDX-License-Identifier: MIT */
/* GPUs without NCCL: a GPU that fails or hangs does not keep a rank waiting.
 * takes: 30 s
 * emulated GPU: faults of its calls */
#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/xalloc.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/ranks.h"

#define COUNT 1000
#define LARGE (3 << 20)  /* elements: several chunks */
#define AT_ONCE_MS 20000 /* on a busy machine, and far below the worlds' time limit */

static void expect_failure(crun_status s, crun_status wanted, const char *words)
{
    ck_assert_msg(s == wanted && strstr(crun_error_text(), words), "%s: %s",
                  crun_status_name(s), crun_error_text());
}

static float *make_numbers(crun_world *w, size_t count)
{
    float *x = NULL;

    ranks_ok(crun_alloc(w, count * sizeof(float), (void **)&x));
    return x;
}

/* Where the world's limit is so short that crun_alloc might not keep it on a busy
 * machine. It stays until the process ends. */
static float *make_unset_numbers(size_t count)
{
    void *x = NULL;

    ck_assert_int_eq(cudaMalloc(&x, count * sizeof(float)), cudaSuccess);
    return x;
}

/* -- work of the program that never ends ------------------------------------ */

static void wait_for_flag(void *arg)
{
    while (!atomic_load((_Atomic bool *)arg))
        usleep(1000);
}

static void release_nothing(void *arg)
{
    (void)arg;
}

/* Calls that wait for the GPU of rank 1, on both ranks. */
static crun_status call_in_turn(crun_world *w, int which, float *x)
{
    crun_work *work = NULL;
    crun_status s;

    switch (which) {
    case 0:
        return crun_all_reduce(w, x, x, COUNT, CRUN_F32, CRUN_SUM, NULL);
    case 1:
        s = crun_all_reduce(w, x, x, COUNT, CRUN_F32, CRUN_SUM, &work);
        return s == CRUN_OK ? crun_wait(work) : s;
    case 2:
        return crun_rank(w) == 1 ? crun_send(w, x, COUNT, CRUN_F32, 0)
                                 : crun_receive(w, x, COUNT, CRUN_F32, 1);
    default:
        return crun_rank(w) == 0 ? crun_send(w, x, COUNT, CRUN_F32, 1)
                                 : crun_receive(w, x, COUNT, CRUN_F32, 0);
    }
}

#define CALLS 4

struct hanging_call {
    int which;
    _Atomic bool flag;
};

static void call_behind_hanging_kernel(crun_world *w, void *arg)
{
    struct hanging_call *call = arg;
    float *x = make_unset_numbers(COUNT);
    cudaStream_t stream;
    uint64_t begun;
    crun_status s;

    ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                     cudaSuccess);
    ranks_ok(crun_set_stream(w, stream));
    if (crun_rank(w) == 1)
        ck_assert_int_eq(cuda_emulated_queue_waiting(stream, wait_for_flag,
                                                     release_nothing, &call->flag),
                         cudaSuccess);
    rank_threads_sync();
    begun = clock_ms();
    s = call_in_turn(w, call->which, x);
    /* a message may be sent before the other rank receives it */
    if (crun_rank(w) == 0 && call->which == 3 && s == CRUN_OK)
        s = crun_barrier(w, NULL);
    expect_failure(s, CRUN_TIMEOUT, "GPU 1 of rank 1 has not done its work");
    ck_assert_uint_lt(clock_ms() - begun, AT_ONCE_MS);
}

START_TEST(a_hanging_gpu_is_named_in_time)
{
    struct ranks_config c = { .size = 2, .backend = "cuda-host", .timeout_s = 1 };
    struct hanging_call call = { .which = _i };

    setenv("CRUN_STUCK_EXIT", "0", 1);
    ranks_run(&c, call_behind_hanging_kernel, &call);
    ck_assert_int_eq(crun_exit_code(), CRUN_EXIT_STUCK);
    atomic_store(&call.flag, true);
}
END_TEST

/* The kernel ends soon after the failure: everything can be freed. */
static void fail_behind_slow_kernel(crun_world *w, void *arg)
{
    float *x = make_numbers(w, COUNT);
    _Atomic bool *flag = arg;
    crun_work *work = NULL;
    cudaStream_t stream;

    ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                     cudaSuccess);
    ranks_ok(crun_set_stream(w, stream));
    if (crun_rank(w) == 1)
        ck_assert_int_eq(
            cuda_emulated_queue_waiting(stream, wait_for_flag, release_nothing, flag),
            cudaSuccess);
    ranks_ok(crun_all_reduce(w, x, x, COUNT, CRUN_F32, CRUN_SUM, &work));
    if (crun_rank(w) == 0) {
        crun_abort(w, "enough");
        usleep(300000);
        atomic_store(flag, true);
    }
    expect_failure(crun_wait(work), CRUN_ABORTED, "enough");
    crun_free(w, x);
}

START_TEST(a_gpu_that_comes_back_after_the_end_is_not_stuck)
{
    struct ranks_config c = { .size = 2, .backend = "cuda-host" };
    _Atomic bool flag = false;
    uint64_t begun = clock_ms();

    setenv("CRUN_STUCK_EXIT", "0", 1);
    ranks_run(&c, fail_behind_slow_kernel, &flag);
    ck_assert_int_eq(crun_exit_code(), 0);
    ck_assert_uint_lt(clock_ms() - begun, AT_ONCE_MS);
}
END_TEST

/* -- calls of CUDA ---------------------------------------------------------- */

static void sum_until_a_failure(crun_world *w, void *arg)
{
    float *x = make_numbers(w, LARGE);
    uint64_t begun = clock_ms();
    crun_status s = CRUN_OK;

    for (int i = 0; i < 3 && s == CRUN_OK; i++)
        s = crun_all_reduce(w, x, x, LARGE, CRUN_F32, CRUN_SUM, NULL);
    expect_failure(s, CRUN_SYSTEM, arg);
    ck_assert_uint_lt(clock_ms() - begun, AT_ONCE_MS);
    crun_free(w, x);
}

static const struct {
    const char *fault, *words;
} gpu_errors[] = {
    { "cudaMemcpyAsync:sticky:1:2", "an illegal memory access was encountered" },
    { "cudaMemcpyAsync:async:1:2", "an illegal memory access was encountered" },
    { "cudaEventRecord:error:1:6", "cudaEventRecord: unknown error" },
    { "cudaEventQuery:error:1:6", "unknown error" },
};

START_TEST(an_error_of_the_gpu_ends_all_at_once)
{
    struct ranks_config c = { .size = 2, .backend = "cuda-host" };
    char words[200];

    strcpy(words, gpu_errors[_i].words);
    setenv("CRUN_STANDIN_FAULT", gpu_errors[_i].fault, 1);
    ranks_run(&c, sum_until_a_failure, words);
    ck_assert_int_eq(crun_exit_code(), 0);
}
END_TEST

/* Rank 1 is in the call for ever: its process ends by itself, after it has informed the
 * other rank. On a busy machine, other calls, also of crun_init, still are within the
 * limit. */
static void hang_in_call(crun_world *w, void *arg)
{
    float *x = make_unset_numbers(LARGE);
    crun_status s = CRUN_OK;

    for (int i = 0; i < 3 && s == CRUN_OK; i++)
        s = crun_all_reduce(w, x, x, LARGE, CRUN_F32, CRUN_SUM, NULL);
    /* on a busy machine the other rank may notice first that this one is late */
    if (!strstr(crun_error_text(), "for rank 1 (pid "))
        expect_failure(s, CRUN_TIMEOUT, arg);
    for (;;)
        pause();
}

static const struct {
    const char *fault, *words;
} hanging_calls[] = {
    { "cudaMemcpyAsync:hang:1:2",
      "cudaMemcpyAsync has not returned for 4 s on GPU 1 of rank 1" },
    { "cudaEventRecord:hang:1:4",
      "cudaEventRecord has not returned for 4 s on GPU 1 of rank 1" },
    { "cudaEventQuery:hang:1:1",
      "cudaEventQuery has not returned for 4 s on GPU 1 of rank 1" },
};

START_TEST(a_call_that_hangs_ends_the_process)
{
    struct ranks_config c = { .size = 2, .backend = "cuda-host", .timeout_s = 4 };
    char words[200];

    strcpy(words, hanging_calls[_i].words);
    setenv("CRUN_STUCK_EXIT", "2", 1);
    setenv("CRUN_STANDIN_FAULT", hanging_calls[_i].fault, 1);
    ranks_run(&c, hang_in_call, words);
}
END_TEST

/* -- a stream that is captured into a graph --------------------------------- */

static void expect_refused(crun_status s, const char *words)
{
    ck_assert_int_eq(s, CRUN_UNSUPPORTED);
    ck_assert_msg(strstr(crun_error_text(), words) == crun_error_text(), "%s",
                  crun_error_text());
}

static void call_during_capture(crun_world *w, void *arg)
{
    crun_work *work = NULL, *refused = NULL;
    float *x = make_numbers(w, LARGE), host = 1;
    cudaStream_t stream;
    cudaGraph_t graph;

    ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                     cudaSuccess);
    ranks_ok(crun_set_stream(w, stream));
    ranks_ok(crun_all_reduce(w, x, x, LARGE, CRUN_F32, CRUN_SUM, &work));
    ck_assert_int_eq(cudaStreamBeginCapture(stream, *(enum cudaStreamCaptureMode *)arg),
                     cudaSuccess);
    expect_refused(crun_all_reduce(w, x, x, COUNT, CRUN_F32, CRUN_SUM, &refused),
                   "crun_all_reduce: the stream is being captured into a CUDA graph; ");
    ck_assert_ptr_null(refused);
    expect_refused(crun_barrier(w, NULL), "crun_barrier: the stream is being captured");
    expect_refused(crun_broadcast(w, &host, 1, CRUN_F32, 0, NULL), "crun_broadcast: ");
    ranks_ok(crun_wait(work));
    ck_assert_int_eq(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ck_assert_int_eq(cudaGraphDestroy(graph), cudaSuccess);
    ranks_ok(crun_all_reduce(w, &host, &host, 1, CRUN_F32, CRUN_SUM, NULL));
    ck_assert_float_eq(host, 2);
    crun_free(w, x);
}

static enum cudaStreamCaptureMode capture_modes[] = { cudaStreamCaptureModeGlobal,
                                                      cudaStreamCaptureModeThreadLocal,
                                                      cudaStreamCaptureModeRelaxed };
#define CAPTURE_MODES (sizeof(capture_modes) / sizeof(capture_modes[0]))

START_TEST(a_call_during_a_capture_is_refused)
{
    struct ranks_config c = { .size = 2, .backend = "cuda-host" };

    ranks_run(&c, call_during_capture, &capture_modes[_i]);
}
END_TEST

/* -- messages --------------------------------------------------------------- */

static void copy_and_wait(void *to, const void *from, size_t bytes)
{
    ck_assert_int_eq(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, NULL),
                     cudaSuccess);
    ck_assert_int_eq(cudaStreamSynchronize(NULL), cudaSuccess);
}

/* Larger than the slots, and not a multiple of them. */
static void exchange_large(crun_world *w, void *arg)
{
    size_t count = LARGE + 7;
    float *x = make_numbers(w, count), *y = make_numbers(w, count);
    float *host = xcalloc(count, sizeof(*host));
    int rank = crun_rank(w);

    (void)arg;
    for (size_t i = 0; i < count; i++)
        host[i] = (float)(i + (size_t)rank);
    copy_and_wait(x, host, count * sizeof(*host));
    ranks_ok(crun_group_begin(w));
    ranks_ok(crun_send(w, x, count, CRUN_F32, !rank));
    ranks_ok(crun_receive(w, y, count, CRUN_F32, !rank));
    ranks_ok(crun_group_end(w, NULL));
    copy_and_wait(host, y, count * sizeof(*host));
    for (size_t i = 0; i < count; i++)
        if (host[i] != (float)(i + (size_t)!rank))
            ck_abort_msg("%zu: %g", i, (double)host[i]);
    free(host);
    crun_free(w, x);
    crun_free(w, y);
}

/* One buffer is in host memory, the other one on the GPU. */
static void sum_between_memories(crun_world *w, void *arg)
{
    float *x = make_numbers(w, LARGE), *host = xcalloc(LARGE, sizeof(*host));

    (void)arg;
    for (size_t i = 0; i < LARGE; i++)
        host[i] = (float)(i % 1000);
    ranks_ok(crun_all_reduce(w, host, x, LARGE, CRUN_F32, CRUN_SUM, NULL));
    ranks_ok(crun_all_reduce(w, x, host, LARGE, CRUN_F32, CRUN_SUM, NULL));
    for (size_t i = 0; i < LARGE; i++)
        if (host[i] != (float)(4 * (i % 1000)))
            ck_abort_msg("%zu: %g", i, (double)host[i]);
    free(host);
    crun_free(w, x);
}

START_TEST(data_moves_between_memories)
{
    struct ranks_config c = { .size = 2, .backend = "cuda-host" };

    ranks_run(&c, sum_between_memories, NULL);
}
END_TEST

START_TEST(large_messages_arrive_whole)
{
    struct ranks_config c = { .size = 2, .backend = "cuda-host" };

    ranks_run(&c, exchange_large, NULL);
}
END_TEST

/* -- suite ------------------------------------------------------------------ */

int main(void)
{
    Suite *suite = suite_create("backend_cuda_host");
    TCase *faults = tcase_create("faults");

    tcase_set_timeout(faults, 60);
    tcase_add_loop_test(faults, a_hanging_gpu_is_named_in_time, 0, CALLS);
    tcase_add_test(faults, a_gpu_that_comes_back_after_the_end_is_not_stuck);
    tcase_add_loop_test(faults, an_error_of_the_gpu_ends_all_at_once, 0,
                        sizeof(gpu_errors) / sizeof(gpu_errors[0]));
    for (size_t i = 0; i < sizeof(hanging_calls) / sizeof(hanging_calls[0]); i++)
        tcase_add_loop_exit_test(faults, a_call_that_hangs_ends_the_process,
                                 CRUN_EXIT_STUCK, (int)i, (int)i + 1);
    tcase_add_loop_test(faults, a_call_during_a_capture_is_refused, 0, CAPTURE_MODES);
    tcase_add_test(faults, data_moves_between_memories);
    tcase_add_test(faults, large_messages_arrive_whole);
    suite_add_tcase(suite, faults);
    return check_main(suite);
}
