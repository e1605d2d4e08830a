/* SPDX-License-Identifier: MIT */
/*
 * What the nccl backend detects by itself: errors of the GPU, slow operations.
 * takes: 8 s
 * emulated GPU: NCCL is its stand-in
 */
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/ranks.h"

#define COUNT 1000
#define AT_ONCE_MS 20000 /* on a busy machine, and far below the worlds' time limit */

/* While the program waits: a call that begins later gets the error by itself. */
static void *break_gpu(void *device)
{
    usleep(100000);
    cuda_emulated_fail(*(const int *)device, cudaErrorIllegalAddress);
    return NULL;
}

/* -- an error of the GPU while an all-reduce is in flight -------------------------- */

static crun_status wait_in_barrier(crun_world *w, crun_work *flying)
{
    return crun_barrier(w, NULL);
}

static crun_status wait_in_host_collective(crun_world *w, crun_work *flying)
{
    float x = 1;

    return crun_all_reduce(w, &x, &x, 1, CRUN_F32, CRUN_SUM, NULL);
}

static crun_status poll_is_done(crun_world *w, crun_work *flying)
{
    while (!crun_is_done(flying))
        usleep(1000);
    return crun_wait(flying);
}

static crun_status make_no_call(crun_world *w, crun_work *flying)
{
    crun_status s = CRUN_OK;
    float x = 1;

    usleep(500000);
    s = crun_broadcast(w, &x, 1, CRUN_F32, 0, NULL);
    return s;
}

static const struct {
    const char *name;
    crun_status (*wait)(crun_world *w, crun_work *flying);
} waits[] = {
    { "barrier", wait_in_barrier },
    { "host collective", wait_in_host_collective },
    { "crun_is_done", poll_is_done },
    { "no call", make_no_call },
};

static void fault_in_flight(crun_world *w, void *arg)
{
    int rank = crun_rank(w), which = *(const int *)arg;
    uint64_t begun = clock_ms();
    crun_work *work = NULL;
    const char *words = "an illegal memory access was encountered";
    float *x = NULL;
    pthread_t breaker;
    crun_status s;

    ranks_ok(crun_alloc(w, COUNT * sizeof(float), (void **)&x));
    ranks_ok(crun_all_reduce(w, x, x, COUNT, CRUN_F32, CRUN_SUM, &work));
    rank_threads_sync();
    if (rank == 1)
        ck_assert_int_eq(pthread_create(&breaker, NULL, break_gpu, &rank), 0);
    s = rank == 1 ? waits[which].wait(w, work) : crun_barrier(w, NULL);
    if (rank == 1)
        pthread_join(breaker, NULL);
    ck_assert_int_eq(s, CRUN_SYSTEM);
    ck_assert_msg(strstr(crun_error_text(), words) &&
                      strncmp(crun_error_text(), "rank 1: ", rank == 1 ? 0 : 8) == 0,
                  "%s: %s", waits[which].name, crun_error_text());
    ck_assert_uint_lt(clock_ms() - begun, AT_ONCE_MS);
}

START_TEST(a_fault_of_the_gpu_ends_all_at_once)
{
    struct ranks_config c = { .size = 2, .backend = "nccl" };

    /* two are those of crun_init, the third is that of crun_alloc */
    setenv("CRUN_STANDIN_FAULT", "ncclAllReduce:stall:1:4", 1);
    ranks_run(&c, fault_in_flight, &_i);
}
END_TEST

/* -- a kernel that ignores the abort ----------------------------------------------- */

/* As in cudaDeviceSynchronize: no thread of the program ever calls the library again.
 */
static void hang_with_the_gpu(crun_world *w, void *arg)
{
    crun_work *work = NULL;
    float *x = NULL;

    ranks_ok(crun_alloc(w, COUNT * sizeof(float), (void **)&x));
    ranks_ok(crun_all_reduce(w, x, x, COUNT, CRUN_F32, CRUN_SUM, &work));
    for (;;)
        pause();
}

