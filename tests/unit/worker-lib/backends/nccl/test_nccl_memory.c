/* SPDX-License-Identifier: MIT */
/*
 * The calls of NCCL and CUDA that allocate and free memory of crun_alloc, and the order
 * of the calls around an operation. The test's own tables record each call.
 * emulated GPU: the stand-in for NCCL has versions
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/thread.h"
#include "tests/worlds/check_main.h"
#include "worker-lib/backends/nccl/backend_nccl.h"
#include "worker-lib/world/world.h"

#define RANKS 4
#define RANK 2
#define BYTES 10000
#define FOREVER 1000000000

/* -- the tables -------------------------------------------------------------------- */

struct gpu_event {
    int turns; /* so many queries find it pending */
};

static struct {
    char calls[2000];
    int alloc_result;
    const char *last_error;
    bool no_window;     /* ncclCommWindowRegister: success, and NULL */
    int register_turns; /* so many looks find it in progress */
    int turns;
    int64_t others[3]; /* least numbers of the other ranks in an agreement */
    int64_t own[3];
    struct gpu_event ready, begun, done;
    bool freed_early;
} fake;

static void note(const char *call)
{
    size_t length = strlen(fake.calls);

    snprintf(fake.calls + length, sizeof(fake.calls) - length, "%s ", call);
}

static int fake_alloc(void **memory, size_t bytes)
{
    note("alloc");
    if (fake.alloc_result == NCCL_OK)
        *memory = malloc(bytes);
    return fake.alloc_result;
}

static int fake_free(void *memory)
{
    note("free");
    fake.freed_early = fake.ready.turns > 0 || fake.done.turns > 0;
    free(memory);
    return NCCL_OK;
}

/* The call returns success while NCCL's thread still works. */
static int begin_in_progress(const char *call)
{
    ck_assert_msg(fake.turns <= 0, "%s while another call is in progress", call);
    note(call);
    fake.turns = fake.register_turns;
    return NCCL_OK;
}

static int fake_window_register(struct nccl_comm *comm, void *memory, size_t bytes,
                                struct nccl_window **window, int flags)
{
    ck_assert_uint_eq(bytes % 4096, 0);
    ck_assert_int_eq(flags, NCCL_WINDOW_SYMMETRIC);
    *window = fake.no_window ? NULL : memory;
    return begin_in_progress("window");
}

static int fake_window_deregister(struct nccl_comm *comm, struct nccl_window *window)
{
    ck_assert_ptr_nonnull(window);
    note("no-window");
    return NCCL_OK;
}

static int fake_register(struct nccl_comm *comm, void *memory, size_t bytes,
                         void **registration)
{
    *registration = memory;
    return begin_in_progress("register");
}

static int fake_deregister(struct nccl_comm *comm, void *registration)
{
    ck_assert_ptr_nonnull(registration);
    note("deregister");
    return NCCL_OK;
}

static int fake_async_error(struct nccl_comm *comm, int *result)
{
    *result = fake.turns-- > 0 ? NCCL_IN_PROGRESS : NCCL_OK;
    return NCCL_OK;
}

static const char *fake_error_string(int result)
{
    return result == NCCL_OK ? "no error" : "unhandled cuda error";
}

static const char *fake_last_error(struct nccl_comm *comm)
{
    return fake.last_error;
}

static int fake_all_reduce(const void *in, void *out, size_t count, int type, int op,
                           struct nccl_comm *comm, struct gpu_stream *stream)
{
    const int64_t *mine = in;
    int64_t *least = out;

    ck_assert_uint_eq(count, 3);
    ck_assert_int_eq(type, NCCL_I64);
    ck_assert_int_eq(op, NCCL_MIN);
    for (int i = 0; i < 3; i++) {
        fake.own[i] = mine[i];
        least[i] = mine[i] < fake.others[i] ? mine[i] : fake.others[i];
    }
    note("agree");
    return NCCL_OK;
}

static int fake_send(const void *in, size_t count, int type, int peer,
                     struct nccl_comm *comm, struct gpu_stream *stream)
{
    return begin_in_progress("send");
}

