/* SPDX-License-Identifier: MIT */
/* no root: credentials and limits are the user's */
/*
 * What a worker of the guard finds around itself, in each containment.
 */
#include "agent/guard/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/guard/status_pages.h"
#include "rendezvous/common/base/progress_page.h"
#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/guard_world.h"
#include "tests/worlds/procs.h"

/* -- a worker's world ------------------------------------------------------- */

/* What `report` says, run with this as standard output; in a buffer. */
static const char *report(void)
{
    static char text[8192];
    FILE *out = tmpfile();
    const char *argv[] = { t.worker, "report", NULL };
    size_t n;

    spawn_to(0, argv, fileno(out));
    wait_until(&t.exited, t.exited + 1);
    rewind(out);
    n = fread(text, 1, sizeof(text) - 1, out);
    text[n] = '\0';
    fclose(out);
    return text;
}

static void expect_line(const char *text, const char *line)
{
    ck_assert_msg(strstr(text, line) != NULL, "no \"%s\" in\n%s", line, text);
}

TEST_IN_EACH_MODE(a_worker_finds_a_clean_world)
{
    char line[96];
    const char *text;

    begin_guard(_i);
    text = report();
    expect_line(text, "SigBlk:\t0000000000000000\n");
    expect_line(text, "SigIgn:\t0000000000000000\n");
    expect_line(text, "fds: 0 1 2\n");
    expect_line(text, "leads: session 1 group 1\n");
    expect_line(text, "pdeathsig: 9\n");
    snprintf(line, sizeof(line), "env: %s\n", t.cookie + strlen("TEST_WORKER="));
    expect_line(text, line);
    end_guard();
}

TEST_IN_EACH_MODE(a_worker_gets_back_what_crun_was_started_with)
{
    struct rlimit files = { 200, 300 };
    const char *text;
    cpu_set_t one;
    int cpu = -1;

    enter_mode(_i);
    sched_getaffinity(0, sizeof(one), &one);
    while (!CPU_ISSET(++cpu, &one))
        ;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);
    setrlimit(RLIMIT_NOFILE, &files);
    umask(027);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    begin_guard_here();
    text = report();
    expect_line(text, "SigIgn:\t0000000000000001\n");
    expect_line(text, "umask: 027\n");
    expect_line(text, "nofile: 200\n");
    expect_line(text, "cpus: 1\n");
    end_guard();
}

TEST_IN_EACH_MODE(so_does_a_worker_of_the_next_guard)
{
    struct rlimit files, own;
    const char *text;
    char line[64];

    getrlimit(RLIMIT_NOFILE, &files);
    begin_guard(_i);
    signal(SIGTSTP, SIG_IGN); /* the agent's own affair */
    own = files;
    own.rlim_cur -= 1;
    setrlimit(RLIMIT_NOFILE, &own);
    kill(guard_pid(t.guard), SIGKILL);
    wait_until(&t.died, 1);
    guard_stop(t.guard);
    start_guard();
    text = report();
    expect_line(text, "SigIgn:\t0000000000000000\n");
    snprintf(line, sizeof(line), "nofile: %lu\n", (unsigned long)files.rlim_cur);
    expect_line(text, line);
    end_guard();
}

TEST_IN_EACH_MODE(a_worker_finds_its_status_page)
{
    char path[64], script[256];
    const char *argv[] = { "/bin/sh", "-c", script, NULL };
    const struct status_pages *pages;
    int out = open("/dev/null", O_RDWR);

    begin_guard(_i);
    pages = guard_pages(t.guard);
    ck_assert_uint_eq(pages->count, WORKERS);
    status_pages_clear(pages, 3);
    status_pages_path(pages, guard_pid(t.guard), 3, path, sizeof(path));
    snprintf(script, sizeof(script),
             "test \"$(head -c 4 %s)\" = crpg && printf 0123 | dd of=%s bs=1 seek=12 "
             "conv=notrunc 2>/dev/null",
             path, path);
    spawn_to(3, argv, out);
    close(out);
    wait_until(&t.exited, 1);
    ck_assert_int_eq(t.exit[0].status, 0);
    ck_assert_uint_eq(pages->page[3]->magic, PROGRESS_MAGIC);
    ck_assert_int_eq(memcmp(&pages->page[3]->phase, "0123", 4), 0);
    ck_assert_uint_eq(pages->page[2]->phase, 0);
    ck_assert_str_eq(status_pages_path(pages, 1, WORKERS, path, sizeof(path)), "");
    end_guard();
}

