/* SPDX-License-Identifier: MIT */
/* takes: 1 s */
/* emulated GPU: it is what is tested */
/* The rules of cuda_runtime.h on graphs. */
#include "tests/unit/fakes/cuda/emulated_test.h"

#include <pthread.h>

static cudaGraphExec_t end_and_instantiate(cudaStream_t s)
{
    cudaGraphExec_t exec;
    cudaGraph_t graph;

    must_do(cudaStreamEndCapture(s, &graph));
    must_do(cudaGraphInstantiate(&exec, graph, 0));
    must_do(cudaGraphDestroy(graph));
    return exec;
}

static void begin(cudaStream_t s)
{
    must_do(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
}

static void end_and_drop(cudaStream_t s)
{
    cudaGraph_t graph;

    must_do(cudaStreamEndCapture(s, &graph));
    must_do(cudaGraphDestroy(graph));
}

static void expect_no_graph(cudaStream_t s, cudaError_t wanted)
{
    enum cudaStreamCaptureStatus status;
    cudaGraph_t graph;

    expect_code(cudaStreamEndCapture(s, &graph), wanted);
    ck_assert_ptr_null(graph);
    must_do(cudaStreamIsCapturing(s, &status));
    ck_assert_int_eq(status, cudaStreamCaptureStatusNone);
}

/* -- replay ----------------------------------------------------------------- */

TEST(a_graph_runs_at_each_launch)
{
    cudaStream_t s = make_queue(), other = make_queue();
    enum cudaStreamCaptureStatus status;
    int *i = make_zero(), *pinned;
    cudaGraphExec_t exec;

    must_do(cudaHostAlloc((void **)&pinned, sizeof(*pinned), cudaHostAllocDefault));
    begin(s);
    launch_add(i, 2, s);
    must_do(cudaMemcpyAsync(pinned, i, sizeof(*pinned), cudaMemcpyDefault, s));
    must_do(cudaStreamIsCapturing(s, &status));
    ck_assert_int_eq(status, cudaStreamCaptureStatusActive);
    exec = end_and_instantiate(s);
    ck_assert_int_eq(read_int(i), 0);
    for (int n = 1; n <= 3; n++) {
        must_do(cudaGraphLaunch(exec, n == 2 ? other : s));
        must_do(cudaDeviceSynchronize());
        ck_assert_int_eq(*pinned, 2 * n);
    }
    must_do(cudaGraphLaunch(exec, s));
    must_do(cudaGraphExecDestroy(exec));
    must_do(cudaStreamSynchronize(s));
    ck_assert_int_eq(*pinned, 8);
}

TEST(branches_of_a_graph_are_ordered_by_events)
{
    cudaStream_t s = make_queue(), branch = make_queue();
    cudaEvent_t fork = make_mark(), join = make_mark();
    int *i = make_zero(), *k = make_zero();
    cudaGraphExec_t exec;

    begin(s);
    launch_add(i, 1, s);
    must_do(cudaEventRecord(fork, s));
    must_do(cudaStreamWaitEvent(branch, fork, 0));
    must_do(cudaMemcpyAsync(k, i, sizeof(*k), cudaMemcpyDefault, branch));
    must_do(cudaEventRecord(join, branch));
    must_do(cudaStreamWaitEvent(s, join, 0));
    launch_add(k, 10, s);
    exec = end_and_instantiate(s);
    for (int n = 1; n <= 2; n++) {
        must_do(cudaGraphLaunch(exec, s));
        must_do(cudaStreamSynchronize(s));
        ck_assert_int_eq(read_int(k), 10 + n);
    }
    launch_add(i, 1, branch); /* it is a plain stream again */
    must_do(cudaStreamSynchronize(branch));
    ck_assert_int_eq(read_int(i), 3);
    must_do(cudaGraphExecDestroy(exec));
}

TEST(waiting_kernels_run_at_each_launch)
{
    cudaStream_t s = make_queue();
    cudaGraphExec_t exec;
    static struct waiter w = { .open = true };

    w.number = make_zero();
    begin(s);
    launch_add(w.number, 1, s);
    queue_waiter(s, &w);
    exec = end_and_instantiate(s);
    for (int n = 1; n <= 2; n++) {
        must_do(cudaGraphLaunch(exec, s));
        WAIT_UNTIL(w.runs == n);
        ck_assert_int_eq(w.seen, n);
    }
    ck_assert_int_eq(w.released, 0);
    must_do(cudaStreamSynchronize(s));
    must_do(cudaGraphExecDestroy(exec));
    ck_assert_int_eq(w.released, 1);
}

/* -- what ends a capture ---------------------------------------------------- */

TEST_LOOP(unsafe_calls_end_a_capture, 0, 6)
{
    cudaStream_t s = make_queue();
    cudaEvent_t e = make_mark();
    enum cudaStreamCaptureStatus status;
    void *memory;

    must_do(cudaEventRecord(e, NULL));
    begin(s);
    expect_code(_i == 0   ? cudaMalloc(&memory, 1)
                : _i == 1 ? cudaEventQuery(e)
                : _i == 2 ? cudaStreamSynchronize(NULL)
                : _i == 3 ? cudaStreamSynchronize(s)
                : _i == 4 ? cudaEventSynchronize(e)
                          : cudaHostAlloc(&memory, 1, cudaHostAllocDefault),
                cudaErrorStreamCaptureUnsupported);
    must_do(cudaStreamIsCapturing(s, &status));
    ck_assert_int_eq(status, cudaStreamCaptureStatusInvalidated);
    expect_code(cudaEventRecord(e, s), cudaErrorStreamCaptureInvalidated);
    expect_no_graph(s, cudaErrorStreamCaptureInvalidated);
    must_do(cudaEventRecord(e, s));
    must_do(cudaEventSynchronize(e));
}

struct other_thread {
    cudaEvent_t event;
    bool relaxed;
    cudaError_t code;
};

static void *query_event(void *arg)
{
    struct other_thread *o = arg;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;

    if (o->relaxed)
        must_do(cudaThreadExchangeStreamCaptureMode(&mode));
    ck_assert_int_eq(mode, o->relaxed ? cudaStreamCaptureModeGlobal
                                      : cudaStreamCaptureModeRelaxed);
    o->code = cudaEventQuery(o->event);
    return NULL;
}

static cudaError_t query_beside(cudaEvent_t e, bool relaxed)
{
    struct other_thread o = { .event = e, .relaxed = relaxed };
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, query_event, &o), 0);
    pthread_join(thread, NULL);
    return o.code;
}