static struct nccl_calls nccl_table = {
    .mem_alloc = fake_alloc,
    .mem_free = fake_free,
    .window_register = fake_window_register,
    .window_deregister = fake_window_deregister,
    .comm_register = fake_register,
    .comm_deregister = fake_deregister,
    .async_error = fake_async_error,
    .error_string = fake_error_string,
    .last_error = fake_last_error,
    .all_reduce = fake_all_reduce,
    .send = fake_send,
};

static const char *fake_error_text(int code)
{
    return "injected";
}

static int fake_memory_info(size_t *available, size_t *total)
{
    *available = 5u << 20;
    *total = 80u << 20;
    return GPU_OK;
}

static int fake_gpu_alloc(void **memory, size_t bytes)
{
    *memory = malloc(bytes);
    return GPU_OK;
}

static int fake_gpu_free(void *memory)
{
    free(memory);
    return GPU_OK;
}

static int fake_on_device(const void *memory, bool *device)
{
    *device = false;
    return GPU_OK;
}

static int fake_copy(void *to, const void *from, size_t bytes,
                     struct gpu_stream *stream)
{
    memcpy(to, from, bytes);
    return GPU_OK;
}

static int fake_zero(void *memory, size_t bytes, struct gpu_stream *stream)
{
    memset(memory, 0, bytes);
    return GPU_OK;
}

static int fake_stream_wait(struct gpu_stream *stream, struct gpu_event *event)
{
    return GPU_OK;
}

static int fake_record(struct gpu_event *event, struct gpu_stream *stream)
{
    ck_assert_msg(event != &fake.done || fake.turns <= 0,
                  "the end is recorded while NCCL has not queued its kernel");
    if (event == &fake.done)
        note("done");
    return GPU_OK;
}

static int fake_query(struct gpu_event *event)
{
    return event->turns-- > 0 ? GPU_NOT_READY : GPU_OK;
}

static const struct gpu_calls gpu_table = {
    .error_text = fake_error_text,
    .memory_info = fake_memory_info,
    .alloc = fake_gpu_alloc,
    .free = fake_gpu_free,
    .on_device = fake_on_device,
    .copy = fake_copy,
    .zero = fake_zero,
    .stream_wait = fake_stream_wait,
    .event_record = fake_record,
    .event_query = fake_query,
};

/* -- a communication thread -------------------------------------------------------- */

static struct nccl n;
static struct nccl_work w;
static struct abort_word aborted;
static struct err e;

static void set_up(void)
{
    static const unsigned ranks[RANKS] = { 0, 1, 2, 3 };
    static char comm, stream;

    memset(&n, 0, sizeof(n));
    memset(&w, 0, sizeof(w));
    memset(&fake, 0, sizeof(fake));
    n.team = (struct team){ .rank = RANK,
                            .size = RANKS,
                            .world_rank = ranks,
                            .node = ranks,
                            .aborted = &aborted,
                            .timeout_ms = 1 };
    n.gpu = (struct nccl_gpu){ .cuda = &gpu_table, .nccl = &nccl_table, .device = 3 };
    pthread_mutex_init(&n.lock, NULL);
    thread_cond_init(&n.changed);
    thread_cond_init(&n.queue_changed);
    n.line = nccl_line_join(n.gpu.device);
    atomic_store(&n.comm, (struct nccl_comm *)(void *)&comm);
    n.stream = (struct gpu_stream *)(void *)&stream;
    w = (struct nccl_work){ .task = TASK_ALLOC,
                            .host = true,
                            .bytes = BYTES,
                            .ready = &fake.ready,
                            .begun = &fake.begun,
                            .done = &fake.done };
    fake.others[0] = RANKS;
    fake.others[1] = BYTES;
    fake.others[2] = -BYTES;
    n.current = &w;
    unsetenv("CRUN_NCCL_WINDOWS");
}

static crun_status add_area(void)
{
    fake.calls[0] = '\0';
    w.task = TASK_ALLOC;
    return nccl_add_area(&n, &w, &e);
}

static void remove_area(void)
{
    fake.calls[0] = '\0';
    w.task = TASK_FREE;
    nccl_remove_area(&n, &w);
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), of_end = strlen(end);

    return length >= of_end && strcmp(text + length - of_end, end) == 0;
}

/* -- registration ------------------------------------------------------------------ */