/* A worker that cuts its page short would end the agent by SIGBUS. */
TEST_IN_EACH_MODE(a_page_cannot_be_cut_short)
{
    char path[64];

    begin_guard(_i);
    status_pages_path(guard_pages(t.guard), guard_pid(t.guard), 0, path, sizeof(path));
    ck_assert_int_lt(truncate(path, 0), 0);
    ck_assert_int_lt(truncate(path, 1 << 20), 0);
    end_guard();
}

TEST(a_worker_runs_on_the_cpus_it_is_given)
{
    const char *argv[] = { procs_program("test-worker"), "report", NULL };
    int out = open("/dev/null", O_RDWR);
    struct guard_spawn s = { .argv = argv,
                             .fd = { out, out, out },
                             .cpus_size = sizeof(cpu_set_t),
                             .numa_node = -1 };
    struct err e;
    cpu_set_t cpus;

    begin_guard(IN_SESSION);
    s.env = (const char *const *)environ; /* begin_guard may have moved it */
    CPU_ZERO(&cpus);
    s.cpus = &cpus;
    ck_assert_int_eq(guard_spawn(t.guard, &s, &e), 0);
    wait_until(&t.exited, 1);
    ck_assert_str_eq(t.what, "sched_setaffinity"); /* none is not a set of CPUs */
    ck_assert_int_eq(t.errnum, EINVAL);
    sched_getaffinity(0, sizeof(cpus), &cpus);
    ck_assert_int_eq(guard_spawn(t.guard, &s, &e), 0);
    wait_until(&t.exited, 2);
    ck_assert_int_eq(t.exit[1].status, 0);
    end_guard();
    close(out);
}

TEST(a_terminal_becomes_the_controlling_one)
{
    const char *argv[] = { procs_program("test-worker"), "report", NULL };
    int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), slave;
    struct guard_spawn s = { .argv = argv, .is_tty = true, .numa_node = -1 };
    char text[4096];
    size_t used = 0;
    struct err e;

    ck_assert_int_eq(grantpt(terminal), 0);
    ck_assert_int_eq(unlockpt(terminal), 0);
    slave = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
    begin_guard(IN_SESSION);
    s.env = (const char *const *)environ; /* begin_guard may have moved it */
    for (int i = 0; i < 3; i++)
        s.fd[i] = slave;
    ck_assert_int_eq(guard_spawn(t.guard, &s, &e), 0);
    wait_until(&t.exited, 1);
    fcntl(terminal, F_SETFL, O_NONBLOCK);
    for (ssize_t n; (n = read(terminal, text + used, sizeof(text) - 1 - used)) > 0;)
        used += (size_t)n;
    text[used] = '\0';
    expect_line(text, "tty: 1 1 1");
    end_guard();
    close(slave);
    close(terminal);
}

TEST_IN_EACH_MODE(arguments_and_environment_of_any_size_arrive)
{
    enum { COUNT = 10000 };
    const char **argv = xcalloc(COUNT + 4, sizeof(*argv));
    char *big = xmalloc(100000);

    begin_guard(_i);
    memset(big, 'x', 99999);
    big[99999] = '\0';
    argv[0] = t.worker;
    for (int i = 0; i < COUNT; i += 2) {
        argv[1 + i] = "say";
        argv[2 + i] = i == 0 ? big : "";
    }
    argv[COUNT + 1] = "exit";
    argv[COUNT + 2] = "7";
    spawn_to(0, argv, -1);
    wait_until(&t.exited, 1);
    ck_assert_int_eq(t.exit[0].status, 7 << 8);
    end_guard();
    free(argv);
    free(big);
}
