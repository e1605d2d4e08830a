/* SPDX-License-Identifier: MIT */
/* The engine over a backend that writes down what it is asked for. */
#include "worker-lib/engine/engine.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "tests/worlds/check_main.h"

#define RUNS_MAX 4096

/* -- a backend --------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct op op[RUNS_MAX];
    pthread_t thread[RUNS_MAX];
    unsigned runs, inside, aborts, tellings, posted, completed;
    bool held;  /* run waits */
    bool posts; /* barriers are posted */
    crun_status next;
} seen = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static struct abort_word aborted;

static crun_status run_it(struct backend *b, const struct op *op, struct err *e)
{
    crun_status s;

    pthread_mutex_lock(&seen.lock);
    ck_assert_uint_eq(seen.inside, 0);
    seen.inside++;
    seen.op[seen.runs] = *op;
    seen.thread[seen.runs++] = pthread_self();
    pthread_cond_broadcast(&seen.changed);
    while (seen.held && !abort_get(&aborted))
        pthread_cond_wait(&seen.changed, &seen.lock);
    seen.inside--;
    seen.completed += op->posted;
    s = abort_get(&aborted) ? abort_get(&aborted) : seen.next;
    pthread_mutex_unlock(&seen.lock);
    err_set(e, "words of the backend");
    return s;
}

static void abort_it(struct backend *b)
{
    pthread_mutex_lock(&seen.lock);
    seen.aborts++;
    pthread_cond_broadcast(&seen.changed);
    pthread_mutex_unlock(&seen.lock);
}

static bool post_it(struct backend *b, const struct op *op)
{
    ck_assert_uint_eq(seen.posted, seen.completed);
    seen.posted += seen.posts && op->kind == OP_BARRIER;
    return seen.posts && op->kind == OP_BARRIER;
}

static const struct backend_calls calls = { .run = run_it,
                                            .post = post_it,
                                            .abort = abort_it };
static struct backend backend = { .calls = &calls };

static void report_state(void *arg)
{
    seen.tellings++;
}

static void hold(bool held)
{
    pthread_mutex_lock(&seen.lock);
    seen.held = held;
    pthread_cond_broadcast(&seen.changed);
    pthread_mutex_unlock(&seen.lock);
}

static void until_runs(unsigned runs)
{
    pthread_mutex_lock(&seen.lock);
    while (seen.runs < runs)
        pthread_cond_wait(&seen.changed, &seen.lock);
    pthread_mutex_unlock(&seen.lock);
}

static struct engine *engine;
static struct flight_recorder *flight;

static void setup(void)
{
    flight = flight_recorder_create(3, "", NULL);
    engine = engine_create(&(struct engine_config){ .backend = &backend,
                                                    .aborted = &aborted,
                                                    .flight = flight,
                                                    .size = 4,
                                                    .timeout_ms = 60000,
                                                    .failed = report_state });
    ck_assert(engine && flight);
}

static void teardown(void)
{
    engine_destroy(engine);
    flight_recorder_destroy(flight);
}

static crun_status submit(enum op_kind kind, size_t count, crun_work **work)
{
    struct op op = { .kind = kind, .count = count, .peer = 1 };

    return engine_submit(engine, &op, work);
}

/* -- cases ------------------------------------------------------------------------- */

FIXTURE(setup, teardown);

TEST(what_is_waited_for_at_once_runs_here)
{
    uint64_t now = clock_ms();

    ck_assert_int_eq(submit(OP_BARRIER, 0, NULL), CRUN_OK);
    ck_assert(pthread_equal(seen.thread[0], pthread_self()));
    ck_assert_uint_eq(seen.op[0].sequence, 1);
    ck_assert_uint_ge(seen.op[0].deadline_ms, now + 60000);
    ck_assert_uint_le(seen.op[0].deadline_ms, clock_ms() + 60000);
}

static struct op_group *three_members(void)
{
    static char byte;
    struct op_group *g = op_group_create();

    ck_assert(g);
    for (enum op_kind kind = OP_ALL_REDUCE; kind <= OP_REDUCE_SCATTER; kind++)
        ck_assert(op_group_add(g, &(struct op){ .kind = kind,
                                                .peer = 1,
                                                .in = &byte,
                                                .out = &byte,
                                                .count = 1 + kind }));
    return g;
}

