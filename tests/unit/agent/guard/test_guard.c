/* SPDX-License-Identifier: MIT */
/* takes: 8 s */
/* no root: what root alone may do, it does otherwise */
/*
 * A real guard with real workers, in each containment: in a cgroup where there can be
 * one, in sessions, and in sessions of an ordinary user. How workers begin and end.
 */
#include "agent/guard/guard.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/guard_world.h"
#include "tests/worlds/procs.h"

/* -- ends ------------------------------------------------------------------- */

static const struct {
    const char *word, *arg;
    int status;
} ends[] = {
    { "exit", "0", 0 },     { "exit", "3", 3 << 8 }, { "exit", "255", 255 << 8 },
    { "signal", "15", 15 }, { "signal", "9", 9 },    { "signal", "1", 1 },
    { "signal", "13", 13 },
};

TEST_IN_EACH_MODE(a_worker_ends_with_a_status_of_its_own)
{
    enum { COUNT = sizeof(ends) / sizeof(ends[0]) };
    uint64_t begun_ms = clock_ms();

    begin_guard(_i);
    for (uint32_t i = 0; i < COUNT; i++)
        spawn(i, ends[i].word, ends[i].arg, NULL);
    wait_until(&t.exited, COUNT);
    ck_assert_uint_eq(t.started, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t local_rank = t.exit[i].local_rank;

        ck_assert_int_eq(t.exit[i].status, ends[local_rank].status);
        ck_assert_int_eq(t.exit[i].pid, t.pid[local_rank]);
        ck_assert(!t.exit[i].out_of_memory);
        ck_assert_uint_ge(t.exit[i].at_ms, begun_ms);
        ck_assert_uint_le(t.exit[i].at_ms, clock_ms());
    }
    guard_sweep(t.guard, 0, 0);
    wait_until(&t.empty, 1);
    end_guard();
}

