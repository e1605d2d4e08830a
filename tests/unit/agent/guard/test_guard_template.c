/* SPDX-License-Identifier: MIT */
/* takes: 8 s */
/* no root: what root alone may do, it does otherwise */
/*
 * A real guard whose workers are forked from a template, in each containment: it does
 * what it should, or fails in each way that a test-template can fail.
 */
#include "agent/guard/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/proc.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/guard_world.h"
#include "tests/worlds/procs.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))
#define SOON_MS 200
#define LATE_MS 20000 /* for a fault that is seen without any wait */

/* The last part of a process's cgroup. */
static void read_group(pid_t pid, char *name, size_t size)
{
    char path[64], text[4096], *line;

    snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
    ck_assert_int_ge(fd_read_file(AT_FDCWD, path, text, sizeof(text)), 0);
    line = strstr(text, "0::");
    ck_assert_ptr_nonnull(line);
    line[strcspn(line, "\n")] = '\0';
    snprintf(name, size, "%s", strrchr(line, '/') + 1);
}

static pid_t parent_of(pid_t pid)
{
    struct proc_stat stat;

    return proc_read_stat(pid, &stat) ? stat.parent : 0;
}

static bool in_cgroup(void)
{
    return strcmp(guard_containment(t.guard), "cgroup") == 0;
}

/* -- as it should be ------------------------------------------------------------ */

TEST_IN_EACH_MODE(a_worker_of_the_template_is_a_worker_like_any_other)
{
    char group[64];

    begin_guard(_i);
    begin_template();
    for (uint32_t i = 0; i < 4; i++)
        spawn_ready(i, "say", "ready", "sleep", NULL);
    wait_until(&t.warm, 4);
    ck_assert_uint_eq(t.started, 4);
    ck_assert_uint_eq(t.cold, 0);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_int_eq(parent_of(t.pid[i]), guard_pid(t.guard));
        ck_assert_int_eq(getsid(t.pid[i]), t.pid[i]);
        read_group(t.pid[i], group, sizeof(group));
        if (in_cgroup())
            ck_assert_str_eq(group, "workers");
    }
    read_group(t.template_pid, group, sizeof(group));
    if (in_cgroup())
        ck_assert_str_eq(group, "template");
    guard_signal(t.guard, GUARD_ALL, SIGTERM);
    wait_until(&t.exited, 4);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_int_eq(t.exit[i].status, SIGTERM);
    guard_sweep(t.guard, 0, 0);
    wait_until(&t.empty, 1);
    ck_assert_int_eq(kill(t.template_pid, 0), 0);
    end_guard();
}

TEST_IN_EACH_MODE(its_exit_is_its_own)
{
    begin_guard(_i);
    begin_template();
    spawn(0, "exit", "7", NULL);
    spawn(1, "signal", "9", NULL);
    wait_until(&t.exited, 2);
    ck_assert_uint_eq(t.warm, 2);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(t.exit[i].status, t.exit[i].local_rank == 0 ? 7 << 8 : 9);
    end_guard();
}

/* What a worker can see of its world, as test-worker prints it. */
static void read_report(uint32_t local_rank, char *text, size_t size)
{
    const char *argv[] = { t.worker, "report", NULL };
    int out[2];
    size_t used = 0;
    ssize_t n;

    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    spawn_to(local_rank, argv, out[1]);
    close(out[1]);
    while ((n = read(out[0], text + used, size - 1 - used)) > 0)
        used += (size_t)n;
    text[used] = '\0';
    close(out[0]);
}

TEST_IN_EACH_MODE(it_sees_what_a_cold_worker_sees)
{
    char cold[4096], warm[4096];

    begin_guard(_i);
    read_report(0, cold, sizeof(cold));
    wait_until(&t.exited, 1);
    begin_template();
    read_report(1, warm, sizeof(warm));
    wait_until(&t.warm, 1);
    ck_assert_str_eq(warm, cold);
    end_guard();
}