TEST(a_group_is_one_operation_whose_members_are_numbered)
{
    char record[1000];
    struct op op = { .kind = OP_GROUP, .group = three_members() };
    crun_work *work;

    ck_assert_int_eq(submit(OP_BARRIER, 0, NULL), CRUN_OK);
    ck_assert_int_eq(engine_submit(engine, &op, &work), CRUN_OK);
    op_group_drop(op.group);
    ck_assert_int_eq(submit(OP_BARRIER, 0, NULL), CRUN_OK);
    ck_assert_int_eq(engine_wait(work), CRUN_OK);
    ck_assert_uint_eq(seen.runs, 5);
    for (unsigned i = 1; i < 4; i++) {
        ck_assert_int_eq(seen.op[i].kind, OP_ALL_REDUCE + (enum op_kind)i - 1);
        ck_assert_uint_eq(seen.op[i].sequence, 1 + i);
        ck_assert_uint_eq(seen.op[i].count, i);
        ck_assert_uint_eq(seen.op[i].timeout_ms, 60000);
        ck_assert_uint_ge(seen.op[i].deadline_ms, clock_ms());
    }
    flight_recorder_print(flight, record, sizeof(record));
    ck_assert_msg(strstr(record, "#1 group of 3: all_reduce 1 x f32 sum, broadcast 2 x "
                                 "f32 from rank 1, reduce_scatter 3 x f32 sum  ok "),
                  "%s", record);
}

TEST(a_failed_member_ends_its_group)
{
    struct op op = { .kind = OP_GROUP, .group = three_members() };
    crun_work *work;

    seen.next = CRUN_MISMATCH;
    ck_assert_int_eq(engine_submit(engine, &op, &work), CRUN_OK);
    ck_assert_int_eq(engine_wait(work), CRUN_MISMATCH);
    op_group_drop(op.group);
    ck_assert_uint_eq(seen.runs, 1);
    op.group = three_members();
    ck_assert_int_eq(engine_submit(engine, &op, NULL), CRUN_MISMATCH);
    op_group_drop(op.group);
    ck_assert_uint_eq(seen.runs, 1);
}

TEST(a_group_without_a_wait_is_freed_at_the_end)
{
    struct op op = { .kind = OP_GROUP, .group = three_members() };
    crun_work *work;

    ck_assert_int_eq(engine_submit(engine, &op, &work), CRUN_OK);
    op_group_drop(op.group);
    until_runs(3);
}

TEST(a_long_group_is_described_by_its_first_members)
{
    struct op op = { .kind = OP_GROUP, .group = three_members() };
    unsigned world_rank[] = { 4, 5 };
    char text[200];

    ck_assert(op_group_add(op.group, &(struct op){ .kind = OP_SEND }));
    ck_assert_str_eq(op_describe(&op, world_rank, text, sizeof(text)),
                     "group of 4: all_reduce 1 x f32 sum, broadcast 2 x f32 from rank "
                     "5, reduce_scatter 3 x f32 sum, ...");
    for (size_t size = 1; size < sizeof(text); size++)
        ck_assert_uint_lt(strlen(op_describe(&op, world_rank, text, size)), size);
    op_group_drop(op.group);
}

TEST(all_runs_in_the_order_of_the_calls)
{
    crun_work *work[200];

    for (unsigned i = 0; i < 200; i++) {
        bool now = i % 7 == 3;

        work[i] = NULL;
        ck_assert_int_eq(submit(OP_ALL_REDUCE, i, now ? NULL : &work[i]), CRUN_OK);
        if (now)
            until_runs(i + 1);
    }
    for (unsigned i = 200; i-- > 0;)
        if (work[i])
            ck_assert_int_eq(engine_wait(work[i]), CRUN_OK);
    for (unsigned i = 0; i < 200; i++) {
        ck_assert_uint_eq(seen.op[i].count, i);
        ck_assert_uint_eq(seen.op[i].sequence, i + 1);
    }
}