START_TEST(a_process_that_hangs_with_its_gpu_is_ended)
{
    struct ranks_config c = { .size = 2, .backend = "nccl", .timeout_s = 1 };

    setenv("CRUN_STANDIN_FAULT", "ncclAllReduce:deaf:1:4", 1);
    setenv("CRUN_STUCK_EXIT", "0.1", 1);
    ranks_run(&c, hang_with_the_gpu, NULL);
}
END_TEST

/* Copy engines would wait for ever. */
static void gather_alone(crun_world *w, void *arg)
{
    size_t count = (8 << 20) + 1;
    void *x = NULL;

    ranks_ok(crun_alloc(w, 2 * count, &x));
    if (crun_rank(w) == 1)
        rank_threads_sync();
    else
        (void)!crun_all_gather(w, x, x, count, CRUN_U8, NULL);
    ck_assert_int_eq(crun_barrier(w, NULL), CRUN_TIMEOUT);
    if (crun_rank(w) == 0)
        rank_threads_sync();
    crun_free(w, x);
    ck_assert_int_eq(crun_exit_code(), 0);
}

START_TEST(a_large_gather_without_a_rank_is_aborted)
{
    struct ranks_config c = { .size = 2, .backend = "nccl", .timeout_s = 1 };

    setenv("CRUN_STANDIN_VERSION", "23007", 1);
    ranks_run(&c, gather_alone, NULL);
}
END_TEST

/* -- a stream that is captured into a graph ---------------------------------------- */

static void expect_refused(crun_status s, const char *words)
{
    ck_assert_int_eq(s, CRUN_UNSUPPORTED);
    ck_assert_msg(strstr(crun_error_text(), words) == crun_error_text(), "%s",
                  crun_error_text());
}

static void call_during_capture(crun_world *w, void *arg)
{
    crun_work *work = NULL, *refused = NULL;
    float *x = NULL, host = 1;
    cudaStream_t stream;
    cudaGraph_t graph;

    ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                     cudaSuccess);
    ranks_ok(crun_set_stream(w, stream));
    ranks_ok(crun_alloc(w, COUNT * sizeof(float), (void **)&x));
    ranks_ok(crun_all_reduce(w, x, x, COUNT, CRUN_F32, CRUN_SUM, &work));
    ck_assert_int_eq(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal),
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

START_TEST(a_call_during_a_capture_is_refused)
{
    struct ranks_config c = { .size = 2, .backend = "nccl" };

    ranks_run(&c, call_during_capture, NULL);
}
END_TEST

/* -- calls of CUDA and work of the program that never end -------------------------- */

/* Between the abort, 1 s after the failure, and the time until which the end waits for
 * calls in progress, 1 s later. */
#define ABORTED_US 1500000
#define LARGE (3 << 20) /* elements: more than the staging buffers of crun_init */

static void expect_timeout(crun_status s, const char *words)
{
    ck_assert_msg(s == CRUN_TIMEOUT && strstr(crun_error_text(), words), "%s: %s",
                  crun_status_name(s), crun_error_text());
}

/* The limit of rank 1 ends later than that of rank 0, which does not know the cause. */
static const struct {
    unsigned late_us; /* rank 1 */
    const char *words;
} hangs[] = {
    { 0, "cudaFree has not returned for " },
    { 2000000, "; another rank's time limit is over" },
};

/* The second replacement of the staging buffer by a larger one hangs on rank 1. On a
 * busy machine, other calls still are within the limit. */
static void hang_in_cuda(crun_world *w, void *arg)
{
    float *x = xcalloc(LARGE, sizeof(*x));
    int which = *(const int *)arg;

    if (crun_rank(w) == 1)
        usleep(hangs[which].late_us);
    expect_timeout(crun_all_reduce(w, x, x, LARGE, CRUN_F32, CRUN_SUM, NULL),
                   hangs[which].words);
    /* the thread that hangs may still use it */
}

