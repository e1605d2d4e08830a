/* SPDX-License-Identifier: MIT */
/*
 * A real guard with real workers, in each containment: in a cgroup where there can be
 * one, in sessions, and in sessions of an ordinary user.
 */
#include "agent/guard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/kin.h"
#include "agent/pages.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/loop.h"
#include "rendezvous/base/progress_page.h"
#include "rendezvous/base/xalloc.h"
#include "tests/helpers/check_main.h"
#include "tests/helpers/procs.h"

#define NOBODY 65534
#define WORKERS 16
#define PATIENCE_MS 15000
#define SOON_MS 100 /* the promise: nothing lives longer than this, given a core */

enum mode { IN_CGROUP, IN_SESSION, AS_NOBODY, MODE_COUNT };

static struct {
    struct loop *loop;
    struct guard *guard;
    char cookie[64];
    const char *worker; /* the program */

    uint32_t started, exited, failed, empty, fenced, died;
    struct guard_exit exit[WORKERS]; /* in the order told */
    pid_t pid[WORKERS];
    int errnum;
    char what[32], why[96];
} t;

/* -- the agent --------------------------------------------------------------------- */

static void on_started(void *arg, uint32_t local_rank, pid_t pid)
{
    (void)arg;
    ck_assert_uint_lt(local_rank, WORKERS);
    t.pid[local_rank] = pid;
    t.started++;
}

static void on_exec_failed(void *arg, uint32_t local_rank, int errnum, const char *what)
{
    (void)arg;
    (void)local_rank;
    t.errnum = errnum;
    snprintf(t.what, sizeof(t.what), "%s", what);
    t.failed++;
}

static void on_exited(void *arg, const struct guard_exit *worker)
{
    (void)arg;
    ck_assert_uint_lt(t.exited, WORKERS);
    t.exit[t.exited++] = *worker;
}

static void on_empty(void *arg)
{
    (void)arg;
    t.empty++;
}

static void on_fenced(void *arg)
{
    (void)arg;
    t.fenced++;
}

static void on_died(void *arg, const char *why)
{
    (void)arg;
    snprintf(t.why, sizeof(t.why), "%s", why);
    t.died++;
}

static const struct guard_calls calls = {
    .started = on_started,
    .exec_failed = on_exec_failed,
    .exited = on_exited,
    .empty = on_empty,
    .fenced = on_fenced,
    .died = on_died,
};

static void wait_until(const uint32_t *count, uint32_t wanted)
{
    uint64_t until_ms = clock_ms() + procs_patience(PATIENCE_MS);

    while (*count < wanted && clock_ms() < until_ms)
        loop_turn(t.loop, 20);
    ck_assert_uint_eq(*count, wanted);
}

static void enter_mode(int mode)
{
    if (mode != IN_CGROUP)
        setenv("CRUN_NO_CGROUP", "1", 1);
    if (mode == AS_NOBODY && getuid() == 0) {
        ck_assert_int_eq(setgid(NOBODY), 0);
        ck_assert_int_eq(setuid(NOBODY), 0);
        prctl(PR_SET_DUMPABLE, 1);
    }
}

static void begin_here(void)
{
    struct err e;

    memset(&t, 0, sizeof(t));
    snprintf(t.cookie, sizeof(t.cookie), "TEST_WORKER=%d.%llu", (int)getpid(),
             (unsigned long long)clock_us());
    putenv(t.cookie);
    t.worker = procs_program("test-worker");
    t.loop = loop_create();
    t.guard = guard_start(t.loop, &calls, WORKERS, &e);
    ck_assert_msg(t.guard != NULL, "%s", e.text);
}

static void begin(int mode)
{
    enter_mode(mode);
    begin_here();
}

static void end(void)
{
    guard_stop(t.guard);
    loop_destroy(t.loop);
    ck_assert_uint_eq(procs_with(t.cookie), 0);
    ck_assert(!kin_any());
}

/* A worker of the program `file` that writes to `out`. */
static void spawn_to(uint32_t local_rank, const char *const *argv, int out)
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

static void spawn_list(uint32_t local_rank, int out, va_list words)
{
    const char *argv[16] = { t.worker };
    size_t count = 1;

    while ((argv[count] = va_arg(words, const char *)))
        ck_assert_uint_lt(++count, 16);
    spawn_to(local_rank, argv, out);
}