TEST(a_call_that_is_queued_does_not_wait)
{
    crun_work *first, *second;

    hold(true);
    ck_assert_int_eq(submit(OP_ALL_REDUCE, 1, &first), CRUN_OK);
    ck_assert_int_eq(submit(OP_ALL_REDUCE, 2, &second), CRUN_OK);
    until_runs(1);
    ck_assert(!pthread_equal(seen.thread[0], pthread_self()));
    ck_assert(!engine_is_done(first) && !engine_is_done(second));
    hold(false);
    ck_assert_int_eq(engine_wait(second), CRUN_OK);
    ck_assert(engine_is_done(first));
    ck_assert_int_eq(engine_wait(first), CRUN_OK);
}

TEST(what_is_posted_is_completed_by_the_thread_that_waits)
{
    crun_work *posted, *again;

    seen.posts = true;
    ck_assert_int_eq(submit(OP_BARRIER, 0, &posted), CRUN_OK);
    ck_assert_uint_eq(seen.posted, 1);
    ck_assert_uint_eq(seen.runs, 0);
    ck_assert_int_eq(engine_wait(posted), CRUN_OK);
    ck_assert_uint_eq(seen.completed, 1);
    ck_assert(pthread_equal(seen.thread[0], pthread_self()));
    ck_assert_int_eq(submit(OP_BARRIER, 0, &posted), CRUN_OK);
    ck_assert_int_eq(submit(OP_BARRIER, 0, &again), CRUN_OK); /* one at a time */
    ck_assert_int_eq(submit(OP_ALL_REDUCE, 1, NULL), CRUN_OK);
    ck_assert_int_eq(engine_wait(posted), CRUN_OK);
    ck_assert_int_eq(engine_wait(again), CRUN_OK);
    ck_assert_uint_eq(seen.posted, 2);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_uint_eq(seen.op[i].sequence, i + 1);
    ck_assert_int_eq(seen.op[3].kind, OP_ALL_REDUCE);
}

TEST(a_program_that_never_waits_hears_that_it_is_done)
{
    struct op late = { .kind = OP_ALL_REDUCE, .start = OP_WHEN_WAITED };
    crun_work *work[2];

    seen.posts = true;
    ck_assert_int_eq(submit(OP_BARRIER, 0, &work[0]), CRUN_OK);
    ck_assert_int_eq(engine_submit(engine, &late, &work[1]), CRUN_OK);
    ck_assert_uint_eq(seen.runs, 0);
    while (!engine_is_done(work[1]))
        usleep(100);
    ck_assert(engine_is_done(work[0]));
    ck_assert_int_eq(engine_wait(work[0]), CRUN_OK);
    ck_assert_int_eq(engine_wait(work[1]), CRUN_OK);
}

TEST(what_is_posted_and_forgotten_ends_nothing)
{
    crun_work *work;

    seen.posts = true;
    ck_assert_int_eq(submit(OP_BARRIER, 0, &work), CRUN_OK);
    engine_destroy(engine);
    ck_assert_uint_eq(seen.aborts, 0);
    engine = NULL;
}

TEST(without_a_core_to_spare_the_thread_that_waits_runs_it)
{
    struct op op = { .kind = OP_ALL_REDUCE, .start = OP_IF_OVERLAP_PAYS };
    crun_work *work[3];

    backend.cores_are_scarce = true;
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(engine_submit(engine, &op, &work[i]), CRUN_OK);
    ck_assert_int_eq(engine_wait(work[1]), CRUN_OK);
    ck_assert(engine_is_done(work[0]));
    ck_assert_uint_eq(seen.runs, 2);
    ck_assert_int_eq(submit(OP_BROADCAST, 1, NULL), CRUN_OK); /* runs what is before */
    ck_assert_int_eq(seen.op[3].kind, OP_BROADCAST);
    for (unsigned i = 0; i < 4; i++)
        ck_assert(pthread_equal(seen.thread[i], pthread_self()));
    ck_assert_int_eq(engine_wait(work[0]), CRUN_OK);
    ck_assert_int_eq(engine_wait(work[2]), CRUN_OK);
    backend.cores_are_scarce = false;
    ck_assert_int_eq(engine_submit(engine, &op, &work[0]), CRUN_OK);
    until_runs(5);
    ck_assert(!pthread_equal(seen.thread[4], pthread_self()));
    ck_assert_int_eq(engine_wait(work[0]), CRUN_OK);
}

