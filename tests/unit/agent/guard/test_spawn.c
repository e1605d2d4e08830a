/* SPDX-License-Identifier: MIT */
/* no root: namespaces and priorities are root's */
#include "agent/guard/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/cleanup/cgroup.h"
#include "agent/guard/guard_wire.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/procs.h"

/* The ways of making a child, from the best one to fork; see spawn.c. */
#define WAYS 4

static struct {
    struct spawn_home home;
    int errors; /* the other end of home.errors */
    int null, pidfd;
} t;

static void setup(void)
{
    int errors[2];

    memset(&t, 0, sizeof(t));
    ck_assert_int_eq(pipe2(errors, O_CLOEXEC | O_NONBLOCK), 0);
    t.errors = errors[0];
    t.home.errors = errors[1];
    t.home.cgroup = -1;
    t.null = open("/dev/null", O_RDWR | O_CLOEXEC);
}

static void teardown(void)
{
    close(t.errors);
    close(t.home.errors);
    close(t.null);
}

static pid_t start_program(char *const *argv)
{
    const struct spawn s = { .argv = argv,
                             .env = environ,
                             .local_rank = 5,
                             .fd = { t.null, t.null, t.null },
                             .numa_node = -1 };

    return spawn_worker(&s, &t.home, &t.pidfd);
}

static int end_of(pid_t pid)
{
    int status;

    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    if (t.pidfd >= 0)
        close(t.pidfd);
    return status;
}

static void expect_failure(enum spawn_stage stage, int errnum)
{
    struct spawn_failure f;

    ck_assert_int_eq(read(t.errors, &f, sizeof(f)), sizeof(f));
    ck_assert_uint_eq(f.local_rank, 5);
    ck_assert_str_eq(spawn_stage_name((enum spawn_stage)f.stage),
                     spawn_stage_name(stage));
    ck_assert_int_eq(f.errnum, errnum);
}

static void expect_no_failure(void)
{
    struct spawn_failure f;

    ck_assert_int_eq(read(t.errors, &f, sizeof(f)), -1);
    ck_assert_int_eq(errno, EAGAIN);
}

FIXTURE(setup, teardown);

TEST_LOOP(a_worker_starts_in_every_way, 0, WAYS)
{
    char *argv[] = { (char *)procs_program("test-worker"), "exit", "9", NULL };
    pid_t pid;

    t.home.way = (unsigned)_i;
    pid = start_program(argv);
    ck_assert_int_gt(pid, 0);
    ck_assert_int_eq(end_of(pid), 9 << 8);
    expect_no_failure();
}

TEST_LOOP(what_cannot_be_executed_leaves_a_record_before_it_exits, 0, WAYS)
{
    char *argv[] = { "/nonexistent", NULL };
    pid_t pid;

    t.home.way = (unsigned)_i;
    pid = start_program(argv);
    ck_assert_int_gt(pid, 0);
    ck_assert_int_eq(end_of(pid), 127 << 8);
    expect_failure(SPAWN_EXEC, ENOENT);
}

TEST(a_directory_that_is_no_cgroup_does_not_keep_a_worker_from_starting)
{
    char *argv[] = { (char *)procs_program("test-worker"), "exit", "0", NULL };
    pid_t pid;

    t.home.cgroup = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pid = start_program(argv);
    ck_assert_int_gt(pid, 0);
    ck_assert_int_eq(end_of(pid), 0);
    expect_failure(SPAWN_CGROUP, ENOENT);
    ck_assert_uint_ge(t.home.way, 1); /* and the next one does not try it again */
    close(t.home.cgroup);
}

/* No process is one of a kernel before 6.14. */
TEST(where_a_worker_is_killed_at_birth_it_moves_in_instead)
{
    char *argv[] = { "/bin/sleep", "1000", NULL };
    struct cgroup group;
    struct err e;

    SKIP_UNLESS(cgroup_create(&group, &e) == 0, "no cgroup can be made here");
    cgroup_kill(&group);
    t.home.cgroup = group.dir;
    for (int i = 0; i < 2; i++) {
        pid_t pid = start_program(argv);

        ck_assert_int_gt(pid, 0);
        while (!cgroup_populated(&group))
            usleep(1000);
        ck_assert(t.home.clone_into_works != t.home.clone_into_fails);
        kill(pid, SIGKILL);
        ck_assert_int_eq(end_of(pid), SIGKILL);
        ck_assert_int_eq(waitpid(-1, NULL, 0), -1);
        expect_no_failure();
        while (cgroup_populated(&group))
            usleep(1000);
    }
    while (!cgroup_remove(&group))
        usleep(1000);
}

/* A worker that was kept out of a group once starts in the next one. */
TEST(the_best_way_is_not_forgotten_where_no_process_can_start_for_a_while)
{
    char *argv[] = { (char *)procs_program("test-worker"), "exit", "0", NULL };

    t.home.cgroup = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    t.home.clone_into_fails = true;
    ck_assert_int_eq(end_of(start_program(argv)), 0);
    expect_failure(SPAWN_CGROUP, ENOENT);
    ck_assert_uint_eq(t.home.way, 0);
    close(t.home.cgroup);
}

