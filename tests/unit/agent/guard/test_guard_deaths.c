/* SPDX-License-Identifier: MIT */
/* takes: 7 s */
/* no root: without a cgroup it ends descendants by their parents */
/*
 * Nothing outlives the process that answers for it, in each containment: the guard, its
 * agent or its warden is killed, or the fence passes.
 */
#include "agent/guard/guard.h"

#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/cleanup/child_procs.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/guard_world.h"
#include "tests/worlds/procs.h"

#define SOON_MS 100 /* the promise: nothing lives longer than this, given a core */

/* -- deaths ----------------------------------------------------------------- */

TEST_IN_EACH_MODE(when_the_guard_is_killed_all_ends_and_the_agent_is_told)
{
    begin_guard(_i);
    spawn_ready(0, "orphan", "5", "child", "say", "ready", "sleep", NULL);
    spawn_ready(1, "say", "ready", "stop", NULL);
    kill(guard_pid(t.guard), SIGKILL);
    wait_until(&t.died, 1);
    ck_assert_str_eq(t.why, "killed by signal 9");
    ck_assert_uint_eq(procs_with(t.cookie), 0);
    guard_signal(t.guard, GUARD_ALL, SIGTERM); /* to no worker */
    guard_kill(t.guard);
    end_guard();
}

TEST_IN_EACH_MODE(a_guard_that_does_not_answer_is_ended_by_force)
{
    struct err e;

    begin_guard(_i);
    spawn_ready(0, "orphan", "1", "say", "ready", "sleep", NULL);
    kill(guard_pid(t.guard), SIGSTOP);
    guard_kill(t.guard);
    loop_turn(t.loop, 20);
    ck_assert_uint_eq(t.empty, 0);
    guard_force(t.guard);
    wait_until(&t.died, 1);
    ck_assert_str_eq(t.why, "killed by signal 9");
    ck_assert(!guard_has_leftovers(t.guard, &e));
    ck_assert_uint_eq(procs_with(t.cookie), 0);
    end_guard();
}

/* A process with a number that another one had. 0: there can be none. */
static pid_t start_successor(pid_t pid)
{
    struct clone_args args = { .exit_signal = SIGCHLD,
                               .set_tid = (uint64_t)(uintptr_t)&pid,
                               .set_tid_size = 1 };
    pid_t child = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

    if (child == 0)
        for (;;)
            pause();
    return child < 0 ? 0 : child;
}

/* Before the agent notices that its guard has ended, the number may be another
 * process's. */
TEST(no_process_is_ended_in_place_of_the_guard)
{
    pid_t guard, successor;
    int status;

    begin_guard(IN_SESSION); /* with a warden, which reaps it */
    guard = guard_pid(t.guard);
    kill(guard, SIGKILL);
    while (kill(guard, 0) == 0)
        usleep(1000);
    successor = start_successor(guard);
    guard_force(t.guard);
    if (successor) {
        usleep(50000); /* for a signal to end it */
        ck_assert_int_eq(waitpid(successor, &status, WNOHANG), 0);
        kill(successor, SIGKILL);
        waitpid(successor, &status, 0);
    }
    wait_until(&t.died, 1);
    end_guard();
}

TEST_IN_EACH_MODE(a_guard_that_dies_while_it_is_started_is_missed)
{
    siginfo_t info;

    begin_guard(_i);
    signal(SIGCHLD, SIG_DFL); /* as if it had been told too early */
    kill(guard_pid(t.guard), SIGKILL);
    ck_assert_int_eq(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT), 0); /* or its warden */
    wait_until(&t.died, 1);
    end_guard();
}

/* The agent's end of the guard's socket. */
static int find_socket(void)
{
    int type;

    for (int fd = 3; fd < 64; fd++) {
        socklen_t size = sizeof(type);

        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
            type == SOCK_SEQPACKET)
            return fd;
    }
    ck_abort_msg("no socket");
}

TEST_IN_EACH_MODE(a_guard_that_finds_no_agent_ends_all)
{
    begin_guard(_i);
    spawn_ready(0, "say", "ready", "sleep", NULL);
    spawn_ready(1, "orphan", "1", "say", "ready", "sleep", NULL);
    wait_until(&t.started, 2);
    /* no end of file for the guard, only no reader */
    ck_assert_int_eq(shutdown(find_socket(), SHUT_RD), 0);
    kill(t.pid[0], SIGKILL);
    wait_until(&t.died, 1);
    ck_assert_str_eq(t.why, "exited with status 0");
    end_guard();
}

TEST_IN_EACH_MODE(an_older_child_of_the_agent_survives_the_guard)
{
    int status;
    pid_t pid;

    enter_mode(_i);
    pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    begin_guard_here();
    kill(guard_pid(t.guard), SIGKILL);
    wait_until(&t.died, 1);
    ck_assert_int_eq(waitpid(pid, &status, WNOHANG), 0);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    end_guard();
}