/* A test-worker with these words, up to NULL. */
static void spawn(uint32_t local_rank, ...)
{
    va_list words;

    va_start(words, local_rank);
    spawn_list(local_rank, -1, words);
    va_end(words);
}

/* The same, and wait until it has said its first line. */
static void spawn_ready(uint32_t local_rank, ...)
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

static void expect_empty_by_kill(void)
{
    uint32_t before = t.empty;

    guard_kill(t.guard);
    wait_until(&t.empty, before + 1);
}

/* -- ends -------------------------------------------------------------------------- */

static const struct {
    const char *word, *arg;
    int status;
} ends[] = {
    { "exit", "0", 0 },     { "exit", "3", 3 << 8 }, { "exit", "255", 255 << 8 },
    { "signal", "15", 15 }, { "signal", "9", 9 },    { "signal", "1", 1 },
    { "signal", "13", 13 },
};

START_TEST(a_worker_ends_with_a_status_of_its_own)
{
    enum { COUNT = sizeof(ends) / sizeof(ends[0]) };
    uint64_t begun_ms = clock_ms();

    begin(_i);
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
    guard_sweep(t.guard, 0);
    wait_until(&t.empty, 1);
    end();
}
END_TEST

START_TEST(exits_are_told_in_the_order_in_which_they_happened)
{
    static const uint32_t order[] = { 5, 2, 7, 0, 6, 1, 4, 3 };
    enum { COUNT = sizeof(order) / sizeof(order[0]) };
    char path[64], text[512];

    begin(_i);
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
    end();
}
END_TEST

/* -- programs that cannot be executed ---------------------------------------------- */

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

START_TEST(a_program_that_cannot_be_executed_is_told_with_its_errno)
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
    begin(IN_CGROUP);
    spawn_to(1, argv, -1);
    wait_until(&t.exited, 1);
    ck_assert_uint_eq(t.failed, 1);
    ck_assert_int_eq(t.errnum, programs[_i].errnum);
    ck_assert_str_eq(t.what, "execve");
    ck_assert_int_eq(t.exit[0].status, 127 << 8);
    guard_sweep(t.guard, 0);
    wait_until(&t.empty, 1);
    end();
    unlink(file);
}
END_TEST

START_TEST(a_directory_is_not_a_program)
{
    const char *argv[] = { "/tmp", NULL };

    begin(IN_SESSION);
    spawn_to(0, argv, -1);
    wait_until(&t.exited, 1);
    ck_assert_int_eq(t.errnum, EACCES);
    end();
}
END_TEST

START_TEST(a_place_that_is_taken_is_refused)
{
    begin(IN_SESSION);
    spawn_ready(3, "say", "ready", "sleep", NULL);
    spawn(3, "exit", "0", NULL);
    wait_until(&t.exited, 1);
    ck_assert_int_eq(t.errnum, EEXIST);
    expect_empty_by_kill();
    end();
}
END_TEST

/* -- a worker's world -------------------------------------------------------------- */

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

START_TEST(a_worker_finds_a_clean_world)
{
    char line[96];
    const char *text;

    begin(_i);
    text = report();
    expect_line(text, "SigBlk:\t0000000000000000\n");
    expect_line(text, "SigIgn:\t0000000000000000\n");
    expect_line(text, "fds: 0 1 2\n");
    expect_line(text, "leads: session 1 group 1\n");
    expect_line(text, "pdeathsig: 9\n");
    snprintf(line, sizeof(line), "env: %s\n", t.cookie + strlen("TEST_WORKER="));
    expect_line(text, line);
    end();
}
END_TEST

START_TEST(a_worker_gets_back_what_crun_was_started_with)
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
    begin_here();
    text = report();
    expect_line(text, "SigIgn:\t0000000000000001\n");
    expect_line(text, "umask: 027\n");
    expect_line(text, "nofile: 200\n");
    expect_line(text, "cpus: 1\n");
    end();
}
END_TEST