START_TEST(a_call_of_cuda_that_hangs_is_named)
{
    struct ranks_config c = { .size = 2, .backend = "nccl", .timeout_s = 4 };

    setenv("CRUN_STUCK_EXIT", "0", 1);
    setenv("CRUN_STANDIN_FAULT", "cudaFree:hang:1:2", 1);
    ranks_run(&c, hang_in_cuda, &_i);
    ck_assert_int_eq(crun_exit_code(), CRUN_EXIT_STUCK);
}
END_TEST

static void wait_for_flag(void *arg)
{
    while (!atomic_load((_Atomic bool *)arg))
        usleep(1000);
}

static void release_nothing(void *arg)
{
}

/* The staging buffer cannot be replaced while the program's kernel runs. Rank 0 ends
 * the kernel after NCCL's communicator has been aborted. */
static void abort_beside_a_call_of_cuda(crun_world *w, void *arg)
{
    float *x = xcalloc(LARGE, sizeof(*x));

    if (crun_rank(w) == 1)
        ck_assert_int_eq(
            cuda_emulated_queue_waiting(NULL, wait_for_flag, release_nothing, arg),
            cudaSuccess);
    expect_timeout(crun_all_reduce(w, x, x, LARGE, CRUN_F32, CRUN_SUM, NULL), "");
    if (crun_rank(w) == 0) {
        usleep(ABORTED_US);
        atomic_store((_Atomic bool *)arg, true);
    }
    /* the thread that hangs may still use it */
}

START_TEST(no_call_of_nccl_follows_its_abort)
{
    struct ranks_config c = { .size = 2, .backend = "nccl", .timeout_s = 1 };
    _Atomic bool flag = false;

    setenv("CRUN_STUCK_EXIT", "0", 1);
    ranks_run(&c, abort_beside_a_call_of_cuda, &flag);
}
END_TEST

static void wait_behind_own_kernel(crun_world *w, void *arg)
{
    cudaStream_t stream;

    ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                     cudaSuccess);
    ranks_ok(crun_set_stream(w, stream));
    ck_assert_int_eq(
        cuda_emulated_queue_waiting(stream, wait_for_flag, release_nothing, arg),
        cudaSuccess);
    expect_timeout(crun_barrier(w, NULL),
                   "has not done the work that was queued before it");
    atomic_store((_Atomic bool *)arg, true);
}

START_TEST(a_barrier_behind_the_programs_work_has_a_limit)
{
    struct ranks_config c = { .size = 1, .backend = "nccl", .timeout_s = 1 };
    _Atomic bool flag = false;

    ranks_run(&c, wait_behind_own_kernel, &flag);
}
END_TEST

/* -- a rank that does not come ----------------------------------------------------- */

static void stay_away(crun_world *w, void *arg)
{
    if (crun_rank(w) != 1)
        expect_timeout(crun_barrier(w, NULL),
                       "rank 1 on GPU 1 (0000:02:00.0) did not come to it");
    rank_threads_sync();
}

START_TEST(a_rank_that_does_not_come_is_named)
{
    struct ranks_config c = { .size = 3, .backend = "nccl", .timeout_s = 1 };

    ranks_run(&c, stay_away, NULL);
}
END_TEST

/* The watch looks more often, and does not name a call that takes so long. */
#define SLOW_QUERY_US 300000
static _Atomic bool queries_are_slow;
static cudaError_t (*query)(cudaEvent_t event);

/* Before a library is loaded, since this takes the loader's lock. */
__attribute__((constructor)) static void find_query(void)
{
    *(void **)&query = dlsym(RTLD_NEXT, "cudaEventQuery");
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (atomic_load(&queries_are_slow))
        usleep(SLOW_QUERY_US);
    return query(event);
}

/* The host's collective waits for the one in flight: its limit is over at the same
 * time, and the communication thread, as on a busy machine, has not seen that yet. */