/* An agent that starts workers until it is killed. */
static void be_an_agent(int mode, int out)
{
    begin_guard(mode);
    if (write(out, t.cookie, sizeof(t.cookie)) != sizeof(t.cookie))
        _exit(1);
    for (uint32_t i = 0; i < 4; i++)
        spawn(i, "orphan", "2", "child", "ignore", "15", "sleep", NULL);
    for (;;)
        loop_turn(t.loop, 1000);
}

TEST_IN_EACH_MODE(when_the_agent_is_killed_nothing_lives_a_moment_later)
{
    static const unsigned moments_us[] = { 0, 100, 500, 1000, 2000, 3000, 5000, 20000 };
    uint64_t took_ms;
    unsigned late = 0;

    for (size_t i = 0; i < sizeof(moments_us) / sizeof(moments_us[0]); i++) {
        char cookie[sizeof(t.cookie)];
        int pipe_fd[2];
        pid_t pid;

        ck_assert_int_eq(pipe(pipe_fd), 0);
        pid = fork();
        if (pid == 0)
            be_an_agent(_i, pipe_fd[1]);
        ck_assert_int_eq(read(pipe_fd[0], cookie, sizeof(cookie)), sizeof(cookie));
        usleep(moments_us[i]);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        took_ms = procs_wait_none(cookie, procs_patience(PATIENCE_MS));
        ck_assert_uint_ne(took_ms, UINT64_MAX);
        late += took_ms > procs_patience(SOON_MS) * procs_crowd();
        close(pipe_fd[0]);
        close(pipe_fd[1]);
    }
    ck_assert_uint_le(late, 1); /* on a machine that is busy with something else */
}

/* -- the fence -------------------------------------------------------------- */

static void fence_in(uint64_t ms, uint32_t grace_ms)
{
    const struct fence_terms terms = { .until_ms = clock_ms() + ms,
                                       .grace_ms = grace_ms,
                                       .extension_ms = 1 };

    guard_fence(t.guard, &terms);
}

TEST_IN_EACH_MODE(past_the_fence_workers_are_ended_and_none_is_started)
{
    begin_guard(_i);
    spawn_ready(0, "orphan", "1", "ignore", "15", "say", "ready", "sleep", NULL);
    spawn_ready(1, "say", "ready", "sleep", NULL);
    fence_in(50, 100);
    wait_until(&t.fenced, 1);
    wait_until(&t.exited, 2);
    ck_assert_int_eq(t.exit[0].status, SIGTERM);
    ck_assert_uint_eq(t.exit[0].local_rank, 1);
    ck_assert_int_eq(t.exit[1].status, SIGKILL);
    spawn(2, "sleep", NULL);
    wait_until(&t.failed, 1);
    ck_assert_uint_eq(t.fenced_before, 2); /* it is no fault of the program */
    ck_assert_str_eq(t.what, "fence");
    wait_until(&t.exited, 3);
    expect_empty_by_kill();
    ck_assert_uint_eq(procs_with(t.cookie), 0);
    ck_assert_int_eq(kill(guard_pid(t.guard), 0), 0); /* it stays, and guards */
    fence_in(60000, 100);
    spawn_ready(3, "say", "ready", "sleep", NULL);
    expect_empty_by_kill();
    ck_assert_uint_eq(t.fenced, 2);
    end_guard();
}

TEST_IN_EACH_MODE(a_fence_that_is_moved_on_never_passes)
{
    uint64_t until_ms = clock_ms() + 300;

    begin_guard(_i);
    spawn_ready(0, "say", "ready", "sleep", NULL);
    while (clock_ms() < until_ms) {
        fence_in(procs_patience(2000), 0);
        loop_turn(t.loop, 10);
    }
    fence_in(1, 0); /* earlier: changes nothing */
    loop_turn(t.loop, 50);
    ck_assert_uint_eq(t.fenced, 0);
    ck_assert_uint_eq(t.exited, 0);
    end_guard();
}

/* The agent asks for nothing and reads nothing: it might as well be frozen. */
TEST_IN_EACH_MODE(the_fence_needs_no_agent)
{
    begin_guard(_i);
    spawn_ready(0, "orphan", "1", "say", "ready", "sleep", NULL);
    fence_in(50, 100);
    while (procs_with(t.cookie) > 0)
        usleep(1000);
    wait_until(&t.exited, 1);
    ck_assert_uint_eq(t.fenced, 1);
    end_guard();
}

/* -- what holds them -------------------------------------------------------- */

/* The folder of the agent's group in /sys, or "" where there can be none. */
static void own_cgroup(char *path, size_t size)
{
    char command[256];
    FILE *found;

    snprintf(
        command, sizeof(command),
        "find $(awk '$3 == \"cgroup2\" { print $2 }' /proc/mounts) -maxdepth 9 -type d "
        "-name 'crun-%d-*' 2>/dev/null",
        (int)getpid());
    found = popen(command, "r");
    ck_assert_ptr_nonnull(found);
    if (!fgets(path, (int)size, found))
        *path = '\0';
    path[strcspn(path, "\n")] = '\0';
    pclose(found);
}