static const struct {
    bool windows, no_window, off;
    const char *added, *removed, *policy;
} registered[] = {
    { true, false, false, "alloc agree done done window ", "done no-window free ",
      NULL },
    { false, false, false, "alloc agree done done register ", "done deregister free ",
      NULL },
    { true, true, false, "alloc agree done done window register ",
      "done deregister free ", NULL },
    { true, false, true, "alloc agree done done ", "done free ", NULL },
    { true, false, false, "alloc agree done done register ", "done deregister free ",
      "2" },
    { true, false, false, "alloc agree done done register ", "done deregister free ",
      "ZERO" },
};

FIXTURE(set_up, NULL);

TEST_EACH(memory_is_registered, registered)
{
    if (!registered[_i].windows)
        nccl_table.window_register = NULL;
    fake.no_window = registered[_i].no_window;
    fake.register_turns = 5;
    if (registered[_i].off)
        setenv("CRUN_NCCL_WINDOWS", "0", 1);
    if (registered[_i].policy)
        setenv("NCCL_CTA_POLICY", registered[_i].policy, 1);
    ck_assert_int_eq(add_area(), CRUN_OK);
    ck_assert_ptr_nonnull(w.memory);
    ck_assert_str_eq(fake.calls, registered[_i].added);
    remove_area();
    ck_assert_str_eq(fake.calls, registered[_i].removed);
}

/* Older kernels that use windows cannot be aborted. */
TEST_LOOP(windows_are_used_only_if_they_can_be_aborted, 0, 5)
{
    static const char *const versions[] = { "21903", "22707", "22903", "22907",
                                            "23007" };
    const struct nccl_calls *calls;

    setenv("CRUN_STANDIN_VERSION", versions[_i], 1);
    ck_assert_int_eq(nccl_open(&calls, clock_ms() + 60000, &e), CRUN_OK);
    ck_assert_int_eq(calls->window_register != NULL, _i >= 3);
    ck_assert_int_eq(calls->window_deregister != NULL, _i >= 3);
    ck_assert_ptr_nonnull(calls->comm_register);
}

/* An aborted communicator has no windows, and with a lost rank a call might wait. */
TEST_LOOP(nothing_is_deregistered_without_the_others, 0, 2)
{
    ck_assert_int_eq(add_area(), CRUN_OK);
    if (_i == 0)
        atomic_store(&n.comm, NULL);
    else
        atomic_store(&n.lost, 1);
    remove_area();
    ck_assert_str_eq(fake.calls, "done free ");
}

/* -- who owns an address ----------------------------------------------------------- */

TEST(addresses_are_found)
{
    char *memory[40], *highest = NULL;

    for (size_t i = 0; i < 40; i++) {
        ck_assert_int_eq(add_area(), CRUN_OK);
        memory[i] = w.memory;
        highest = memory[i] > highest ? memory[i] : highest;
    }
    for (size_t i = 0; i < 40; i++) {
        ck_assert(nccl_has_area(&n, memory[i]));
        ck_assert(!nccl_has_area(&n, memory[i] + 1));
        ck_assert(nccl_owns(&n, memory[i]));
        ck_assert(nccl_owns(&n, memory[i] + BYTES - 1));
    }
    ck_assert(!nccl_owns(&n, highest + 3 * 4096));
    for (size_t i = 0; i < 40; i += 2) {
        w.memory = memory[i];
        remove_area();
        ck_assert(!nccl_owns(&n, memory[i]));
        ck_assert(nccl_owns(&n, memory[i + 1]));
    }
    ck_assert(!nccl_owns(&n, &n));
    nccl_free_memory(&n, &w);
    ck_assert_uint_eq(n.area_count, 0);
}

/* -- freeing ----------------------------------------------------------------------- */

TEST_LOOP(queued_work_keeps_its_memory, 0, 2)
{
    ck_assert_int_eq(add_area(), CRUN_OK);
    (_i == 0 ? &fake.ready : &fake.done)->turns = 50;
    remove_area();
    ck_assert(!fake.freed_early);
    ck_assert(ends_with(fake.calls, "free "));
}

/* NCCL's kernels are aborted: work that waited for them continues, and ends. */
TEST(queued_work_keeps_its_memory_after_the_end)
{
    ck_assert_int_eq(add_area(), CRUN_OK);
    abort_set(&aborted, CRUN_PEER_LOST, "injected");
    n.ended = true;
    atomic_store(&n.comm, NULL);
    fake.ready.turns = 50;
    remove_area();
    ck_assert(!fake.freed_early);
    ck_assert_str_eq(fake.calls, "done free ");
}