TEST(it_runs_on_the_cpus_of_its_request)
{
    cpu_set_t cpus, all;
    const char *argv[] = { t.worker, "sleep", NULL };
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), cpu = 0;
    struct guard_spawn s = { .argv = argv,
                             .fd = { null, null, null },
                             .cpus = &cpus,
                             .cpus_size = sizeof(cpus),
                             .numa_node = -1 };
    struct err e;

    begin_guard(IN_CGROUP);
    argv[0] = t.worker;
    s.env = (const char *const *)environ; /* begin_guard may have moved it */
    sched_getaffinity(0, sizeof(all), &all);
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    begin_template();
    ck_assert_int_eq(guard_spawn(t.guard, &s, &e), 0);
    wait_until(&t.warm, 1);
    ck_assert_int_eq(sched_getaffinity(t.pid[0], sizeof(all), &all), 0);
    ck_assert(CPU_EQUAL(&all, &cpus));
    close(null);
    end_guard();
}

TEST_IN_EACH_MODE(the_first_workers_wait_for_it)
{
    begin_guard(_i);
    start_template(PATIENCE_MS, PATIENCE_MS, "late", "200", NULL);
    for (uint32_t i = 0; i < WORKERS; i++)
        spawn(i, "sleep", NULL);
    wait_until(&t.warm, WORKERS);
    ck_assert_uint_eq(t.started, WORKERS);
    ck_assert_uint_eq(t.cold, 0);
    expect_empty_by_kill();
    ck_assert_uint_eq(t.exited, WORKERS);
    ck_assert_int_eq(kill(t.template_pid, 0), 0);
    end_guard();
}

TEST_IN_EACH_MODE(after_a_kill_the_next_group_is_warm_too)
{
    char group[64];

    begin_guard(_i);
    begin_template();
    for (uint32_t round = 1; round <= 3; round++) {
        t.exited = 0;
        spawn(0, "orphan", "1", "sleep", NULL);
        spawn(1, "sleep", NULL);
        wait_until(&t.warm, 2 * round);
        expect_empty_by_kill();
        ck_assert_uint_eq(t.exited, 2);
    }
    spawn(0, "sleep", NULL);
    wait_until(&t.warm, 7);
    read_group(t.pid[0], group, sizeof(group));
    if (in_cgroup())
        ck_assert_str_eq(group, "after-kill-3");
    ck_assert_uint_eq(t.cold, 0);
    end_guard();
}

/* -- its faults ----------------------------------------------------------------- */

static const struct {
    const char *word, *fault;
    bool is_ended; /* by the guard, or by itself */
} faults[] = {
    { "dies", "it or its fork ended before the answer", true },
    { "hangs", "its imports take too long", true },
    { "leaves", "it or its fork ended before the answer", true },
    { "deaf", "it does not answer", true },
    { "wrong", "it answers with the pid of another process", true },
    { "other", "it answers with the pid of another process", true },
    { "itself", "it answers with the pid of another process", true },
    { "unborn", "it or its fork ended before the answer", false },
    { "grandchild", "it or its fork ended before the answer", false },
};

TEST_LOOP(whatever_it_does_wrong_the_worker_starts_cold, 0,
          (int)(COUNT(faults) * MODE_COUNT))
{
    const char *word = faults[_i / MODE_COUNT].word;

    begin_guard(_i % MODE_COUNT);
    start_template(strcmp(word, "hangs") == 0 ? SOON_MS : LATE_MS,
                   strcmp(word, "deaf") == 0 ? SOON_MS : LATE_MS, word, NULL);
    spawn(0, "nap", "50", "exit", "5", NULL);
    wait_until(&t.exited, 1);
    ck_assert_uint_eq(t.started, 1);
    ck_assert_int_eq(t.exit[0].status, 5 << 8);
    ck_assert_uint_eq(t.warm, 0);
    if (t.cold == 1)
        ck_assert_str_eq(t.fault, faults[_i / MODE_COUNT].fault);
    else /* its end was known before the request came */
        ck_assert_str_eq(faults[_i / MODE_COUNT].word, "dies");
    if (faults[_i / MODE_COUNT].is_ended)
        wait_until(&t.template_ended, 1);
    else
        ck_assert_uint_eq(t.template_ended, 0);
    end_guard();
}