static void stay_away_before_two(crun_world *w, void *arg)
{
    crun_work *work = NULL;
    void *x = NULL;

    ranks_ok(crun_alloc(w, COUNT, &x));
    rank_threads_sync();
    atomic_store(&queries_are_slow, true);
    if (crun_rank(w) != 1) {
        ranks_ok(crun_all_reduce(w, x, x, COUNT, CRUN_U8, CRUN_SUM, &work));
        expect_timeout(crun_barrier(w, NULL),
                       "rank 1 on GPU 1 (0000:02:00.0) did not come to it");
    }
    rank_threads_sync();
    atomic_store(&queries_are_slow, false);
}

START_TEST(a_rank_that_does_not_come_is_named_by_the_next_operation)
{
    struct ranks_config c = { .size = 2, .backend = "nccl", .timeout_s = 1 };

    ranks_run(&c, stay_away_before_two, NULL);
}
END_TEST

/* -- a library whose loading hangs ------------------------------------------------- */

static void *open_library(void *path)
{
    return dlopen(path, RTLD_NOW);
}

/* Until rank 0 queries the event after its all-reduce: the stand-in's calls before that
 * start threads. */
static void await_launch(const char *calls, long from)
{
    char text[4096] = "";
    const char *launch = NULL;

    while (!launch || !strstr(launch, "0 cudaEventQuery")) {
        FILE *f = fopen(calls, "re");

        usleep(1000);
        ck_assert_ptr_nonnull(f);
        ck_assert_int_eq(fseek(f, from, SEEK_SET), 0);
        text[fread(text, 1, sizeof(text) - 1, f)] = 0;
        fclose(f);
        launch = strstr(text, "0 ncclAllReduce");
    }
}