TEST(no_way_but_fork_is_left_when_nothing_else_works)
{
    char *argv[] = { (char *)procs_program("test-worker"), "exit", "0", NULL };

    t.home.way = WAYS - 1;
    ck_assert_int_eq(end_of(start_program(argv)), 0);
    ck_assert_uint_eq(t.home.way, WAYS - 1);
}

TEST(a_node_that_is_not_there_is_told)
{
    char *argv[] = { "/bin/true", NULL };
    struct spawn s = { .argv = argv,
                       .env = environ,
                       .local_rank = 5,
                       .fd = { t.null, t.null, t.null },
                       .numa_node = 1023 };

    ck_assert_int_eq(end_of(spawn_worker(&s, &t.home, &t.pidfd)), 127 << 8);
    expect_failure(SPAWN_MEMPOLICY, EINVAL);
    s.numa_node = 5000;
    ck_assert_int_eq(end_of(spawn_worker(&s, &t.home, &t.pidfd)), 127 << 8);
    expect_failure(SPAWN_MEMPOLICY, EINVAL);
}

TEST(a_worker_does_not_start_when_its_parent_is_dead_already)
{
    char *argv[] = { "/bin/sleep", "1000", NULL };
    int status, pids[2];
    pid_t worker = 0, parent;

    /* the grandchild's only other holder of the pipe's end is its own output */
    ck_assert_int_eq(pipe(pids), 0);
    parent = fork();
    if (parent == 0) {
        t.null = pids[1];
        worker = start_program(argv);
        kill(getpid(), worker > 0 ? SIGKILL : SIGABRT);
    }
    close(pids[1]);
    ck_assert_int_eq(waitpid(parent, &status, 0), parent);
    ck_assert_int_eq(WTERMSIG(status), SIGKILL);
    ck_assert_int_eq(read(pids[0], &worker, 1), 0); /* it is gone, or this hangs */
    close(pids[0]);
}

/* -- the world of a worker as it travels ------------------------------------ */

static int pack(const char *const *argv, const char *const *env,
                struct guard_request *ask)
{
    struct err e;
    int fd = guard_payload_pack(argv, env, "\1\2\3", ask, &e);

    ck_assert_int_ge(fd, 0);
    return fd;
}

TEST(a_world_arrives_as_it_was_sent)
{
    const char *const argv[] = { "/bin/x", "", "two words", NULL };
    const char *const env[] = { "A=1", "B=", NULL };
    struct guard_request ask = { .cpus_size = 3 };
    struct guard_payload world;
    struct spawn s = { 0 };
    int fd = pack(argv, env, &ask);

    ck_assert_int_eq(guard_payload_open(&world, fd, &ask, &s), 0);
    for (int i = 0; i < 3; i++)
        ck_assert_str_eq(s.argv[i], argv[i]);
    ck_assert_ptr_null(s.argv[3]);
    for (int i = 0; i < 2; i++)
        ck_assert_str_eq(s.env[i], env[i]);
    ck_assert_ptr_null(s.env[2]);
    ck_assert_uint_eq(s.cpus_size, 3);
    ck_assert_mem_eq(s.cpus, "\1\2\3", 3);
    guard_payload_close(&world);
    close(fd);
}

TEST(an_empty_environment_is_one)
{
    const char *const argv[] = { "/bin/x", NULL }, *const env[] = { NULL };
    struct guard_request ask = { 0 };
    struct guard_payload world;
    struct spawn s = { 0 };
    int fd = pack(argv, env, &ask);

    ck_assert_int_eq(guard_payload_open(&world, fd, &ask, &s), 0);
    ck_assert_str_eq(s.argv[0], "/bin/x");
    ck_assert_ptr_null(s.env[0]);
    guard_payload_close(&world);
    close(fd);
}

TEST(a_world_that_does_not_fit_its_description_is_refused)
{
    const char *const argv[] = { "/bin/x", NULL }, *const env[] = { "A=1", NULL };
    struct guard_request ask = { 0 }, wrong;
    struct guard_payload world;
    struct spawn s = { 0 };
    int fd = pack(argv, env, &ask);

    wrong = ask;
    wrong.argc = 0;
    ck_assert_int_eq(guard_payload_open(&world, fd, &wrong, &s), -1);
    ck_assert_int_eq(errno, EBADMSG);
    wrong.argc = 1000000;
    ck_assert_int_eq(guard_payload_open(&world, fd, &wrong, &s), -1);
    wrong = ask;
    wrong.envc = 3;
    ck_assert_int_eq(guard_payload_open(&world, fd, &wrong, &s), -1);
    ck_assert_int_eq(ftruncate(fd, 30), 0);
    ck_assert_int_eq(guard_payload_open(&world, fd, &ask, &s), -1);
    ck_assert_int_eq(guard_payload_open(&world, t.null, &ask, &s), -1);
    close(fd);
}