TEST_IN_EACH_MODE(exits_are_told_in_the_order_in_which_they_happened)
{
    static const uint32_t order[] = { 5, 2, 7, 0, 6, 1, 4, 3 };
    enum { COUNT = sizeof(order) / sizeof(order[0]) };
    char path[64], text[512];

    begin_guard(_i);
    for (uint32_t i = 0; i < COUNT; i++)
        spawn_ready(i, "say", "ready", "sleep", NULL);
    wait_until(&t.started, COUNT);
    kill(guard_pid(t.guard), SIGSTOP);
    for (uint32_t i = 0; i < COUNT; i++) {
        bool dead = false;

        kill(t.pid[order[i]], SIGKILL);
        snprintf(path, sizeof(path), "/proc/%d/stat", (int)t.pid[order[i]]);
        while (!dead) { /* before the next one is killed */
            FILE *f = fopen(path, "re");

            dead = fgets(text, sizeof(text), f) && strstr(text, ") Z ");
            fclose(f);
        }
    }
    kill(guard_pid(t.guard), SIGCONT);
    wait_until(&t.exited, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        ck_assert_uint_eq(t.exit[i].local_rank, order[i]);
    end_guard();
}

/* -- programs that cannot be executed --------------------------------------- */

static const struct {
    const char *text; /* NULL: no such file */
    size_t size;
    mode_t mode;
    int errnum;
} programs[] = {
    { NULL, 0, 0, ENOENT },
    { "#!/bin/sh\n", 10, 0644, EACCES },
    { "", 0, 0755, ENOEXEC },
    { "echo no first line\n", 19, 0755, ENOEXEC },
    { "\x7f"
      "ELF\2\1\1",
      7, 0755, ENOEXEC },
    { "#!/nonexistent/interpreter\n", 27, 0755, ENOENT },
};

TEST_EACH(a_program_that_cannot_be_executed_is_told_with_its_errno, programs)
{
    char file[] = "/tmp/crun-test-guard-XXXXXX";
    const char *argv[] = { file, NULL };
    int fd = mkstemp(file);

    ck_assert_int_eq(
        write(fd, programs[_i].text ? programs[_i].text : "", programs[_i].size),
        (int)programs[_i].size);
    fchmod(fd, programs[_i].mode);
    close(fd);
    if (!programs[_i].text)
        unlink(file);
    begin_guard(IN_CGROUP);
    spawn_to(1, argv, -1);
    wait_until(&t.exited, 1);
    ck_assert_uint_eq(t.failed, 1);
    ck_assert_int_eq(t.errnum, programs[_i].errnum);
    ck_assert_str_eq(t.what, "execve");
    ck_assert_int_eq(t.exit[0].status, 127 << 8);
    guard_sweep(t.guard, 0, 0);
    wait_until(&t.empty, 1);
    end_guard();
    unlink(file);
}

TEST(a_directory_is_not_a_program)
{
    const char *argv[] = { "/tmp", NULL };

    begin_guard(IN_SESSION);
    spawn_to(0, argv, -1);
    wait_until(&t.exited, 1);
    ck_assert_int_eq(t.errnum, EACCES);
    end_guard();
}

TEST(a_place_that_is_taken_is_refused)
{
    begin_guard(IN_SESSION);
    spawn_ready(3, "say", "ready", "sleep", NULL);
    spawn(3, "exit", "0", NULL);
    wait_until(&t.exited, 1);
    ck_assert_int_eq(t.errnum, EEXIST);
    expect_empty_by_kill();
    end_guard();
}

/* -- stopping --------------------------------------------------------------- */

TEST_IN_EACH_MODE(a_signal_reaches_one_group_or_all)
{
    begin_guard(_i);
    for (uint32_t i = 0; i < 3; i++)
        spawn_ready(i, "child", "say", "ready", "sleep", NULL);
    guard_signal(t.guard, 1, SIGUSR1);
    wait_until(&t.exited, 1);
    ck_assert_uint_eq(t.exit[0].local_rank, 1);
    ck_assert_int_eq(t.exit[0].status, SIGUSR1);
    guard_signal(t.guard, GUARD_ALL, SIGTERM);
    wait_until(&t.exited, 3);
    guard_sweep(t.guard, 0,
                10000); /* the children were in the groups: nothing is left */
    wait_until(&t.empty, 1);
    ck_assert_uint_eq(procs_with(t.cookie), 0);
    end_guard();
}

TEST_IN_EACH_MODE(a_stopped_worker_obeys_term)
{
    begin_guard(_i);
    spawn_ready(0, "say", "ready", "stop", "sleep", NULL);
    guard_signal(t.guard, GUARD_ALL, SIGTERM);
    wait_until(&t.exited, 1);
    ck_assert_int_eq(t.exit[0].status, SIGTERM);
    end_guard();
}

TEST_IN_EACH_MODE(a_worker_that_ignores_term_is_killed)
{
    begin_guard(_i);
    spawn_ready(0, "ignore", "15", "say", "ready", "sleep", NULL);
    spawn_ready(1, "say", "ready", "stop", NULL);
    spawn_ready(2, "orphan", "5", "child", "say", "ready", "sleep", NULL);
    guard_kill(t.guard);
    wait_until(&t.empty, 1);
    ck_assert_uint_eq(t.exited, 3); /* told before */
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(t.exit[i].status, SIGKILL);
    ck_assert_uint_eq(procs_with(t.cookie), 0);
    end_guard();
}

TEST_IN_EACH_MODE(leftovers_get_the_grace_and_no_more)
{
    uint64_t begun_ms, took_ms;

    begin_guard(_i);
    spawn_ready(0, "orphan", "3", "say", "ready", "exit", "0", NULL);
    wait_until(&t.exited, 1);
    ck_assert_uint_eq(procs_with(t.cookie), 3);
    begun_ms = clock_ms();
    guard_sweep(t.guard, 100, 50);
    wait_until(&t.leftovers, 3);
    ck_assert_uint_ge(clock_ms() - begun_ms, 100);
    ck_assert_str_eq(t.what, "test-worker");
    wait_until(&t.empty, 1);
    took_ms = clock_ms() - begun_ms;
    ck_assert_uint_ge(took_ms, 150);
    ck_assert_uint_eq(procs_with(t.cookie), 0);
    end_guard();
}

TEST_IN_EACH_MODE(leftovers_that_end_on_term_cost_no_grace)
{
    begin_guard(_i);
    spawn_ready(0, "child", "say", "ready", "exit", "0", NULL);
    wait_until(&t.exited, 1);
    guard_sweep(t.guard, 0, 60000);
    wait_until(&t.empty, 1);
    ck_assert_uint_eq(t.leftovers, 1);
    ck_assert_int_eq(t.leftover_session, t.pid[0]);
    end_guard();
}

/* Each comes up when the one before has ended. */
TEST_IN_EACH_MODE(leftovers_that_come_up_later_get_their_term_too)
{
    begin_guard(_i);
    spawn_ready(0, "chain", "5", "say", "ready", "exit", "0", NULL);
    wait_until(&t.exited, 1);
    guard_sweep(t.guard, 0, 60000);
    wait_until(&t.empty, 1);
    end_guard();
}

TEST_IN_EACH_MODE(a_kill_cuts_the_grace_of_a_sweep_short)
{
    begin_guard(_i);
    spawn_ready(0, "orphan", "1", "say", "ready", "exit", "0", NULL);
    wait_until(&t.exited, 1);
    guard_sweep(t.guard, 0, 60000);
    guard_kill(t.guard);
    wait_until(&t.empty, 1);
    loop_turn(t.loop, 20);
    ck_assert_uint_eq(t.empty, 1); /* one answer to the two */
    end_guard();
}

TEST_IN_EACH_MODE(processes_that_fork_all_the_time_are_ended)
{
    begin_guard(_i);
    spawn_ready(0, "storm", "4", "say", "ready", "sleep", NULL);
    usleep(20000);
    expect_empty_by_kill();
    ck_assert_uint_eq(procs_with(t.cookie), 0);
    end_guard();
}

TEST_IN_EACH_MODE(the_dead_of_others_are_reaped)
{
    char path[64], text[8] = "";
    FILE *f;

    begin_guard(_i);
    spawn_ready(0, "zombies", "300", "say", "ready", "sleep", NULL);
    spawn(1, "exit", "0", NULL);
    wait_until(&t.exited, 1);
    usleep(20000);
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)guard_pid(t.guard),
             (int)guard_pid(t.guard));
    f = fopen(path, "re");
    if (f) { /* where the kernel tells: one child, and no other */
        ck_assert_ptr_nonnull(fgets(text, sizeof(text), f));
        ck_assert_int_eq(atoi(text), t.pid[0]);
        ck_assert_ptr_null(fgets(text, sizeof(text), f));
        fclose(f);
    }
    expect_empty_by_kill();
    end_guard();
}