START_TEST(so_does_a_worker_of_the_next_guard)
{
    struct rlimit files, own;
    const char *text;
    char line[64];
    struct err e;

    getrlimit(RLIMIT_NOFILE, &files);
    begin(_i);
    signal(SIGTSTP, SIG_IGN); /* the agent's own affair */
    own = files;
    own.rlim_cur -= 1;
    setrlimit(RLIMIT_NOFILE, &own);
    kill(guard_pid(t.guard), SIGKILL);
    wait_until(&t.died, 1);
    guard_stop(t.guard);
    t.guard = guard_start(t.loop, &calls, WORKERS, &e);
    ck_assert_msg(t.guard != NULL, "%s", e.text);
    text = report();
    expect_line(text, "SigIgn:\t0000000000000000\n");
    snprintf(line, sizeof(line), "nofile: %lu\n", (unsigned long)files.rlim_cur);
    expect_line(text, line);
    end();
}
END_TEST

START_TEST(a_worker_finds_its_status_page)
{
    char path[64], script[256];
    const char *argv[] = { "/bin/sh", "-c", script, NULL };
    const struct pages *pages;
    int out = open("/dev/null", O_RDWR);

    begin(_i);
    pages = guard_pages(t.guard);
    ck_assert_uint_eq(pages->count, WORKERS);
    pages_clear(pages, 3);
    pages_path(pages, guard_pid(t.guard), 3, path, sizeof(path));
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
    ck_assert_str_eq(pages_path(pages, 1, WORKERS, path, sizeof(path)), "");
    end();
}
END_TEST

/* A worker that cuts its page short would end the agent by SIGBUS. */
START_TEST(a_page_cannot_be_cut_short)
{
    char path[64];

    begin(_i);
    pages_path(guard_pages(t.guard), guard_pid(t.guard), 0, path, sizeof(path));
    ck_assert_int_lt(truncate(path, 0), 0);
    ck_assert_int_lt(truncate(path, 1 << 20), 0);
    end();
}
END_TEST

START_TEST(a_worker_runs_on_the_cpus_it_is_given)
{
    const char *argv[] = { procs_program("test-worker"), "report", NULL };
    int out = open("/dev/null", O_RDWR);
    struct guard_spawn s = { .argv = argv,
                             .env = (const char *const *)environ,
                             .fd = { out, out, out },
                             .cpus_size = sizeof(cpu_set_t),
                             .numa_node = -1 };
    struct err e;
    cpu_set_t cpus;

    begin(IN_SESSION);
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
    end();
    close(out);
}
END_TEST

START_TEST(a_terminal_becomes_the_controlling_one)
{
    const char *argv[] = { procs_program("test-worker"), "report", NULL };
    int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), slave;
    struct guard_spawn s = { .argv = argv,
                             .env = (const char *const *)environ,
                             .is_tty = true,
                             .numa_node = -1 };
    char text[4096];
    size_t used = 0;
    struct err e;

    ck_assert_int_eq(grantpt(terminal), 0);
    ck_assert_int_eq(unlockpt(terminal), 0);
    slave = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
    begin(IN_SESSION);
    for (int i = 0; i < 3; i++)
        s.fd[i] = slave;
    ck_assert_int_eq(guard_spawn(t.guard, &s, &e), 0);
    wait_until(&t.exited, 1);
    fcntl(terminal, F_SETFL, O_NONBLOCK);
    for (ssize_t n; (n = read(terminal, text + used, sizeof(text) - 1 - used)) > 0;)
        used += (size_t)n;
    text[used] = '\0';
    expect_line(text, "tty: 1 1 1");
    end();
    close(slave);
    close(terminal);
}
END_TEST

START_TEST(arguments_and_environment_of_any_size_arrive)
{
    enum { COUNT = 10000 };
    const char **argv = xcalloc(COUNT + 4, sizeof(*argv));
    char *big = xmalloc(100000);

    begin(_i);
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
    end();
    free(argv);
    free(big);
}
END_TEST

/* -- stopping ---------------------------------------------------------------------- */

