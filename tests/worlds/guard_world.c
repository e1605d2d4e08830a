/* SPDX-License-Identifier: MIT */
#include "tests/worlds/guard_world.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/cleanup/child_procs.h"
#include "agent/guard/orphan_reaper.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/procs.h"

#define NOBODY 65534

struct guard_payload t;

/* A guard may execute this program, as its reaper. */
__attribute__((constructor)) static void be_reaper_if_asked(int argc, char **argv)
{
    orphan_reaper_main_if_asked(argc, argv);
}

static void on_started(void *arg, uint32_t local_rank, pid_t pid)
{
    ck_assert_uint_lt(local_rank, WORKERS);
    t.pid[local_rank] = pid;
    t.started++;
}

static void on_exec_failed(void *arg, uint32_t local_rank, int errnum, const char *what)
{
    t.errnum = errnum;
    snprintf(t.what, sizeof(t.what), "%s", what);
    t.fenced_before = t.fenced;
    t.failed++;
}

static void on_exited(void *arg, const struct guard_exit *worker)
{
    ck_assert_uint_lt(t.exited, WORKERS);
    t.exit[t.exited++] = *worker;
}

static void on_leftover(void *arg, pid_t session, const char *name)
{
    t.leftover_session = session;
    snprintf(t.what, sizeof(t.what), "%s", name);
    t.leftovers++;
}

static void on_empty(void *arg)
{
    t.empty++;
}

static void on_fenced(void *arg)
{
    t.fenced++;
}

static void on_died(void *arg, const char *why)
{
    snprintf(t.why, sizeof(t.why), "%s", why);
    t.died++;
}

static void on_template_ready(void *arg, pid_t pid)
{
    t.template_pid = pid;
    t.ready++;
}

static void on_template_ended(void *arg, int status, const char *fault)
{
    t.template_status = status;
    if (fault)
        snprintf(t.fault, sizeof(t.fault), "%s", fault);
    t.template_ended++;
}

static void on_template_exec_failed(void *arg, int errnum, const char *what)
{
    t.errnum = errnum;
    snprintf(t.what, sizeof(t.what), "%s", what);
}

static void on_warm(void *arg, uint32_t local_rank)
{
    ck_assert_int_gt(t.pid[local_rank], 0); /* it was told first */
    t.warm++;
}

static void on_cold(void *arg, uint32_t local_rank, const char *why)
{
    snprintf(t.fault, sizeof(t.fault), "%s", why);
    t.cold++;
}

static const struct guard_calls calls = {
    .workers = { .started = on_started,
                 .exec_failed = on_exec_failed,
                 .exited = on_exited,
                 .leftover = on_leftover,
                 .empty = on_empty },
    .template = { .ready = on_template_ready,
                  .ended = on_template_ended,
                  .exec_failed = on_template_exec_failed,
                  .warm = on_warm,
                  .cold = on_cold },
    .fenced = on_fenced,
    .died = on_died,
};

void wait_until(const uint32_t *count, uint32_t wanted)
{
    uint64_t until_ms = clock_ms() + procs_patience(PATIENCE_MS);

    while (*count < wanted && clock_ms() < until_ms)
        loop_turn(t.loop, 20);
    ck_assert_uint_eq(*count, wanted);
}

void enter_mode(int mode)
{
    if (mode != IN_CGROUP)
        setenv("CRUN_NO_CGROUP", "1", 1);
    if (mode == AS_NOBODY && getuid() == 0) {
        ck_assert_int_eq(setgid(NOBODY), 0);
        ck_assert_int_eq(setuid(NOBODY), 0);
        prctl(PR_SET_DUMPABLE, 1);
    }
}

void start_guard(void)
{
    struct err e;

    t.guard = guard_start(t.loop, &calls, WORKERS, &e);
    ck_assert_msg(t.guard != NULL, "%s", e.text);
}

void begin_guard_here(void)
{
    memset(&t, 0, sizeof(t));
    snprintf(t.cookie, sizeof(t.cookie), "TEST_WORKER=%d.%llu", (int)getpid(),
             (unsigned long long)clock_us());
    putenv(t.cookie);
    snprintf(t.template, sizeof(t.template), "%s", procs_program("test-template"));
    snprintf(t.worker, sizeof(t.worker), "%s", procs_program("test-worker"));
    t.loop = loop_create();
    start_guard();
}

void begin_guard(int mode)
{
    enter_mode(mode);
    begin_guard_here();
}

void end_guard(void)
{
    guard_stop(t.guard);
    loop_destroy(t.loop);
    ck_assert_uint_eq(procs_with(t.cookie), 0);
    ck_assert(!child_procs_exist());
}

void spawn_to(uint32_t local_rank, const char *const *argv, int out)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const struct guard_spawn s = { .local_rank = local_rank,
                                   .argv = argv,
                                   .env = (const char *const *)environ,
                                   .fd = { null, out < 0 ? null : out, null },
                                   .numa_node = -1 };
    struct err e;

    ck_assert_int_eq(guard_spawn(t.guard, &s, &e), 0);
    close(null);
}

void start_template(uint32_t ready_ms, uint32_t answer_ms, ...)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const char *argv[16] = { t.template };
    struct guard_template template = { .argv = argv,
                                       .env = (const char *const *)environ,
                                       .fd = { null, null, null },
                                       .ready_ms = ready_ms,
                                       .answer_ms = answer_ms };
    size_t count = 1;
    struct err e;
    va_list words;

    va_start(words, answer_ms);
    while ((argv[count] = va_arg(words, const char *)))
        ck_assert_uint_lt(++count, 16);
    va_end(words);
    ck_assert_int_eq(guard_start_template(t.guard, &template, &e), 0);
    close(null);
}

void begin_template(void)
{
    start_template(PATIENCE_MS, PATIENCE_MS, NULL);
    wait_until(&t.ready, 1);
}

static void spawn_list(uint32_t local_rank, int out, va_list words)
{
    const char *argv[16] = { t.worker };
    size_t count = 1;

    while ((argv[count] = va_arg(words, const char *)))
        ck_assert_uint_lt(++count, 16);
    spawn_to(local_rank, argv, out);
}

void spawn(uint32_t local_rank, ...)
{
    va_list words;

    va_start(words, local_rank);
    spawn_list(local_rank, -1, words);
    va_end(words);
}

void spawn_ready(uint32_t local_rank, ...)
{
    va_list words;
    int out[2];
    char c = 0;

    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    va_start(words, local_rank);
    spawn_list(local_rank, out[1], words);
    va_end(words);
    close(out[1]);
    while (c != '\n')
        ck_assert_int_eq(read(out[0], &c, 1), 1);
    close(out[0]);
}

void expect_empty_by_kill(void)
{
    uint32_t before = t.empty;

    guard_kill(t.guard);
    wait_until(&t.empty, before + 1);
}