TEST_IN_EACH_MODE(one_group_follows_another)
{
    begin_guard(_i);
    for (uint32_t epoch = 1; epoch <= 5; epoch++) {
        for (uint32_t i = 0; i < 4; i++)
            spawn_ready(i, "orphan", "1", "say", "ready", "sleep", NULL);
        expect_empty_by_kill();
        ck_assert_uint_eq(t.exited, 4);
        ck_assert_uint_eq(procs_with(t.cookie), 0);
        t.exited = 0;
    }
    end_guard();
}

TEST_IN_EACH_MODE(stopping_the_guard_ends_all)
{
    begin_guard(_i);
    spawn_ready(0, "orphan", "2", "child", "say", "ready", "sleep", NULL);
    end_guard();
}

/* How often the guard has gone to sleep, once it sleeps; the file's own words. */
static void read_sleeps(char *text, size_t size)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/status", (int)guard_pid(t.guard));
    do {
        FILE *f = fopen(path, "re");

        text[fread(text, 1, size - 1, f)] = '\0';
        fclose(f);
    } while (!strstr(text, "State:\tS"));
}

TEST_IN_EACH_MODE(an_idle_guard_does_not_wake_up)
{
    char before[4096], after[4096];
    bool woke = true;

    begin_guard(_i);
    spawn_ready(0, "say", "ready", "sleep", NULL);
    wait_until(&t.started, 1);
    /* the kernel tells of its start a little later: at most the first time */
    for (int i = 0; i < 5 && woke; i++) {
        read_sleeps(before, sizeof(before));
        usleep(100000);
        read_sleeps(after, sizeof(after));
        woke = strcmp(strstr(before, "\nvoluntary_ctxt"),
                      strstr(after, "\nvoluntary_ctxt")) != 0;
    }
    ck_assert(!woke);
    end_guard();
}

