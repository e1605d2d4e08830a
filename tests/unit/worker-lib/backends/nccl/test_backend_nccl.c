/* SPDX-License-Identifier: MIT */
/* The nccl backend over the stand-in; ranks are threads, as in the other backends'
 * tests.
 * emulated GPU: NCCL is its stand-in */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/any_memory.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/collectives.h"
#include "tests/worlds/ranks.h"
#include "worker-lib/backends/nccl/nccl_calls.h"
#include "worker-lib/backends/nccl/nccl_gpu.h"
#include "worker-lib/engine/failure_notice.h"

#define SOON (clock_ms() + 60000)

/* -- what is right ----------------------------------------------------------------- */

static void check_all(struct team_member *m)
{
    collectives_check(m, m->arg);
}

/* By version, ranks and where the buffers are. */
static const struct {
    const char *version;
    unsigned size;
    bool library_memory;
} teams[] = {
    { "21903", 2, false }, { "22304", 3, true },  { "22707", 4, true },
    { "22809", 1, false }, { "22809", 2, true },  { "22809", 4, false },
    { "22809", 8, true },  { "23007", 2, false }, { "23007", 3, true },
};

TEST_EACH(collectives_are_right, teams)
{
    struct collectives c = { .seed = 4711 + (uint64_t)_i,
                             .rounds = 40,
                             .bytes_max = 300000,
                             .near_means = true,
                             .library_memory = teams[_i].library_memory };

    setenv("CRUN_STANDIN_VERSION", teams[_i].version, 1);
    team_run(&(struct team_plan){
        .calls = &backend_nccl, .size = teams[_i].size, .body = check_all, .arg = &c });
}

/* As when rank 0 has aborted an operation, and the GPU of rank 1 goes on without it. */
static void end_beside_an_abort(struct team_member *m)
{
    static const struct abort_notice n = { CRUN_SYSTEM, 0, "rank 0: the GPU is gone" };
    int32_t one = 1;
    struct op sum = { .kind = OP_ALL_REDUCE,
                      .in = &one,
                      .out = &one,
                      .count = 1,
                      .type = CRUN_I32,
                      .op = CRUN_SUM };

    ck_assert_int_eq(team_member_run(m, sum), CRUN_OK);
    rank_threads_sync();
    if (m->team.rank == 0)
        failure_notice_write(&m->board, &n);
    rank_threads_sync();
    ck_assert_int_eq(team_member_run(m, sum), CRUN_SYSTEM);
    rank_threads_sync();
}

/* The store of rank 1 does not answer, so nothing proves that no rank has aborted. */
static void end_without_the_store(struct team_member *m)
{
    struct op barrier = { .kind = OP_BARRIER };

    ck_assert_int_eq(team_member_run(m, barrier), CRUN_OK);
    rank_threads_sync();
    if (m->team.rank == 1)
        shutdown(store_client_handle(m->team.store), SHUT_RDWR);
    rank_threads_sync();
    ck_assert_int_eq(team_member_run(m, barrier),
                     m->team.rank == 1 ? CRUN_PEER_LOST : CRUN_OK);
    rank_threads_sync();
}

TEST(a_result_that_the_store_does_not_prove_is_no_result)
{
    team_run(&(struct team_plan){
        .calls = &backend_nccl, .size = 2, .body = end_without_the_store });
}

TEST(a_result_of_an_aborted_operation_is_no_result)
{
    team_run(&(struct team_plan){
        .calls = &backend_nccl, .size = 2, .body = end_beside_an_abort });
}

/* As profilers show it. */
static void look_at_its_name(struct team_member *m)
{
    void *nccl = dlopen("libnccl-standin.so", RTLD_NOW | RTLD_NOLOAD);
    const char *(*name)(void) = NULL;

    *(void **)&name = dlsym(nccl, "standin_last_name");
    ck_assert_str_eq(name(), nccl_version() < NCCL_NAMES_SINCE ? "" : m->team.prefix);
    rank_threads_sync();
    dlclose(nccl);
}

TEST_LOOP(a_communicator_has_the_name_of_the_job, 0, 2)
{
    setenv("CRUN_STANDIN_VERSION", _i ? "22703" : "22602", 1);
    team_run(&(struct team_plan){
        .calls = &backend_nccl, .size = 2, .body = look_at_its_name });
}

#define COUNT 50000