START_TEST(a_signal_reaches_one_group_or_all)
{
    begin(_i);
    for (uint32_t i = 0; i < 3; i++)
        spawn_ready(i, "child", "say", "ready", "sleep", NULL);
    guard_signal(t.guard, 1, SIGUSR1);
    wait_until(&t.exited, 1);
    ck_assert_uint_eq(t.exit[0].local_rank, 1);
    ck_assert_int_eq(t.exit[0].status, SIGUSR1);
    guard_signal(t.guard, GUARD_ALL, SIGTERM);
    wait_until(&t.exited, 3);
    guard_sweep(t.guard, 10000); /* the children were in the groups: nothing is left */
    wait_until(&t.empty, 1);
    ck_assert_uint_le(procs_with(t.cookie), 1);
    end();
}
END_TEST

START_TEST(a_stopped_worker_obeys_term)
{
    begin(_i);
    spawn_ready(0, "say", "ready", "stop", "sleep", NULL);
    guard_signal(t.guard, 0, SIGTERM);
    wait_until(&t.exited, 1);
    ck_assert_int_eq(t.exit[0].status, SIGTERM);
    end();
}
END_TEST

START_TEST(a_worker_that_ignores_term_is_killed)
{
    begin(_i);
    spawn_ready(0, "ignore", "15", "say", "ready", "sleep", NULL);
    spawn_ready(1, "say", "ready", "stop", NULL);
    spawn_ready(2, "orphan", "5", "child", "say", "ready", "sleep", NULL);
    guard_kill(t.guard);
    wait_until(&t.empty, 1);
    ck_assert_uint_eq(t.exited, 3); /* told before */
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(t.exit[i].status, SIGKILL);
    ck_assert_uint_eq(procs_with(t.cookie), 1); /* the guard */
    end();
}
END_TEST

START_TEST(leftovers_get_the_grace_and_no_more)
{
    uint64_t begun_ms, took_ms;

    begin(_i);
    spawn_ready(0, "orphan", "3", "say", "ready", "exit", "0", NULL);
    wait_until(&t.exited, 1);
    ck_assert_uint_eq(procs_with(t.cookie), 4);
    begun_ms = clock_ms();
    guard_sweep(t.guard, 150);
    wait_until(&t.empty, 1);
    took_ms = clock_ms() - begun_ms;
    ck_assert_uint_ge(took_ms, 150);
    ck_assert_uint_eq(procs_with(t.cookie), 1);
    end();
}
END_TEST

START_TEST(leftovers_that_end_on_term_cost_no_grace)
{
    begin(_i);
    spawn_ready(0, "child", "say", "ready", "exit", "0", NULL);
    wait_until(&t.exited, 1);
    guard_sweep(t.guard, 60000);
    wait_until(&t.empty, 1);
    end();
}
END_TEST

/* Each comes up when the one before has ended. */
START_TEST(leftovers_that_come_up_later_get_their_term_too)
{
    begin(_i);
    spawn_ready(0, "chain", "5", "say", "ready", "exit", "0", NULL);
    wait_until(&t.exited, 1);
    guard_sweep(t.guard, 60000);
    wait_until(&t.empty, 1);
    end();
}
END_TEST

START_TEST(a_kill_cuts_the_grace_of_a_sweep_short)
{
    begin(_i);
    spawn_ready(0, "orphan", "1", "say", "ready", "exit", "0", NULL);
    wait_until(&t.exited, 1);
    guard_sweep(t.guard, 60000);
    guard_kill(t.guard);
    wait_until(&t.empty, 1);
    loop_turn(t.loop, 20);
    ck_assert_uint_eq(t.empty, 1); /* one answer to the two */
    end();
}
END_TEST

START_TEST(processes_that_fork_all_the_time_are_ended)
{
    begin(_i);
    spawn_ready(0, "storm", "4", "say", "ready", "sleep", NULL);
    usleep(20000);
    expect_empty_by_kill();
    ck_assert_uint_eq(procs_with(t.cookie), 1);
    end();
}
END_TEST

START_TEST(the_dead_of_others_are_reaped)
{
    char path[64], text[8] = "";
    FILE *f;

    begin(_i);
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
    end();
}
END_TEST

START_TEST(one_group_follows_another)
{
    begin(_i);
    for (uint32_t epoch = 1; epoch <= 5; epoch++) {
        for (uint32_t i = 0; i < 4; i++)
            spawn_ready(i, "orphan", "1", "say", "ready", "sleep", NULL);
        expect_empty_by_kill();
        ck_assert_uint_eq(t.exited, 4);
        ck_assert_uint_eq(procs_with(t.cookie), 1);
        t.exited = 0;
    }
    end();
}
END_TEST