/* The group goes before the first worker comes. */
TEST(a_cgroup_that_takes_no_process_is_admitted)
{
    char path[512];

    begin_guard(IN_CGROUP);
    own_cgroup(path, sizeof(path));
    ck_assert_str_eq(guard_containment(t.guard), *path ? "cgroup" : "session+warden");
    if (*path)
        ck_assert_int_eq(rmdir(path), 0);
    spawn(0, "exit", "0", NULL);
    wait_until(&t.exited, 1);
    ck_assert_int_eq(t.exit[0].status, 0);
    ck_assert_str_eq(guard_containment(t.guard), *path ? "session" : "session+warden");
    end_guard();
}

TEST(without_a_cgroup_there_is_a_warden)
{
    begin_guard(IN_SESSION);
    ck_assert_str_eq(guard_containment(t.guard), "session+warden");
    end_guard();
}

/* -- any one of the three is enough ----------------------------------------- */

static pid_t parent_of(pid_t pid)
{
    char path[64], text[512];
    int parent = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    f = fopen(path, "re");
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(fgets(text, sizeof(text), f));
    fclose(f);
    ck_assert_int_eq(sscanf(strrchr(text, ')'), ") %*c %d", &parent), 1);
    return parent;
}

/* Tells its cookie and its guard's pid when its workers have started. */
static void be_an_agent_in_session(int mode, int out)
{
    pid_t guard;

    begin_guard(mode);
    guard = guard_pid(t.guard);
    for (uint32_t i = 0; i < 3; i++)
        spawn_ready(i, "orphan", "2", "child", "ignore", "15", "say", "ready", "sleep",
                    NULL);
    if (write(out, t.cookie, sizeof(t.cookie)) != sizeof(t.cookie) ||
        write(out, &guard, sizeof(guard)) != sizeof(guard))
        _exit(1);
    for (;;)
        loop_turn(t.loop, 1000);
}

enum { KILL_AGENT = 1, KILL_GUARD = 2, KILL_WARDEN = 4 };

/* All pairs and each alone, in sessions.
 * They are stopped first: none sees another end. */
TEST_LOOP(without_a_cgroup_one_of_three_is_enough, KILL_AGENT,
          KILL_AGENT + KILL_GUARD + KILL_WARDEN)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* to reap all orphans */
    for (int mode = IN_SESSION; mode < MODE_COUNT; mode++) {
        char cookie[sizeof(t.cookie)];
        pid_t agent, guard, warden;
        int out[2];

        ck_assert_int_eq(pipe(out), 0);
        agent = fork();
        if (agent == 0)
            be_an_agent_in_session(mode, out[1]);
        close(out[1]); /* if it dies, nothing is waited for */
        ck_assert_int_eq(read(out[0], cookie, sizeof(cookie)), sizeof(cookie));
        ck_assert_int_eq(read(out[0], &guard, sizeof(guard)), sizeof(guard));
        warden = parent_of(guard);
        ck_assert_int_ne(warden, agent);
        if (_i & KILL_GUARD)
            kill(guard, SIGSTOP);
        if (_i & KILL_AGENT)
            kill(agent, SIGSTOP);
        if (_i & KILL_WARDEN)
            kill(warden, SIGKILL);
        if (_i & KILL_AGENT)
            kill(agent, SIGKILL);
        if (_i & KILL_GUARD)
            kill(guard, SIGKILL);
        if (!(_i & KILL_AGENT)) { /* it lives on, and is told: its workers end */
            uint64_t until_ms = clock_ms() + procs_patience(PATIENCE_MS);

            while (procs_with(cookie) > 0 && clock_ms() < until_ms)
                usleep(1000);
            ck_assert_uint_eq(procs_with(cookie), 0);
            kill(agent, SIGKILL);
        }
        ck_assert_uint_ne(procs_wait_none(cookie, procs_patience(PATIENCE_MS)),
                          UINT64_MAX);
        while (waitpid(-1, NULL, 0) > 0) /* nor does the warden outlive its work */
            ;
        close(out[0]);
    }
}

/* -- kin -------------------------------------------------------------------- */

TEST(children_are_found_with_and_without_a_list)
{
    pid_t child[3], listed[8], scanned[8];

    ck_assert(!child_procs_exist());
    for (int i = 0; i < 3; i++) {
        child[i] = fork();
        if (child[i] == 0)
            for (;;)
                pause();
    }
    ck_assert(child_procs_exist());
    ck_assert_uint_eq(child_procs_list(listed, 8), 3);
    ck_assert_uint_eq(child_procs_list_by_scan(scanned, 8), 3);
    ck_assert_uint_eq(child_procs_list(listed, 2), 2);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(scanned[i], child[i]);
        kill(child[i], SIGKILL);
        waitpid(child[i], NULL, 0);
    }
    ck_assert_uint_eq(child_procs_list(listed, 8), 0);
    ck_assert(!child_procs_exist());
}