/* Everything is queued on the GPU, in streams: nothing but the end is waited for. */
static void queue_all(crun_world *w, void *arg)
{
    int rank = crun_rank(w), size = crun_size(w);
    crun_work *work[3];
    float *x = NULL, sum[COUNT];

    ranks_ok(crun_alloc(w, COUNT * sizeof(float), (void **)&x));
    for (size_t i = 0; i < COUNT; i++)
        sum[i] = (float)((i + (size_t)rank) % 13);
    memory_write(x, sum, sizeof(sum));
    for (size_t k = 0; k < 2; k++)
        ranks_ok(crun_all_reduce(w, x + k * COUNT / 2, x + k * COUNT / 2, COUNT / 2,
                                 CRUN_F32, CRUN_SUM, &work[k]));
    ranks_ok(crun_wait(work[1]));
    ranks_ok(crun_wait(work[0]));
    ranks_ok(crun_all_reduce(w, x, x, COUNT, CRUN_F32, CRUN_MAX, NULL));
    /* from one kind of memory to the other */
    ranks_ok(crun_all_reduce(w, x, sum, COUNT, CRUN_F32, CRUN_MEAN, &work[2]));
    ranks_ok(crun_wait(work[2]));
    ck_assert(crun_is_done(NULL));
    for (size_t i = 0; i < COUNT; i++) {
        float expected = 0;

        for (int r = 0; r < size; r++)
            expected += (float)((i + (size_t)r) % 13);
        ck_assert_float_eq_tol(sum[i], expected, 1e-4f); /* NCCL's mean of three */
    }
    crun_free(w, x);
}

TEST(work_is_queued_on_the_gpu)
{
    struct ranks_config c = { .size = 3, .backend = "nccl" };

    ranks_run(&c, queue_all, NULL);
}

/* The host goes on while others have not even come to the operation; what it puts into
 * its stream does not. */
static void go_on(crun_world *w, void *arg)
{
    struct gpu_event *behind = NULL;
    float *x = NULL;
    struct nccl_gpu g;
    struct err e;

    ck_assert_int_eq(nccl_gpu_find(&g, NULL, (unsigned)crun_rank(w), 2, SOON, &e),
                     CRUN_OK);
    ck_assert_int_eq(g.cuda->event_create(&behind), GPU_OK);
    ranks_ok(crun_alloc(w, COUNT * sizeof(float), (void **)&x));
    /* NCCL connects all ranks in the first one of this size, which waits for them */
    ranks_ok(crun_all_reduce(w, x, x, COUNT, CRUN_F32, CRUN_SUM, NULL));
    ranks_ok(crun_barrier(w, NULL));
    rank_threads_sync();
    if (crun_rank(w) == 0) {
        ranks_ok(crun_all_reduce(w, x, x, COUNT, CRUN_F32, CRUN_SUM, NULL));
        ck_assert_int_eq(g.cuda->event_record(behind, NULL), GPU_OK);
        for (int i = 0; i < 50; i++, usleep(1000))
            ck_assert_int_eq(g.cuda->event_query(behind), GPU_NOT_READY);
    }
    rank_threads_sync();
    if (crun_rank(w) != 0)
        ranks_ok(crun_all_reduce(w, x, x, COUNT, CRUN_F32, CRUN_SUM, NULL));
    ranks_ok(crun_barrier(w, NULL));
    ck_assert_int_eq(g.cuda->event_query(behind), GPU_OK);
    g.cuda->event_destroy(behind);
    crun_free(w, x);
}

TEST(the_host_goes_on_meanwhile)
{
    struct ranks_config c = { .size = 2, .backend = "nccl" };

    ranks_run(&c, go_on, NULL);
}

/* NCCL registers memory in a thread of its own, and until that is over refuses any call
 * of the communicator. */
static void allocate_twice(crun_world *w, void *arg)
{
    float *x[2] = { NULL, NULL }, one = 1;

    for (int i = 0; i < 2; i++)
        ranks_ok(crun_alloc(w, sizeof(**x), (void **)&x[i]));
    memory_write(x[1], &one, sizeof(one));
    ranks_ok(crun_all_reduce(w, x[1], x[1], 1, CRUN_F32, CRUN_SUM, NULL));
    memory_read(&one, x[1], sizeof(one));
    ck_assert_float_eq(one, (float)crun_size(w));
    crun_free(w, x[1]);
    crun_free(w, x[0]);
}

TEST(memory_is_registered_when_it_is_given)
{
    struct ranks_config c = { .size = 2, .backend = "nccl" };

    ranks_run(&c, allocate_twice, NULL);
}

/* bf16 of a mean over three: divided once, in f32. */
static void mean_of_halves(crun_world *w, void *arg)
{
    uint16_t *x = NULL, one = 0x3f80, out = 0;

    ranks_ok(crun_alloc(w, sizeof(*x), (void **)&x));
    memory_write(x, &one, sizeof(one));
    ranks_ok(crun_all_reduce(w, x, x, 1, CRUN_BF16, CRUN_MEAN, NULL));
    ranks_ok(crun_broadcast(w, x, 1, CRUN_BF16, 0, NULL));
    memory_read(&out, x, sizeof(out));
    ck_assert_uint_eq(out, one);
    crun_free(w, x);
}

TEST(the_mean_of_halves_is_exact_for_three)
{
    struct ranks_config c = { .size = 3, .backend = "nccl" };

    ranks_run(&c, mean_of_halves, NULL);
}

/* -- is there a GPU? --------------------------------------------------------------- */