START_TEST(stopping_the_guard_ends_all)
{
    begin(_i);
    spawn_ready(0, "orphan", "2", "child", "say", "ready", "sleep", NULL);
    end();
}
END_TEST

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

START_TEST(an_idle_guard_does_not_wake_up)
{
    char before[4096], after[4096];
    bool woke = true;

    begin(_i);
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
    end();
}
END_TEST

/* -- deaths ------------------------------------------------------------------------ */

START_TEST(when_the_guard_is_killed_all_ends_and_the_agent_is_told)
{
    begin(_i);
    spawn_ready(0, "orphan", "5", "child", "say", "ready", "sleep", NULL);
    spawn_ready(1, "say", "ready", "stop", NULL);
    kill(guard_pid(t.guard), SIGKILL);
    wait_until(&t.died, 1);
    ck_assert_str_eq(t.why, "killed by signal 9");
    ck_assert_uint_eq(procs_with(t.cookie), 0);
    guard_signal(t.guard, GUARD_ALL, SIGTERM); /* to nobody */
    guard_kill(t.guard);
    end();
}
END_TEST

START_TEST(a_guard_that_does_not_answer_is_ended_by_force)
{
    struct err e;

    begin(_i);
    spawn_ready(0, "orphan", "1", "say", "ready", "sleep", NULL);
    kill(guard_pid(t.guard), SIGSTOP);
    guard_kill(t.guard);
    loop_turn(t.loop, 20);
    ck_assert_uint_eq(t.empty, 0);
    guard_force(t.guard);
    wait_until(&t.died, 1);
    ck_assert_str_eq(t.why, "killed by signal 9");
    ck_assert(!guard_left_behind(t.guard, &e));
    ck_assert_uint_eq(procs_with(t.cookie), 0);
    end();
}
END_TEST

START_TEST(a_guard_that_dies_while_it_is_started_is_missed)
{
    siginfo_t info;

    begin(_i);
    signal(SIGCHLD, SIG_DFL); /* as if it had been told before anybody listened */
    kill(guard_pid(t.guard), SIGKILL);
    ck_assert_int_eq(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT), 0); /* or its warden */
    wait_until(&t.died, 1);
    end();
}
END_TEST

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

START_TEST(a_guard_that_finds_nobody_to_tell_ends_all)
{
    begin(_i);
    spawn_ready(0, "say", "ready", "sleep", NULL);
    spawn_ready(1, "orphan", "1", "say", "ready", "sleep", NULL);
    wait_until(&t.started, 2);
    /* no end of file for the guard, only nobody who reads */
    ck_assert_int_eq(shutdown(find_socket(), SHUT_RD), 0);
    kill(t.pid[0], SIGKILL);
    wait_until(&t.died, 1);
    ck_assert_str_eq(t.why, "exited with status 0");
    end();
}
END_TEST

START_TEST(an_older_child_of_the_agent_survives_the_guard)
{
    int status;
    pid_t pid;

    enter_mode(_i);
    pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    begin_here();
    kill(guard_pid(t.guard), SIGKILL);
    wait_until(&t.died, 1);
    ck_assert_int_eq(waitpid(pid, &status, WNOHANG), 0);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    end();
}
END_TEST

/* An agent that starts workers until it is killed. */
static void be_an_agent(int mode, int out)
{
    begin(mode);
    if (write(out, t.cookie, sizeof(t.cookie)) != sizeof(t.cookie))
        _exit(1);
    for (uint32_t i = 0; i < 4; i++)
        spawn(i, "orphan", "2", "child", "ignore", "15", "sleep", NULL);
    for (;;)
        loop_turn(t.loop, 1000);
}

START_TEST(when_the_agent_is_killed_nothing_lives_a_moment_later)
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
END_TEST

/* -- the fence --------------------------------------------------------------------- */

static void fence_in(uint64_t ms, uint32_t grace_ms)
{
    const struct fence_terms terms = { .until_ms = clock_ms() + ms,
                                       .grace_ms = grace_ms };

    guard_fence(t.guard, &terms);
}

