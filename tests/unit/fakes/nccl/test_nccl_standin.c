/* SPDX-License-Identifier: MIT */
/* emulated GPU: the rules of the stand-in for NCCL, which is called directly */
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous/base/clock.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/rank_threads.h"
#include "worker-lib/backends/nccl/nccl_calls.h"

#define SIZE 2
#define COUNT 1000
#define BYTES (COUNT * sizeof(float))
#define NOCOLOR (-1)
#define A_WHILE_MS 200
#define PATIENCE_MS 20000

#define OK(call) ck_assert_int_eq((call), NCCL_OK)
#define CUDA(call) ck_assert_int_eq((call), cudaSuccess)

typedef struct nccl_comm *comm_t;

static struct {
    int (*unique_id)(struct nccl_id *id);
    int (*init)(comm_t *comm, int size, struct nccl_id id, int rank,
                struct nccl_config *config);
    int (*finalize)(comm_t comm);
    int (*destroy)(comm_t comm);
    int (*abort)(comm_t comm);
    int (*async_error)(comm_t comm, int *state);
    int (*split)(comm_t comm, int color, int key, comm_t *out,
                 struct nccl_config *config);
    int (*mem_alloc)(void **memory, size_t bytes);
    int (*mem_free)(void *memory);
    int (*register_memory)(comm_t comm, void *memory, size_t bytes, void **handle);
    int (*window)(comm_t comm, void *memory, size_t bytes, struct nccl_window **window,
                  int flags);
    int (*all_reduce)(const void *in, void *out, size_t count, int type, int op,
                      comm_t comm, cudaStream_t stream);
    int (*all_gather)(const void *in, void *out, size_t count, int type, comm_t comm,
                      cudaStream_t stream);
    int (*send)(const void *in, size_t count, int type, int peer, comm_t comm,
                cudaStream_t stream);
    int (*receive)(void *out, size_t count, int type, int peer, comm_t comm,
                   cudaStream_t stream);
    int (*group_start)(void);
    int (*group_end)(void);
} nccl;

static void open_standin(void)
{
    static const struct {
        const char *symbol;
        void **to;
    } symbols[] = {
        { "ncclGetUniqueId", (void **)&nccl.unique_id },
        { "ncclCommInitRankConfig", (void **)&nccl.init },
        { "ncclCommFinalize", (void **)&nccl.finalize },
        { "ncclCommDestroy", (void **)&nccl.destroy },
        { "ncclCommAbort", (void **)&nccl.abort },
        { "ncclCommGetAsyncError", (void **)&nccl.async_error },
        { "ncclCommSplit", (void **)&nccl.split },
        { "ncclMemAlloc", (void **)&nccl.mem_alloc },
        { "ncclMemFree", (void **)&nccl.mem_free },
        { "ncclCommRegister", (void **)&nccl.register_memory },
        { "ncclCommWindowRegister", (void **)&nccl.window },
        { "ncclAllReduce", (void **)&nccl.all_reduce },
        { "ncclAllGather", (void **)&nccl.all_gather },
        { "ncclSend", (void **)&nccl.send },
        { "ncclRecv", (void **)&nccl.receive },
        { "ncclGroupStart", (void **)&nccl.group_start },
        { "ncclGroupEnd", (void **)&nccl.group_end },
    };
    void *library = dlopen("libnccl-standin.so", RTLD_NOW);

    ck_assert_msg(library, "%s", dlerror());
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        *symbols[i].to = dlsym(library, symbols[i].symbol);
        ck_assert_ptr_nonnull(*symbols[i].to);
    }
}

/* -- ranks ---------------------------------------------------------------------------
 */

static struct nccl_id id;

struct rank {
    int rank, size;
    comm_t comm;
    cudaStream_t stream;
    float *x; /* COUNT elements for each rank, of ncclMemAlloc */
};

static struct nccl_config configured(int blocking)
{
    return (struct nccl_config){ .size = sizeof(struct nccl_config),
                                 .magic = NCCL_CONFIG_MAGIC,
                                 .version = NCCL_CONFIG_VERSION,
                                 .blocking = blocking,
                                 .cga_cluster_size = INT_MIN,
                                 .ctas_min = INT_MIN,
                                 .ctas_max = INT_MIN,
                                 .split_share = INT_MIN };
}