TEST(an_answer_more_is_ignored)
{
    begin_guard(IN_CGROUP);
    start_template(PATIENCE_MS, PATIENCE_MS, "twice", NULL);
    spawn(0, "exit", "5", NULL);
    wait_until(&t.exited, 1);
    ck_assert_uint_eq(t.warm, 1);
    ck_assert_uint_eq(t.started, 1);
    ck_assert_int_eq(t.exit[0].status, 5 << 8);
    end_guard();
}

/* It may have been adopted before it ended, or not. */
TEST_IN_EACH_MODE(a_fork_that_ends_at_once_is_one_worker_at_most)
{
    begin_guard(_i);
    start_template(PATIENCE_MS, PATIENCE_MS, "stillborn", NULL);
    for (uint32_t i = 0; i < WORKERS; i++)
        spawn(i, "exit", "0", NULL);
    wait_until(&t.exited, WORKERS);
    ck_assert_uint_eq(t.started, WORKERS);
    ck_assert_uint_eq(t.warm + t.cold, WORKERS);
    guard_sweep(t.guard, 0, 0);
    wait_until(&t.empty, 1);
    end_guard();
}

TEST(a_program_that_cannot_be_executed_is_no_template)
{
    const char *argv[] = { "/nonexistent/python3", NULL };
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct guard_template template = { .argv = argv,
                                       .fd = { null, null, null },
                                       .ready_ms = PATIENCE_MS,
                                       .answer_ms = PATIENCE_MS };
    struct err e;

    begin_guard(IN_CGROUP);
    template.env = (const char *const *)environ; /* begin_guard may have moved it */
    ck_assert_int_eq(guard_start_template(t.guard, &template, &e), 0);
    spawn(0, "exit", "5", NULL);
    wait_until(&t.template_ended, 1);
    ck_assert_int_eq(t.errnum, ENOENT);
    ck_assert_str_eq(t.what, "execve");
    wait_until(&t.exited, 1);
    ck_assert_int_eq(t.exit[0].status, 5 << 8);
    ck_assert_uint_eq(t.warm, 0);
    ck_assert_uint_le(t.cold, 1); /* 0: its end was known before the request came */
    close(null);
    end_guard();
}

TEST_IN_EACH_MODE(one_that_was_killed_is_replaced_and_workers_start_cold_until_then)
{
    begin_guard(_i);
    begin_template();
    kill(t.template_pid, SIGKILL);
    wait_until(&t.template_ended, 1);
    ck_assert_int_eq(t.template_status, SIGKILL);
    ck_assert_str_eq(t.fault, ""); /* it was not the guard */
    spawn(0, "sleep", NULL);
    wait_until(&t.started, 1);
    start_template(PATIENCE_MS, PATIENCE_MS, "late", "200", NULL);
    spawn(1, "sleep", NULL);
    wait_until(&t.started, 2);
    ck_assert_uint_eq(t.ready, 1);
    wait_until(&t.ready, 2);
    spawn(2, "sleep", NULL);
    wait_until(&t.warm, 1);
    expect_empty_by_kill();
    ck_assert_uint_eq(t.exited, 3);
    end_guard();
}

TEST_IN_EACH_MODE(no_worker_waits_for_one_that_imports_again)
{
    struct proc_stat stat;

    begin_guard(_i);
    start_template(PATIENCE_MS, PATIENCE_MS, "renews", NULL);
    wait_until(&t.ready, 1);
    spawn(0, "sleep", NULL);
    wait_until(&t.started, 1);
    ck_assert_uint_eq(t.cold, 1);
    ck_assert_str_eq(t.fault, "it imports again");
    spawn(1, "sleep", NULL);
    wait_until(&t.started, 2);
    ck_assert_uint_eq(t.ready, 1);
    while (proc_read_stat(t.template_pid, &stat) && stat.state != 'T')
        loop_turn(t.loop, 1);
    kill(t.template_pid, SIGCONT);
    wait_until(&t.ready, 2);
    spawn(2, "sleep", NULL);
    wait_until(&t.warm, 1);
    ck_assert_uint_eq(t.started, 3);
    ck_assert_uint_eq(t.template_ended, 0);
    end_guard();
}