START_TEST(past_the_fence_workers_are_ended_and_none_is_started)
{
    begin(_i);
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
    ck_assert_str_eq(t.what, "fence");
    wait_until(&t.exited, 3);
    expect_empty_by_kill();
    ck_assert_uint_eq(procs_with(t.cookie), 1); /* the guard stays, and guards */
    fence_in(60000, 100);
    spawn_ready(3, "say", "ready", "sleep", NULL);
    expect_empty_by_kill();
    ck_assert_uint_eq(t.fenced, 1);
    end();
}
END_TEST

START_TEST(a_fence_that_is_moved_on_never_passes)
{
    uint64_t until_ms = clock_ms() + 300;

    begin(_i);
    spawn_ready(0, "say", "ready", "sleep", NULL);
    while (clock_ms() < until_ms) {
        fence_in(procs_patience(2000), 0);
        loop_turn(t.loop, 10);
    }
    fence_in(1, 0); /* earlier: changes nothing */
    loop_turn(t.loop, 50);
    ck_assert_uint_eq(t.fenced, 0);
    ck_assert_uint_eq(t.exited, 0);
    end();
}
END_TEST

/* The agent asks for nothing and reads nothing: it might as well be frozen. */
START_TEST(the_fence_needs_no_agent)
{
    begin(_i);
    spawn_ready(0, "orphan", "1", "say", "ready", "sleep", NULL);
    fence_in(50, 100);
    while (procs_with(t.cookie) > 1)
        usleep(1000);
    wait_until(&t.exited, 1);
    ck_assert_uint_eq(t.fenced, 1);
    end();
}
END_TEST

/* -- a machine that is full -------------------------------------------------------- */

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
START_TEST(every_worker_is_answered_where_descriptors_run_out)
{
    struct rlimit few;
    uint64_t until_ms = clock_ms() + procs_patience(PATIENCE_MS);

    enter_mode(AS_NOBODY);
    begin_here();
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
    end();
}
END_TEST

/* Where there is no room for another process for a moment. */
START_TEST(a_worker_is_tried_again_while_the_machine_is_full)
{
    struct rlimit none, before;

    enter_mode(AS_NOBODY);
    begin_here();
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
    end();
}
END_TEST

START_TEST(a_machine_that_stays_full_is_told_once_for_all)
{
    const struct rlimit none = { 1, 1 };
    uint64_t begun_ms;

    enter_mode(AS_NOBODY);
    begin_here();
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
    end();
}
END_TEST

/* -- what holds them --------------------------------------------------------------- */

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
START_TEST(a_cgroup_that_takes_nobody_is_admitted)
{
    char path[512];

    begin(IN_CGROUP);
    own_cgroup(path, sizeof(path));
    ck_assert_str_eq(guard_containment(t.guard), *path ? "cgroup" : "session+warden");
    if (*path)
        ck_assert_int_eq(rmdir(path), 0);
    spawn(0, "exit", "0", NULL);
    wait_until(&t.exited, 1);
    ck_assert_int_eq(t.exit[0].status, 0);
    ck_assert_str_eq(guard_containment(t.guard), *path ? "session" : "session+warden");
    end();
}
END_TEST

START_TEST(without_a_cgroup_there_is_a_warden)
{
    begin(IN_SESSION);
    ck_assert_str_eq(guard_containment(t.guard), "session+warden");
    end();
}
END_TEST

/* -- any one of the three is enough ------------------------------------------------ */

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

    begin(mode);
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

/* All pairs and each alone, in sessions. They are stopped first: none sees another end.
 */
START_TEST(without_a_cgroup_one_of_three_is_enough)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* who reaps what nobody else does */
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
END_TEST

/* -- kin --------------------------------------------------------------------------- */