/* The loader's lock is held meanwhile, and starting a thread waits for it. */
static void stay_away_in_dlopen(crun_world *w, void *arg)
{
    const char *calls = getenv("CRUN_STANDIN_CALLS");
    struct stat before;
    pthread_t thread;
    int end;

    ck_assert_int_eq(stat(calls, &before), 0);
    rank_threads_sync();
    if (crun_rank(w) == 1) {
        await_launch(calls, before.st_size);
        ck_assert_int_eq(pthread_create(&thread, NULL, open_library, arg), 0);
    }
    stay_away(w, NULL);
    if (crun_rank(w) != 1)
        return;
    end = open(arg, O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(end, 0);
    close(end);
    pthread_join(thread, NULL);
}

START_TEST(a_world_ends_while_a_library_is_loaded)
{
    struct ranks_config c = { .size = 2, .backend = "nccl", .timeout_s = 1 };
    char folder[] = "/tmp/test-nccl-watch-XXXXXX", path[64], calls[64];

    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/library", folder);
    snprintf(calls, sizeof(calls), "%s/calls", folder);
    setenv("CRUN_STANDIN_CALLS", calls, 1);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ranks_run(&c, stay_away_in_dlopen, path);
    ck_assert_int_eq(crun_exit_code(), 0);
    unlink(path);
    unlink(calls);
    rmdir(folder);
}
END_TEST

/* -- leaving ----------------------------------------------------------------------- */

static void do_nothing(crun_world *w, void *arg)
{
}

/* NCCL does not destroy a communicator that has failed. */
START_TEST(what_cannot_be_finalized_is_aborted)
{
    struct ranks_config c = { .size = 1, .backend = "nccl" };

    setenv("CRUN_STANDIN_FAULT", "ncclCommFinalize:error:0,ncclCommDestroy:kill:0", 1);
    ranks_run(&c, do_nothing, NULL);
    ck_assert_int_eq(crun_exit_code(), 0);
}
END_TEST

/* -- communicators that block ------------------------------------------------------ */

static void sum_by_blocking_calls(crun_world *w, void *arg)
{
    float *x = NULL, host = 1;

    ranks_ok(crun_alloc(w, COUNT * sizeof(float), (void **)&x));
    ranks_ok(crun_all_reduce(w, x, x, COUNT, CRUN_F32, CRUN_SUM, NULL));
    ranks_ok(crun_all_reduce(w, &host, &host, 1, CRUN_F32, CRUN_SUM, NULL));
    ck_assert_float_eq(host, 2);
    crun_free(w, x);
}

/* NCCL connects two ranks at their first message: the call waits for the other rank. */
static void send_to_a_rank_that_does_not_come(crun_world *w, void *arg)
{
    float x = 1;

    if (crun_rank(w) == 0)
        expect_timeout(crun_send(w, &x, 1, CRUN_F32, 1), "send");
    rank_threads_sync();
}

static const struct {
    const char *variable;
    ranks_fn *run;
    double timeout_s;
} blocking[] = {
    { "CRUN_NCCL_BLOCKING", sum_by_blocking_calls, 0 },
    { "CRUN_NCCL_BLOCKING", send_to_a_rank_that_does_not_come, 1 },
    { "NCCL_COMM_BLOCKING", send_to_a_rank_that_does_not_come, 1 },
};

START_TEST(a_call_that_blocks_is_aborted)
{
    struct ranks_config c = { .size = 2,
                              .backend = "nccl",
                              .timeout_s = blocking[_i].timeout_s };

    setenv(blocking[_i].variable, "1", 1);
    ranks_run(&c, blocking[_i].run, NULL);
    ck_assert_int_eq(crun_exit_code(), 0);
}
END_TEST

static void expect_not_opened(struct team_member *m)
{
    ck_assert_int_ne(m->opened, CRUN_OK);
}

START_TEST(an_init_that_blocks_is_aborted)
{
    setenv("CRUN_NCCL_BLOCKING", "1", 1);
    setenv("CRUN_STANDIN_FAULT", "ncclCommInitRankConfig:error:1", 1);
    team_run(&(struct team_plan){ .calls = &backend_nccl,
                                  .size = 2,
                                  .body = expect_not_opened,
                                  .open_ms = 2000,
                                  .may_not_open = true });
    ck_assert_int_eq(crun_exit_code(), 0);
}
END_TEST

/* -- suite ------------------------------------------------------------------------- */

/* Each part waits for some seconds. */
int main(void)
{
    enum { PARTS = 6 };
    Suite *suite[PARTS];
    TCase *part[PARTS];

    for (unsigned i = 0; i < PARTS; i++) {
        suite[i] = suite_create("nccl_watch");
        part[i] = tcase_create("faults");
        suite_add_tcase(suite[i], part[i]);
    }
    tcase_add_loop_test(part[0], a_fault_of_the_gpu_ends_all_at_once, 0,
                        sizeof(waits) / sizeof(waits[0]));
    tcase_add_test(part[0], a_call_during_a_capture_is_refused);
    tcase_add_loop_test(part[1], a_call_of_cuda_that_hangs_is_named, 0, 1);
    tcase_add_loop_test(part[2], a_call_of_cuda_that_hangs_is_named, 1,
                        sizeof(hangs) / sizeof(hangs[0]));
    tcase_add_exit_test(part[3], a_process_that_hangs_with_its_gpu_is_ended,
                        CRUN_EXIT_STUCK);
    tcase_add_test(part[3], a_large_gather_without_a_rank_is_aborted);
    tcase_add_test(part[3], no_call_of_nccl_follows_its_abort);
    tcase_add_test(part[4], a_barrier_behind_the_programs_work_has_a_limit);
    tcase_add_test(part[4], a_rank_that_does_not_come_is_named);
    tcase_add_test(part[4], a_rank_that_does_not_come_is_named_by_the_next_operation);
    tcase_add_test(part[4], a_world_ends_while_a_library_is_loaded);
    tcase_add_test(part[4], what_cannot_be_finalized_is_aborted);
    tcase_add_loop_test(part[5], a_call_that_blocks_is_aborted, 0,
                        sizeof(blocking) / sizeof(blocking[0]));
    tcase_add_test(part[5], an_init_that_blocks_is_aborted);
    return check_main_together(suite, PARTS);
}