TEST(memory_of_a_hanging_gpu_stays)
{
    void *memory;

    ck_assert_int_eq(add_area(), CRUN_OK);
    memory = w.memory;
    abort_set(&aborted, CRUN_PEER_LOST, "injected");
    fake.done.turns = FOREVER;
    remove_area(); /* does not even wait: the watch has not ended the world yet */
    n.ended = true;
    ck_assert(nccl_has_area(&n, memory));
    nccl_free_memory(&n, &w);
    ck_assert_ptr_null(strstr(fake.calls, "free"));
    ck_assert_uint_eq(n.area_count, 0);
}

/* -- memory that runs out ---------------------------------------------------------- */

static const struct {
    const char *text; /* of NCCL's last error */
    size_t bytes;
    crun_status status;
} failures[] = {
    { "Cuda failure 2 'out of memory'", BYTES, CRUN_NO_MEMORY },
    { "Cuda failure 'out of memory'", BYTES, CRUN_NO_MEMORY },
    { "", 6u << 20, CRUN_NO_MEMORY }, /* more than there is */
    { "Cuda failure 700 'an illegal memory access was encountered'", BYTES,
      CRUN_SYSTEM },
};

TEST_EACH(no_memory_here_is_told_to_all, failures)
{
    size_t bytes = failures[_i].bytes;
    char asked[40];

    fake.alloc_result = NCCL_CUDA_ERROR;
    fake.last_error = failures[_i].text;
    w.bytes = bytes;
    fake.others[1] = (int64_t)bytes;
    fake.others[2] = -(int64_t)bytes;
    ck_assert_int_eq(add_area(), failures[_i].status);
    ck_assert_ptr_null(w.memory);
    ck_assert_uint_eq(n.area_count, 0);
    if (failures[_i].status != CRUN_NO_MEMORY) {
        ck_assert_ptr_nonnull(strstr(e.text, "illegal memory access"));
        return;
    }
    snprintf(asked, sizeof(asked), "no memory for %zu bytes",
             (bytes + 4096) / 4096 * 4096);
    ck_assert_msg(strstr(e.text, asked) && strstr(e.text, "GPU 3") &&
                      strstr(e.text, "5.0 of 80.0 MiB"),
                  "%s", e.text);
    ck_assert_int_eq(fake.own[0], RANK);
    ck_assert_ptr_null(strstr(fake.calls, "window"));
}

TEST(no_memory_elsewhere_is_an_error_here)
{
    fake.others[0] = 1;
    ck_assert_int_eq(add_area(), CRUN_NO_MEMORY);
    ck_assert_msg(strstr(e.text, "rank 1 has no memory for 10000 bytes"), "%s", e.text);
    ck_assert_msg(ends_with(fake.calls, "done done free "), "%s", fake.calls);
    ck_assert_ptr_null(strstr(fake.calls, "window"));
    ck_assert_ptr_null(w.memory);
    ck_assert_uint_eq(n.area_count, 0);
    fake.others[0] = RANKS;
    ck_assert_int_eq(add_area(), CRUN_OK);
}

TEST_LOOP(different_sizes_are_told, 1, 3)
{
    fake.others[_i] = _i == 1 ? 5000 : -20000;
    ck_assert_int_eq(add_area(), CRUN_MISMATCH);
    ck_assert_msg(
        strstr(e.text, _i == 1 ? "from 5000 to 10000" : "from 10000 to 20000"), "%s",
        e.text);
}

/* -- messages ---------------------------------------------------------------------- */

/* Before 2.24 a single ncclSend returns success while NCCL's thread still connects, and
 * queues its kernel later: the record of the end must come after it. */
TEST(a_message_is_queued_before_its_end)
{
    float x = 1;

    fake.register_turns = 300;
    w.task = TASK_OPERATION;
    w.host = false;
    w.op = (struct op){ .kind = OP_SEND, .type = CRUN_F32, .in = &x, .count = 1 };
    ck_assert_int_eq(nccl_run(&n, &w, &e), CRUN_OK);
    ck_assert_msg(ends_with(fake.calls, "send done "), "%s", fake.calls);
}