START_TEST(children_are_found_with_and_without_a_list)
{
    pid_t child[3], listed[8], scanned[8];

    ck_assert(!kin_any());
    for (int i = 0; i < 3; i++) {
        child[i] = fork();
        if (child[i] == 0)
            for (;;)
                pause();
    }
    ck_assert(kin_any());
    ck_assert_uint_eq(kin_children(listed, 8), 3);
    ck_assert_uint_eq(kin_children_by_scan(scanned, 8), 3);
    ck_assert_uint_eq(kin_children(listed, 2), 2);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(scanned[i], child[i]);
        kill(child[i], SIGKILL);
        waitpid(child[i], NULL, 0);
    }
    ck_assert_uint_eq(kin_children(listed, 8), 0);
    ck_assert(!kin_any());
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("guard");
    TCase *tc = tcase_create("modes");

    guard_main_if_asked(argc, argv);
    tcase_set_timeout(tc, 60);
#define IN_EACH_MODE(test) tcase_add_loop_test(tc, test, 0, MODE_COUNT)
    IN_EACH_MODE(a_worker_ends_with_a_status_of_its_own);
    IN_EACH_MODE(exits_are_told_in_the_order_in_which_they_happened);
    IN_EACH_MODE(a_worker_finds_a_clean_world);
    IN_EACH_MODE(a_worker_gets_back_what_crun_was_started_with);
    IN_EACH_MODE(so_does_a_worker_of_the_next_guard);
    IN_EACH_MODE(a_worker_finds_its_status_page);
    IN_EACH_MODE(a_page_cannot_be_cut_short);
    IN_EACH_MODE(arguments_and_environment_of_any_size_arrive);
    IN_EACH_MODE(a_signal_reaches_one_group_or_all);
    IN_EACH_MODE(a_stopped_worker_obeys_term);
    IN_EACH_MODE(a_worker_that_ignores_term_is_killed);
    IN_EACH_MODE(leftovers_get_the_grace_and_no_more);
    IN_EACH_MODE(leftovers_that_end_on_term_cost_no_grace);
    IN_EACH_MODE(leftovers_that_come_up_later_get_their_term_too);
    IN_EACH_MODE(a_kill_cuts_the_grace_of_a_sweep_short);
    IN_EACH_MODE(past_the_fence_workers_are_ended_and_none_is_started);
    IN_EACH_MODE(a_fence_that_is_moved_on_never_passes);
    IN_EACH_MODE(the_fence_needs_no_agent);
    IN_EACH_MODE(processes_that_fork_all_the_time_are_ended);
    IN_EACH_MODE(the_dead_of_others_are_reaped);
    IN_EACH_MODE(one_group_follows_another);
    IN_EACH_MODE(stopping_the_guard_ends_all);
    IN_EACH_MODE(an_idle_guard_does_not_wake_up);
    IN_EACH_MODE(when_the_guard_is_killed_all_ends_and_the_agent_is_told);
    IN_EACH_MODE(a_guard_that_does_not_answer_is_ended_by_force);
    IN_EACH_MODE(a_guard_that_dies_while_it_is_started_is_missed);
    IN_EACH_MODE(a_guard_that_finds_nobody_to_tell_ends_all);
    IN_EACH_MODE(an_older_child_of_the_agent_survives_the_guard);
    IN_EACH_MODE(when_the_agent_is_killed_nothing_lives_a_moment_later);
    suite_add_tcase(suite, tc);
    tc = tcase_create("workers");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, a_cgroup_that_takes_nobody_is_admitted);
    tcase_add_test(tc, without_a_cgroup_there_is_a_warden);
    tcase_add_loop_test(tc, a_program_that_cannot_be_executed_is_told_with_its_errno, 0,
                        sizeof(programs) / sizeof(programs[0]));
    tcase_add_test(tc, a_directory_is_not_a_program);
    tcase_add_test(tc, a_place_that_is_taken_is_refused);
    tcase_add_loop_test(tc, every_worker_is_answered_where_descriptors_run_out, 0, 7);
    tcase_add_test(tc, a_worker_is_tried_again_while_the_machine_is_full);
    tcase_add_test(tc, a_machine_that_stays_full_is_told_once_for_all);
    tcase_add_test(tc, a_worker_runs_on_the_cpus_it_is_given);
    tcase_add_test(tc, a_terminal_becomes_the_controlling_one);
    tcase_add_loop_test(tc, without_a_cgroup_one_of_three_is_enough, KILL_AGENT,
                        KILL_AGENT + KILL_GUARD + KILL_WARDEN);
    tcase_add_test(tc, children_are_found_with_and_without_a_list);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