/* -- a machine that is full ------------------------------------------------- */

static rlim_t descriptors_of(pid_t pid)
{
    rlim_t count = 0;
    char path[64];
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count - 2;
}

/* From none of an ask's descriptors arriving up to all of them. */
TEST_LOOP(every_worker_is_answered_where_descriptors_run_out, 0, 7)
{
    struct rlimit few;
    uint64_t until_ms = clock_ms() + procs_patience(PATIENCE_MS);

    enter_mode(AS_NOBODY);
    begin_guard_here();
    spawn_ready(0, "say", "ready", "sleep", NULL); /* the guard is up */
    few.rlim_cur = few.rlim_max = descriptors_of(guard_pid(t.guard)) + (rlim_t)_i;
    ck_assert_int_eq(prlimit(guard_pid(t.guard), RLIMIT_NOFILE, &few, NULL), 0);
    for (uint32_t i = 1; i < WORKERS; i++)
        spawn(i, "sleep", NULL);
    while (t.started + t.exited < WORKERS && clock_ms() < until_ms)
        loop_turn(t.loop, 20);
    ck_assert_uint_eq(t.started + t.exited, WORKERS);
    ck_assert_uint_eq(t.failed, t.exited);
    ck_assert_int_eq(t.errnum, t.failed > 0 ? EMFILE : 0);
    expect_empty_by_kill();
    ck_assert_uint_eq(t.exited, WORKERS);
    end_guard();
}

/* Where there is no room for another process for a moment. */
TEST(a_worker_is_tried_again_while_the_machine_is_full)
{
    struct rlimit none, before;

    enter_mode(AS_NOBODY);
    begin_guard_here();
    spawn_ready(1, "say", "ready", "sleep", NULL); /* the guard is up */
    ck_assert_int_eq(prlimit(guard_pid(t.guard), RLIMIT_NPROC, NULL, &before), 0);
    none = before;
    none.rlim_cur = 1;
    ck_assert_int_eq(prlimit(guard_pid(t.guard), RLIMIT_NPROC, &none, NULL), 0);
    spawn(0, "exit", "0", NULL);
    usleep(20000);
    ck_assert_int_eq(prlimit(guard_pid(t.guard), RLIMIT_NPROC, &before, NULL), 0);
    wait_until(&t.exited, 1);
    ck_assert_uint_eq(t.failed, 0);
    ck_assert_int_eq(t.exit[0].status, 0);
    expect_empty_by_kill();
    end_guard();
}

TEST(a_machine_that_stays_full_is_told_once_for_all)
{
    const struct rlimit none = { 1, 1 };
    uint64_t begun_ms;

    enter_mode(AS_NOBODY);
    begin_guard_here();
    spawn_ready(WORKERS - 1, "say", "ready", "sleep", NULL);
    ck_assert_int_eq(prlimit(guard_pid(t.guard), RLIMIT_NPROC, &none, NULL), 0);
    begun_ms = clock_ms();
    for (uint32_t i = 0; i < WORKERS - 1; i++)
        spawn(i, "sleep", NULL);
    wait_until(&t.failed, WORKERS - 1);
    ck_assert_int_eq(t.errnum, EAGAIN);
    ck_assert_uint_ge(clock_ms() - begun_ms, 1000);
    expect_empty_by_kill();
    ck_assert_uint_eq(t.exited, WORKERS);
    end_guard();
}