TEST(modes_say_what_other_threads_may_do)
{
    cudaStream_t s = make_queue();
    cudaEvent_t e = make_mark();

    must_do(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    must_do(query_beside(e, false));
    end_and_drop(s);
    must_do(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    must_do(cudaEventQuery(e));
    end_and_drop(s);
    begin(s);
    must_do(query_beside(e, true));
    end_and_drop(s);
    begin(s);
    expect_code(query_beside(e, false), cudaErrorStreamCaptureUnsupported);
    expect_no_graph(s, cudaErrorStreamCaptureInvalidated);
}

TEST(captured_events_are_of_the_capture)
{
    cudaStream_t s = make_queue(), other = make_queue();
    cudaEvent_t inside = make_mark(), outside = make_mark();
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;

    must_do(cudaThreadExchangeStreamCaptureMode(&mode));
    must_do(cudaEventRecord(outside, other));
    begin(s);
    must_do(cudaEventRecord(inside, s));
    expect_code(cudaEventQuery(inside), cudaErrorCapturedEvent);
    expect_no_graph(s, cudaErrorStreamCaptureInvalidated);
    expect_code(cudaStreamWaitEvent(other, inside, 0),
                cudaErrorStreamCaptureInvalidated);
    begin(s);
    expect_code(cudaStreamWaitEvent(s, outside, 0), cudaErrorStreamCaptureIsolation);
    expect_no_graph(s, cudaErrorStreamCaptureInvalidated);
    begin(s);
    begin(other);
    must_do(cudaEventRecord(inside, s));
    expect_code(cudaStreamWaitEvent(other, inside, 0), cudaErrorStreamCaptureMerge);
    expect_no_graph(s, cudaErrorStreamCaptureInvalidated);
    expect_no_graph(other, cudaErrorStreamCaptureInvalidated);
}

TEST(a_capture_ends_where_it_began)
{
    cudaStream_t s = make_queue(), branch = make_queue();
    cudaEvent_t fork = make_mark();
    cudaGraph_t graph;
    int *i = make_zero();

    expect_code(cudaStreamEndCapture(s, &graph), cudaErrorIllegalState);
    expect_code(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeGlobal),
                cudaErrorStreamCaptureUnsupported);
    begin(s);
    expect_code(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal),
                cudaErrorIllegalState);
    must_do(cudaEventRecord(fork, s));
    must_do(cudaStreamWaitEvent(branch, fork, 0));
    launch_add(i, 1, branch);
    expect_no_graph(s, cudaErrorStreamCaptureUnjoined);
    begin(s);
    must_do(cudaEventRecord(fork, s));
    must_do(cudaStreamWaitEvent(branch, fork, 0));
    expect_code(cudaStreamEndCapture(branch, &graph), cudaErrorStreamCaptureUnmatched);
    expect_no_graph(s, cudaErrorStreamCaptureInvalidated);
}

TEST(the_default_stream_is_not_captured)
{
    enum cudaStreamCaptureStatus status;
    cudaStream_t s;
    int *i = make_zero();

    must_do(cudaStreamCreateWithFlags(&s, cudaStreamDefault));
    begin(s);
    expect_code(cudaStreamIsCapturing(NULL, &status), cudaErrorStreamCaptureImplicit);
    end_and_drop(s);
    (void)cudaGetLastError();
    begin(s);
    launch_add(i, 1, NULL);
    expect_code(cudaGetLastError(), cudaErrorStreamCaptureImplicit);
    expect_no_graph(s, cudaErrorStreamCaptureInvalidated);
    (void)cudaGetLastError();
    s = make_queue();
    begin(s);
    launch_add(i, 1, NULL);
    must_do(cudaGetLastError());
    end_and_drop(s);
    ck_assert_int_eq(read_int(i), 1);
}