static void expect_missing(const char *words)
{
    struct nccl_gpu g;
    struct err e;

    ck_assert_int_eq(nccl_gpu_find(&g, NULL, 3, 4, SOON, &e), CRUN_UNSUPPORTED);
    ck_assert_msg(strstr(e.text, words) != NULL, "\"%s\", not \"%s\"", e.text, words);
}

static const struct {
    const char *name, *value, *words;
} missing[] = {
    { "CRUN_STANDIN_COUNT", "100",
      "there is an NVIDIA driver on this machine, but no" },
    { "CRUN_STANDIN_DRIVER", "12020",
      "too old: it is for CUDA 12.2, this build for 13.0" },
    { "CRUN_STANDIN_COUNT", "999", "cannot be counted" },
    { "CRUN_STANDIN_GPUS", "0", "no GPU" },
    { "CRUN_STANDIN_GPUS", "2", "local rank 3 of 4 needs GPU 3, and there are 2" },
    { "CRUN_STANDIN_VERSION", "21200", "is NCCL 2.12.0: 2.19.0 or newer is needed" },
    { "CRUN_NCCL_LIBRARY", "/nowhere/libnccl.so", "" },
};

TEST_EACH(what_is_missing_is_told, missing)
{
    setenv(missing[_i].name, missing[_i].value, 1);
    expect_missing(missing[_i].words);
}

TEST(no_driver_is_told)
{
    setenv("CRUN_STANDIN_DRIVER", "0", 1);
    setenv("CRUN_STANDIN_COUNT", "35", 1);
    expect_missing("there is no NVIDIA driver on this machine");
}

TEST(the_device_is_chosen)
{
    struct nccl_gpu g;
    struct err e;

    ck_assert_int_eq(nccl_gpu_find(&g, NULL, 3, 4, SOON, &e), CRUN_OK);
    ck_assert_int_eq(g.device, 3);
    ck_assert_int_eq(nccl_gpu_find(&g, "1", 3, 4, SOON, &e), CRUN_OK);
    ck_assert_int_eq(g.device, 1);
    setenv("CRUN_DEVICE", "5", 1);
    ck_assert_int_eq(nccl_gpu_find(&g, "auto", 3, 4, SOON, &e), CRUN_OK);
    ck_assert_int_eq(g.device, 5);
    ck_assert_int_eq(nccl_gpu_find(&g, "x", 3, 4, SOON, &e), CRUN_BAD_ARGUMENT);
    setenv("CRUN_DEVICE", "-1", 1);
    ck_assert_int_eq(nccl_gpu_find(&g, NULL, 3, 4, SOON, &e), CRUN_BAD_ENVIRONMENT);
    unsetenv("CRUN_DEVICE");
    setenv("CUDA_VISIBLE_DEVICES", "7", 1);
    ck_assert_int_eq(nccl_gpu_find(&g, NULL, 3, 4, SOON, &e), CRUN_OK);
    ck_assert_int_eq(g.device, 0);
}

/* -- the real library -------------------------------------------------------------- */

/* Its symbols are all there, and it makes ids, GPU or not. */
TEST(the_real_library_makes_an_id)
{
    const struct nccl_calls *nccl;
    struct nccl_id id[2];
    struct err e;

    setenv("CRUN_NCCL_LIBRARY", "libnccl.so.2", 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    SKIP_UNLESS(nccl_open(&nccl, SOON, &e) == CRUN_OK, e.text);
    ck_assert_int_eq(nccl->get_unique_id(&id[0]), NCCL_OK);
    ck_assert_int_eq(nccl->get_unique_id(&id[1]), NCCL_OK);
    ck_assert_mem_ne(&id[0], &id[1], sizeof(id[0]));
    ck_assert_str_eq(nccl->error_string(NCCL_OK), "no error");
}

/* An id is found by the others as it was made: its bytes are no text. */
static void exchange_id(struct team_member *m)
{
    static struct nccl_id made;
    const struct nccl_calls *nccl;
    uint64_t until = clock_ms() + TEAM_DEADLINE_MS;
    struct nccl_id id = { { 0 } };
    size_t size = sizeof(id);

    if (nccl_open(&nccl, until, &m->e) != CRUN_OK)
        return; /* told above */
    if (m->team.rank == 0) {
        ck_assert_int_eq(nccl->get_unique_id(&made), NCCL_OK);
        ck_assert_int_eq(
            store_client_set(m->team.store, "id", &made, sizeof(made), until, &m->e),
            CRUN_OK);
        return;
    }
    ck_assert_int_eq(store_client_get(m->team.store, "id", &id, &size, until, &m->e),
                     CRUN_OK);
    ck_assert_uint_eq(size, sizeof(id));
    ck_assert_mem_eq(&id, &made, sizeof(id));
}

TEST(the_real_librarys_id_goes_through_the_store)
{
    setenv("CRUN_NCCL_LIBRARY", "libnccl.so.2", 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    team_run(
        &(struct team_plan){ .calls = &backend_self, .size = 3, .body = exchange_id });
}