TEST(messages_are_counted_for_each_pair)
{
    submit(OP_SEND, 1, NULL);
    submit(OP_RECEIVE, 1, NULL);
    submit(OP_BARRIER, 1, NULL);
    submit(OP_SEND, 1, NULL);
    ck_assert_uint_eq(seen.op[0].sequence, 1);
    ck_assert_uint_eq(seen.op[1].sequence, 1);
    ck_assert_uint_eq(seen.op[2].sequence, 1);
    ck_assert_uint_eq(seen.op[3].sequence, 2);
}

TEST(after_a_failure_everything_returns_it)
{
    crun_work *work[3];

    hold(true);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(submit(OP_ALL_REDUCE, 1, &work[i]), CRUN_OK);
    until_runs(1);
    seen.next = CRUN_PEER_LOST;
    hold(false);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(engine_wait(work[i]), CRUN_PEER_LOST);
        ck_assert_str_eq(crun_error_text(), "words of the backend");
    }
    seen.next = CRUN_OK;
    ck_assert_int_eq(submit(OP_BARRIER, 0, NULL), CRUN_PEER_LOST);
    ck_assert_int_eq(submit(OP_BARRIER, 0, &work[0]), CRUN_PEER_LOST);
    ck_assert_ptr_null(work[0]);
    ck_assert_uint_eq(seen.runs, 1);
    ck_assert_uint_eq(seen.tellings, 1);
    ck_assert_uint_ge(seen.aborts, 1);
}

TEST(a_mistake_of_the_caller_ends_nothing)
{
    seen.next = CRUN_BAD_ARGUMENT;
    ck_assert_int_eq(submit(OP_BARRIER, 0, NULL), CRUN_BAD_ARGUMENT);
    seen.next = CRUN_OK;
    ck_assert_int_eq(submit(OP_BARRIER, 0, NULL), CRUN_OK);
    ck_assert_uint_eq(seen.tellings, 0);
}

static void *abort_from_there(void *arg)
{
    until_runs(1);
    engine_abort(engine, CRUN_ABORTED, "the reason", false);
    engine_abort(engine, CRUN_ABORTED, "another", false);
    return NULL;
}

TEST(an_abort_ends_what_is_under_way)
{
    pthread_t other;

    hold(true);
    ck_assert_int_eq(pthread_create(&other, NULL, abort_from_there, NULL), 0);
    ck_assert_int_eq(submit(OP_BARRIER, 0, NULL), CRUN_ABORTED);
    ck_assert_str_eq(crun_error_text(), "the reason");
    pthread_join(other, NULL);
    ck_assert_uint_eq(seen.tellings, 1);
}

TEST(a_quiet_abort_is_told_by_the_next_call)
{
    engine_abort(engine, CRUN_ABORTED, "signal", true);
    ck_assert_uint_eq(seen.tellings, 0);
    ck_assert_int_eq(submit(OP_BARRIER, 0, NULL), CRUN_ABORTED);
    ck_assert_uint_eq(seen.tellings, 1);
}

TEST(work_nobody_waits_for_is_ended)
{
    crun_work *work[2];

    hold(true);
    ck_assert_int_eq(submit(OP_ALL_REDUCE, 1, &work[0]), CRUN_OK);
    ck_assert_int_eq(submit(OP_ALL_REDUCE, 1, &work[1]), CRUN_OK);
    until_runs(1);
}

TEST(the_flight_recorder_keeps_the_last_ones)
{
    static char text[FLIGHT_RECORDER_KEPT * 160];
    unsigned lines = 0;

    for (unsigned i = 0; i < 300; i++)
        submit(OP_ALL_REDUCE, i, NULL);
    seen.next = CRUN_TIMEOUT;
    submit(OP_BROADCAST, 7, NULL);
    ck_assert_uint_lt(flight_recorder_print(flight, text, sizeof(text)), sizeof(text));
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    ck_assert_uint_eq(lines, FLIGHT_RECORDER_KEPT);
    ck_assert_ptr_null(strstr(text, "#100 "));
    ck_assert_ptr_nonnull(strstr(text, "#300 all_reduce 299 x f32 sum  ok"));
    ck_assert_ptr_nonnull(strstr(text, "#301 broadcast 7 x f32 from rank 1  timeout"));
    ck_assert_uint_gt(flight_recorder_print(flight, text, 10), 10);
    ck_assert_uint_eq(strlen(text), 9);
}