/* Until a call is over: its result. */
static int settle(comm_t comm, int result)
{
    uint64_t until = clock_ms() + PATIENCE_MS;

    do {
        if (result != NCCL_OK && result != NCCL_IN_PROGRESS)
            return result;
        OK(nccl.async_error(comm, &result));
        if (result == NCCL_IN_PROGRESS)
            sched_yield();
        ck_assert_uint_lt(clock_ms(), until);
    } while (result == NCCL_IN_PROGRESS);
    return result;
}

static void fill(struct rank *r, float value)
{
    float *host = calloc((size_t)r->size, BYTES);

    for (size_t i = 0; i < (size_t)r->size * COUNT; i++)
        host[i] = value;
    CUDA(cudaMemcpyAsync(r->x, host, (size_t)r->size * BYTES, cudaMemcpyHostToDevice,
                         r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    free(host);
}

static float value_at(struct rank *r, size_t i)
{
    float value = -1;

    CUDA(cudaMemcpyAsync(&value, r->x + i, sizeof(value), cudaMemcpyDeviceToHost,
                         r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    return value;
}

static int all_reduce(struct rank *r, size_t count)
{
    return nccl.all_reduce(r->x, r->x, count, NCCL_F32, NCCL_SUM, r->comm, r->stream);
}

static void begin(struct rank *r, unsigned rank, int size, int blocking)
{
    struct nccl_config config = configured(blocking);
    int result;

    *r = (struct rank){ .rank = (int)rank, .size = size };
    CUDA(cudaSetDevice((int)rank));
    if (rank == 0)
        OK(nccl.unique_id(&id));
    rank_threads_sync();
    result = nccl.init(&r->comm, size, id, (int)rank, &config);
    OK(settle(r->comm, result));
    CUDA(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    OK(nccl.mem_alloc((void **)&r->x, (size_t)size * BYTES));
    fill(r, 1);
}

/* Its algorithm and its pairs are connected. */
static void warm_up(struct rank *r)
{
    OK(settle(r->comm, all_reduce(r, COUNT)));
    OK(settle(r->comm,
              nccl.all_gather(r->x, r->x, COUNT, NCCL_F32, r->comm, r->stream)));
    CUDA(cudaStreamSynchronize(r->stream));
    fill(r, 1);
    rank_threads_sync();
}

static void end(struct rank *r)
{
    CUDA(cudaStreamSynchronize(r->stream));
    OK(settle(r->comm, nccl.finalize(r->comm)));
    OK(nccl.destroy(r->comm));
    OK(nccl.mem_free(r->x));
}

static void *abort_comm(void *arg)
{
    (void)nccl.abort((comm_t)arg);
    return NULL;
}

/* Whether the communicator can be aborted in a while. */
static bool aborts(comm_t comm)
{
    struct timespec until;
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, abort_comm, comm), 0);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    if (pthread_timedjoin_np(thread, NULL, &until) == 0)
        return true;
    pthread_detach(thread);
    return false;
}

/* -- calls in progress ---------------------------------------------------------------
 */

static void call_twice(unsigned rank, void *arg)
{
    struct rank r;

    (void)arg;
    begin(&r, rank, SIZE, 0);
    if (rank == 0) { /* it waits for the other rank to connect */
        ck_assert_int_eq(all_reduce(&r, COUNT), NCCL_IN_PROGRESS);
        ck_assert_int_eq(all_reduce(&r, COUNT), NCCL_BAD_ARGUMENT);
        ck_assert_int_eq(nccl.finalize(r.comm), NCCL_BAD_ARGUMENT);
    }
    rank_threads_sync();
    if (rank == 1)
        ck_assert_int_eq(all_reduce(&r, COUNT), NCCL_IN_PROGRESS);
    rank_threads_sync();
    usleep(A_WHILE_MS * 1000);
    if (rank == 0)
        OK(settle(r.comm, NCCL_OK));
    else
        OK(settle(r.comm, NCCL_IN_PROGRESS));
    ck_assert_float_eq(value_at(&r, 0), SIZE);
    end(&r);
}

START_TEST(a_second_call_in_progress_is_refused)
{
    rank_threads_run(SIZE, call_twice, NULL);
}
END_TEST

/* The kernel is put into the stream later than the event. */
static void record_early(unsigned rank, void *arg)
{
    struct rank r;
    cudaEvent_t early, late;

    (void)arg;
    begin(&r, rank, SIZE, 0);
    warm_up(&r);
    CUDA(cudaEventCreateWithFlags(&early, cudaEventDisableTiming));
    CUDA(cudaEventCreateWithFlags(&late, cudaEventDisableTiming));
    if (rank == 0) {
        int result = all_reduce(&r, COUNT);

        CUDA(cudaEventRecord(early, r.stream));
        OK(settle(r.comm, result));
        CUDA(cudaEventRecord(late, r.stream));
        CUDA(cudaEventSynchronize(early));
        ck_assert_int_eq(cudaEventQuery(late), cudaErrorNotReady);
    }
    rank_threads_sync();
    if (rank == 1)
        OK(settle(r.comm, all_reduce(&r, COUNT)));
    end(&r);
}

START_TEST(an_event_recorded_too_early_is_before_the_kernel)
{
    rank_threads_run(SIZE, record_early, NULL);
}
END_TEST

static const struct {
    const char *version;
    int message, window; /* what the calls return in progress */
} early[] = {
    { "21903", NCCL_OK, -1 },
    { "22304", NCCL_OK, -1 },
    { "22707", NCCL_IN_PROGRESS, NCCL_IN_PROGRESS },
    { "22809", NCCL_IN_PROGRESS, NCCL_OK },
    { "23007", NCCL_IN_PROGRESS, NCCL_OK },
};

static void return_early(unsigned rank, void *arg)
{
    int i = *(int *)arg, result;
    struct nccl_window *window = NULL;
    struct rank r;

    begin(&r, rank, SIZE, 0);
    result = rank == 0 ? nccl.send(r.x, 1, NCCL_F32, 1, r.comm, r.stream)
                       : nccl.receive(r.x, 1, NCCL_F32, 0, r.comm, r.stream);
    ck_assert_int_eq(result, early[i].message);
    OK(settle(r.comm, NCCL_OK));
    if (early[i].window >= 0) {
        result = nccl.window(r.comm, r.x, SIZE * BYTES, &window, NCCL_WINDOW_SYMMETRIC);
        ck_assert_int_eq(result, early[i].window);
        ck_assert_int_eq(all_reduce(&r, COUNT), NCCL_BAD_ARGUMENT);
        usleep(A_WHILE_MS * 1000); /* the work sets its own state */
        OK(settle(r.comm, NCCL_OK));
        ck_assert_ptr_nonnull(window);
    }
    end(&r);
}

START_TEST(some_calls_return_success_in_progress)
{
    setenv("CRUN_STANDIN_VERSION", early[_i].version, 1);
    rank_threads_run(SIZE, return_early, &_i);
}
END_TEST

static void stick(unsigned rank, void *arg)
{
    struct rank r;

    (void)arg;
    begin(&r, rank, 1, 0);
    ck_assert_int_eq(all_reduce(&r, COUNT), NCCL_SYSTEM_ERROR);
    ck_assert_int_eq(all_reduce(&r, COUNT), NCCL_SYSTEM_ERROR);
    ck_assert_int_eq(settle(r.comm, NCCL_OK), NCCL_SYSTEM_ERROR);
    ck_assert_int_eq(nccl.finalize(r.comm), NCCL_SYSTEM_ERROR);
    ck_assert_int_eq(nccl.destroy(r.comm), NCCL_SYSTEM_ERROR);
    OK(nccl.abort(r.comm));
}

START_TEST(errors_stay)
{
    setenv("CRUN_STANDIN_FAULT", "ncclAllReduce:error:0", 1);
    rank_threads_run(1, stick, NULL);
}
END_TEST

static void use_after_abort(unsigned rank, void *arg)
{
    struct rank r;

    (void)arg;
    begin(&r, rank, 1, 0);
    OK(nccl.abort(r.comm));
    (void)all_reduce(&r, COUNT);
}

START_TEST(what_was_freed_is_refused)
{
    rank_threads_run(1, use_after_abort, NULL);
}
END_TEST

/* -- communicators -------------------------------------------------------------------
 */

static void share_a_gpu(unsigned rank, void *arg)
{
    struct nccl_config config = configured(0);
    comm_t comm = NULL;
    int result;

    (void)arg;
    CUDA(cudaSetDevice(0));
    if (rank == 0)
        OK(nccl.unique_id(&id));
    rank_threads_sync();
    result = nccl.init(&comm, SIZE, id, (int)rank, &config);
    ck_assert_ptr_nonnull(comm);
    ck_assert_int_eq(settle(comm, result), NCCL_BAD_USAGE);
    OK(nccl.abort(comm));
}

START_TEST(two_ranks_on_a_gpu_are_refused)
{
    rank_threads_run(SIZE, share_a_gpu, NULL);
}
END_TEST

static void differ_in_version(unsigned rank, void *arg)
{
    struct nccl_config config = configured(0);
    comm_t comm = NULL;
    int result;

    (void)arg;
    CUDA(cudaSetDevice((int)rank));
    if (rank == 0)
        OK(nccl.unique_id(&id));
    rank_threads_sync();
    if (rank == 1)
        rank_threads_sync();
    setenv("CRUN_STANDIN_VERSION", rank == 0 ? "22809" : "23007", 1);
    result = nccl.init(&comm, SIZE, id, (int)rank, &config);
    if (rank == 0)
        rank_threads_sync();
    ck_assert_int_eq(settle(comm, result), NCCL_BAD_USAGE);
    OK(nccl.abort(comm));
}

START_TEST(different_versions_are_refused)
{
    rank_threads_run(SIZE, differ_in_version, NULL);
}
END_TEST

START_TEST(wrong_arguments_are_refused)
{
    struct nccl_config config = configured(0);
    comm_t comm = (comm_t)&config;

    OK(nccl.unique_id(&id));
    ck_assert_int_eq(nccl.init(&comm, 2, id, 2, &config), NCCL_BAD_ARGUMENT);
    ck_assert_ptr_null(comm);
    config.magic = 0;
    ck_assert_int_eq(nccl.init(&comm, 1, id, 0, &config), NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(nccl.group_end(), NCCL_BAD_USAGE);
}
END_TEST

static _Atomic bool inside;

static void *abort_from_outside(void *arg)
{
    while (!atomic_load(&inside))
        sched_yield();
    usleep(A_WHILE_MS * 1000);
    OK(nccl.abort(arg));
    return NULL;
}

static void block(unsigned rank, void *arg)
{
    pthread_t thread;
    struct rank r;

    (void)arg;
    begin(&r, rank, SIZE, 1);
    OK(all_reduce(&r, COUNT));
    ck_assert_float_eq(value_at(&r, 0), SIZE);
    if (rank == 0) { /* the other rank never connects */
        ck_assert_int_eq(pthread_create(&thread, NULL, abort_from_outside, r.comm), 0);
        atomic_store(&inside, true);
        ck_assert_int_eq(nccl.receive(r.x, 1, NCCL_F32, 1, r.comm, r.stream),
                         NCCL_INTERNAL_ERROR);
        pthread_join(thread, NULL);
    } else {
        ck_assert(aborts(r.comm));
    }
}

START_TEST(a_blocking_communicator_blocks_until_it_is_aborted)
{
    rank_threads_run(SIZE, block, NULL);
}
END_TEST

/* Ranks 0 and 2 in reverse order; rank 1 in none. */
static void split(unsigned rank, void *arg)
{
    comm_t child = (comm_t)&id;
    struct rank r;

    (void)arg;
    begin(&r, rank, 3, 0);
    ck_assert_int_eq(
        nccl.split(r.comm, rank == 1 ? NOCOLOR : 7, -(int)rank, &child, NULL),
        NCCL_IN_PROGRESS);
    OK(settle(r.comm, NCCL_IN_PROGRESS));
    ck_assert(!child == (rank == 1));
    if (child) {
        comm_t parent = r.comm;

        r.comm = child;
        fill(&r, (float)rank + 1);
        OK(settle(child, nccl.all_gather(r.x, r.x, 1, NCCL_F32, child, r.stream)));
        ck_assert_float_eq(value_at(&r, 0), 3);
        ck_assert_float_eq(value_at(&r, 1), 1);
        OK(settle(child, nccl.finalize(child)));
        OK(nccl.destroy(child));
        r.comm = parent;
    }
    end(&r);
}

START_TEST(a_communicator_is_split)
{
    rank_threads_run(3, split, NULL);
}
END_TEST

/* -- groups --------------------------------------------------------------------------
 */

static void group(unsigned rank, void *arg)
{
    struct rank r;
    float *big, *small;

    (void)arg;
    begin(&r, rank, SIZE, 0);
    big = r.x;
    small = r.x + COUNT;
    OK(nccl.group_start());
    OK(nccl.group_start());
    for (int i = 0; i < 2; i++) { /* in any order: they are sorted */
        bool first = (i == 0) == (rank == 0);

        OK(nccl.all_reduce(first ? big : small, first ? big : small,
                           first ? COUNT : COUNT / 2, NCCL_F32, NCCL_SUM, r.comm,
                           r.stream));
    }
    OK(nccl.group_end());
    ck_assert_float_eq(value_at(&r, 0), 1);
    OK(nccl.send(small + COUNT / 2, 1, NCCL_F32, 1 - (int)rank, r.comm, r.stream));
    OK(nccl.receive(small + COUNT / 2 + 1, 1, NCCL_F32, 1 - (int)rank, r.comm,
                    r.stream));
    ck_assert_int_eq(nccl.group_end(), NCCL_IN_PROGRESS);
    OK(settle(r.comm, NCCL_IN_PROGRESS));
    ck_assert_float_eq(value_at(&r, COUNT - 1), SIZE);
    ck_assert_float_eq(value_at(&r, COUNT), SIZE);
    ck_assert_float_eq(value_at(&r, COUNT + COUNT / 2 + 1), 1);
    OK(nccl.group_start());
    ck_assert_int_eq(nccl.all_reduce(big, big, 1, NCCL_F32, 99, r.comm, r.stream),
                     NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(nccl.group_end(), NCCL_BAD_ARGUMENT);
    OK(nccl.abort(r.comm));
}

START_TEST(nothing_of_a_group_starts_before_its_end)
{
    rank_threads_run(SIZE, group, NULL);
}
END_TEST

/* One rank groups what the other calls one after the other. */
static void group_differently(unsigned rank, void *arg)
{
    _Atomic unsigned *right = arg;
    float *big, *small;
    struct rank r;

    begin(&r, rank, SIZE, 0);
    warm_up(&r);
    big = r.x;
    small = r.x + COUNT;
    fill(&r, (float)rank + 1);
    if (rank == 0)
        OK(nccl.group_start());
    for (int i = 0; i < 2; i++) {
        int result = nccl.all_reduce(i ? small : big, i ? small : big, i ? 10 : COUNT,
                                     NCCL_F32, NCCL_SUM, r.comm, r.stream);

        if (rank == 1)
            OK(settle(r.comm, result));
    }
    if (rank == 0)
        OK(settle(r.comm, nccl.group_end()));
    usleep(A_WHILE_MS * 1000);
    rank_threads_sync();
    if (cudaStreamQuery(r.stream) == cudaSuccess && value_at(&r, COUNT - 1) == 3 &&
        value_at(&r, COUNT) == 3)
        atomic_fetch_add(right, 1);
    rank_threads_sync();
    ck_assert(aborts(r.comm));
}

START_TEST(groups_that_differ_fail)
{
    static _Atomic unsigned right;

    rank_threads_run(SIZE, group_differently, &right);
    ck_assert_uint_lt(right, SIZE);
}
END_TEST

/* -- memory --------------------------------------------------------------------------
 */

static const struct {
    const char *version;
    bool window, deaf;
} deafness[] = {
    { "22707", true, true },  { "22809", true, true },   { "22907", true, false },
    { "23007", true, false }, { "22809", false, false },
};

static void abandon(unsigned rank, void *arg)
{
    int i = *(int *)arg;
    struct nccl_window *window;
    void *handle = NULL;
    struct rank r;

    begin(&r, rank, SIZE, 0);
    warm_up(&r);
    OK(settle(r.comm, deafness[i].window
                          ? nccl.window(r.comm, r.x, SIZE * BYTES, &window,
                                        NCCL_WINDOW_SYMMETRIC)
                          : nccl.register_memory(r.comm, r.x, SIZE * BYTES, &handle)));
    rank_threads_sync();
    if (rank == 0) {
        OK(settle(r.comm, all_reduce(&r, COUNT)));
        ck_assert(aborts(r.comm) == !deafness[i].deaf);
    }
    rank_threads_sync();
    if (rank == 0 && deafness[i].deaf)
        cuda_emulated_fail(0, cudaErrorIllegalAddress); /* so that it ends */
}

START_TEST(symmetric_kernels_are_deaf_by_version)
{
    setenv("CRUN_STANDIN_VERSION", deafness[_i].version, 1);
    rank_threads_run(SIZE, abandon, &_i);
}
END_TEST

static void free_early(unsigned rank, void *arg)
{
    struct rank r;

    (void)arg;
    begin(&r, rank, SIZE, 0);
    warm_up(&r);
    if (rank == 0) {
        OK(settle(r.comm, all_reduce(&r, COUNT)));
        OK(nccl.mem_free(r.x));
    }
    rank_threads_sync();
    if (rank == 1)
        OK(settle(r.comm, all_reduce(&r, COUNT)));
    else
        ck_assert_int_eq(cudaStreamSynchronize(r.stream), cudaErrorIllegalAddress);
    rank_threads_sync();
    ck_assert(aborts(r.comm));
}

START_TEST(memory_that_is_freed_under_work_faults)
{
    rank_threads_run(SIZE, free_early, NULL);
}
END_TEST

static void use_host_memory(unsigned rank, void *arg)
{
    float host = 1;
    struct rank r;

    (void)arg;
    begin(&r, rank, 1, 0);
    OK(settle(r.comm,
              nccl.all_reduce(&host, &host, 1, NCCL_F32, NCCL_SUM, r.comm, r.stream)));
    ck_assert_int_eq(cudaStreamSynchronize(r.stream), cudaErrorIllegalAddress);
}

START_TEST(memory_of_the_host_faults)
{
    rank_threads_run(1, use_host_memory, NULL);
}
END_TEST

static void register_others_memory(unsigned rank, void *arg)
{
    struct nccl_window *window = NULL;
    struct rank r;
    void *plain;

    (void)arg;
    begin(&r, rank, 1, 0);
    CUDA(cudaMalloc(&plain, 4096));
    ck_assert_int_eq(settle(r.comm, nccl.window(r.comm, plain, 4096, &window, 1)),
                     NCCL_CUDA_ERROR);
    OK(nccl.abort(r.comm));
}

START_TEST(a_window_is_ncclMemAllocs)
{
    rank_threads_run(1, register_others_memory, NULL);
}
END_TEST

static void register_without_windows(unsigned rank, void *arg)
{
    struct nccl_window *window;
    struct rank r;

    (void)arg;
    begin(&r, rank, 1, 0);
    nccl.window(r.comm, r.x, BYTES, &window, NCCL_WINDOW_SYMMETRIC);
}

START_TEST(a_call_that_a_version_lacks_ends_the_process)
{
    setenv("CRUN_STANDIN_VERSION", "22304", 1);
    rank_threads_run(1, register_without_windows, NULL);
}
END_TEST

/* -- sums ----------------------------------------------------------------------------
 */

static float element(size_t i, int rank)
{
    return 1.0f / (float)(1 + (i * 31 + (size_t)rank * 17) % 1009);
}

/* In the order of a ring: chunk r begins behind rank r. */
static float ring_sum(size_t i, int size, bool mean)
{
    size_t chunk = ((size_t)COUNT + (size_t)size - 1) / (size_t)size;
    int last = (int)(i / chunk);
    float factor = mean ? (float)(1.0 / size) : 1;
    float sum = element(i, (last + 1) % size) * factor;

    for (int hop = 2; hop <= size; hop++)
        sum += element(i, (last + hop) % size) * factor;
    return sum;
}

static void sum_in_ring(unsigned rank, void *arg)
{
    int size = *(int *)arg;
    float host[COUNT];
    struct rank r;

    begin(&r, rank, size, 0);
    for (int mean = 0; mean < 2; mean++) {
        for (size_t i = 0; i < COUNT; i++)
            host[i] = element(i, (int)rank);
        CUDA(cudaMemcpyAsync(r.x, host, BYTES, cudaMemcpyHostToDevice, r.stream));
        OK(settle(r.comm,
                  nccl.all_reduce(r.x, r.x, COUNT, NCCL_F32,
                                  mean ? NCCL_MEAN : NCCL_SUM, r.comm, r.stream)));
        CUDA(cudaMemcpyAsync(host, r.x, BYTES, cudaMemcpyDeviceToHost, r.stream));
        CUDA(cudaStreamSynchronize(r.stream));
        for (size_t i = 0; i < COUNT; i++)
            ck_assert_float_eq(host[i], ring_sum(i, size, mean));
    }
    end(&r);
}

START_TEST(floats_are_added_in_a_ring)
{
    int size = _i;

    rank_threads_run((unsigned)size, sum_in_ring, &size);
}
END_TEST

/* -- graphs --------------------------------------------------------------------------
 */

static void capture(unsigned rank, void *arg)
{
    cudaGraphExec_t exec;
    cudaGraph_t graph;
    struct rank r;

    (void)arg;
    begin(&r, rank, SIZE, 0);
    warm_up(&r);
    CUDA(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal));
    OK(settle(r.comm, all_reduce(&r, COUNT)));
    CUDA(cudaStreamEndCapture(r.stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    ck_assert_float_eq(value_at(&r, 0), 1);
    for (int i = 0; i < 3; i++)
        CUDA(cudaGraphLaunch(exec, r.stream));
    ck_assert_float_eq(value_at(&r, COUNT - 1), SIZE * SIZE * SIZE);
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    end(&r);
}

START_TEST(a_captured_call_runs_with_the_graph)
{
    rank_threads_run(SIZE, capture, NULL);
}
END_TEST

/* -- suite ---------------------------------------------------------------------------
 */

int main(void)
{
    Suite *suite = suite_create("nccl_standin");
    TCase *t = tcase_create("rules");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, open_standin, NULL);
    tcase_add_test(t, a_second_call_in_progress_is_refused);
    tcase_add_test(t, an_event_recorded_too_early_is_before_the_kernel);
    tcase_add_loop_test(t, some_calls_return_success_in_progress, 0,
                        sizeof(early) / sizeof(early[0]));
    tcase_add_test(t, errors_stay);
    tcase_add_test_raise_signal(t, what_was_freed_is_refused, SIGABRT);
    tcase_add_test(t, two_ranks_on_a_gpu_are_refused);
    tcase_add_test(t, different_versions_are_refused);
    tcase_add_test(t, wrong_arguments_are_refused);
    tcase_add_test(t, a_blocking_communicator_blocks_until_it_is_aborted);
    tcase_add_test(t, a_communicator_is_split);
    tcase_add_test(t, nothing_of_a_group_starts_before_its_end);
    tcase_add_test(t, groups_that_differ_fail);
    tcase_add_loop_test(t, symmetric_kernels_are_deaf_by_version, 0,
                        sizeof(deafness) / sizeof(deafness[0]));
    tcase_add_test(t, memory_that_is_freed_under_work_faults);
    tcase_add_test(t, memory_of_the_host_faults);
    tcase_add_test(t, a_window_is_ncclMemAllocs);
    tcase_add_test_raise_signal(t, a_call_that_a_version_lacks_ends_the_process,
                                SIGABRT);
    tcase_add_loop_test(t, floats_are_added_in_a_ring, 1, 6);
    tcase_add_test(t, a_captured_call_runs_with_the_graph);
    suite_add_tcase(suite, t);
    return check_main(suite);
}