/* -- workers that wait ---------------------------------------------------------- */

static void ask_to_end(int how)
{
    if (how == 0)
        guard_kill(t.guard);
    else if (how == 1)
        guard_sweep(t.guard, 0, 0);
    else
        guard_signal(t.guard, GUARD_ALL, SIGTERM);
}

TEST_LOOP(a_worker_that_waits_is_dropped, 0, 3)
{
    static const int status[] = { SIGKILL, SIGKILL, SIGTERM };

    begin_guard(IN_CGROUP);
    start_template(PATIENCE_MS, PATIENCE_MS, "late", "500", NULL);
    spawn(0, "sleep", NULL);
    spawn(1, "sleep", NULL);
    guard_signal(t.guard, GUARD_ALL, SIGUSR1); /* ends none */
    ask_to_end(_i);
    wait_until(&t.exited, 2);
    ck_assert_uint_eq(t.started, 0);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(t.exit[i].pid, 0);
        ck_assert_int_eq(t.exit[i].status, status[_i]);
    }
    if (_i < 2)
        wait_until(&t.empty, 1);
    wait_until(&t.ready, 1);
    spawn(0, "sleep", NULL);
    wait_until(&t.warm, 1);
    ck_assert_uint_eq(t.started, 1);
    end_guard();
}

TEST_IN_EACH_MODE(the_fence_drops_it_for_good)
{
    const struct fence_terms passed = { .until_ms = 1 };

    begin_guard(_i);
    start_template(PATIENCE_MS, PATIENCE_MS, "late", "200", NULL);
    spawn(0, "sleep", NULL);
    guard_fence(t.guard, &passed);
    wait_until(&t.exited, 1);
    ck_assert_uint_eq(t.fenced, 1);
    wait_until(&t.ready, 1);
    spawn(0, "sleep", NULL);
    wait_until(&t.exited, 2);
    ck_assert_uint_eq(t.started, 0);
    end_guard();
}

/* The request is with the template, which is stopped: its fork gets no "go" later. */
TEST_IN_EACH_MODE(a_worker_that_was_asked_for_is_dropped_too)
{
    begin_guard(_i);
    begin_template();
    kill(t.template_pid, SIGSTOP);
    spawn(0, "sleep", NULL);
    expect_empty_by_kill();
    ck_assert_uint_eq(t.exited, 1);
    ck_assert_uint_eq(t.started, 0);
    kill(t.template_pid, SIGCONT);
    t.exited = 0;
    spawn(0, "exit", "5", NULL);
    wait_until(&t.exited, 1);
    ck_assert_uint_eq(t.warm, 1);
    ck_assert_uint_eq(t.started, 1);
    guard_sweep(t.guard, 0, PATIENCE_MS);
    wait_until(&t.empty, 2);
    end_guard();
}

/* -- the end -------------------------------------------------------------------- */

TEST_IN_EACH_MODE(it_ends_with_the_guard)
{
    begin_guard(_i);
    begin_template();
    spawn(0, "sleep", NULL);
    wait_until(&t.warm, 1);
    kill(guard_pid(t.guard), SIGKILL);
    wait_until(&t.died, 1);
    ck_assert_uint_eq(procs_with(t.cookie), 0);
    end_guard();
}

TEST_IN_EACH_MODE(one_that_imports_does_not_delay_the_end)
{
    uint64_t begun_ms = clock_ms();

    begin_guard(_i);
    start_template(PATIENCE_MS, PATIENCE_MS, "hangs", NULL);
    spawn(0, "sleep", NULL);
    end_guard();
    ck_assert_uint_lt(clock_ms() - begun_ms, procs_patience(4000));
}
