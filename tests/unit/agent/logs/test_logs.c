/* SPDX-License-Identifier: MIT */
#include "agent/logs/logs.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "tests/worlds/check_main.h"

/* crun's own two streams are files here, so that what reaches them can be read back. */
#define WORKERS 2

static struct {
    struct loop *loop;
    struct logs *logs;
    struct config config;
    uint8_t redirect[WORKERS], tee[WORKERS];
    bool shown[WORKERS];
    unsigned ended[WORKERS];
    int own[2];
    char folder[64], log_dir[96];
} t;

static void on_ended(void *arg, uint32_t local_rank)
{
    t.ended[local_rank]++;
}

/* crun's standard output or error becomes a pipe or a file of the test. */
static void replace(int fd, int with)
{
    ck_assert_int_eq(dup2(with, fd), fd);
    close(with);
}

static void replace_by_file(int fd, const char *name)
{
    char path[128];
    int with;

    snprintf(path, sizeof(path), "%s/%s", t.folder, name);
    with = open(path, O_CREAT | O_RDWR | O_APPEND | O_CLOEXEC, 0600);
    ck_assert_int_ge(with, 0);
    replace(fd, with);
}

static void setup(void)
{
    memset(&t, 0, sizeof(t));
    snprintf(t.folder, sizeof(t.folder), "/tmp/test_logs_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(t.folder));
    snprintf(t.log_dir, sizeof(t.log_dir), "%s/logs", t.folder);
    setenv("TMPDIR", t.folder, 1);
    fflush(NULL);
    for (int i = 0; i < 2; i++)
        t.own[i] = fcntl(i + 1, F_DUPFD_CLOEXEC, 3);
    replace_by_file(STDOUT_FILENO, "out");
    replace_by_file(STDERR_FILENO, "err");
    t.loop = loop_create();
    snprintf(t.config.run_id, sizeof(t.config.run_id), "run");
    t.config.workers = WORKERS;
    t.config.role = "trainer";
    t.config.job.max_nodes = 1;
    t.config.log_dir = t.log_dir;
    t.config.streams.redirect = t.redirect;
    t.config.streams.tee = t.tee;
    t.config.streams.shown = t.shown;
    t.shown[0] = t.shown[1] = true;
}

static void create_logs(void)
{
    struct logs_calls calls = { .ended = on_ended };
    struct err e;

    t.logs = logs_create(t.loop, &t.config, &calls);
    ck_assert_msg(logs_begin(t.logs, 0, 4, &e) == 0, "%s", e.text);
}

/* Ends it, and crun's streams are the test's again. */
static void end_logs(void)
{
    logs_destroy(t.logs);
    t.logs = NULL;
    fflush(NULL);
    for (int i = 0; i < 2; i++)
        if (t.own[i] >= 0)
            replace(i + 1, t.own[i]);
    t.own[0] = t.own[1] = -1;
}

static void teardown(void)
{
    char command[128];

    end_logs();
    loop_destroy(t.loop);
    snprintf(command, sizeof(command), "rm -rf %s", t.folder);
    ck_assert_int_eq(system(command), 0);
}

static void open_worker(uint32_t local_rank, int fd[3])
{
    struct err e;
    bool is_tty;

    ck_assert_msg(logs_open(t.logs, local_rank, fd, &is_tty, &e) == 0, "%s", e.text);
}

static void write_text(int fd, const char *text)
{
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void close_worker(const int fd[3])
{
    for (int i = 0; i < 3; i++)
        if (fd[i] > STDERR_FILENO)
            close(fd[i]);
}

static void turn_until_ended(uint32_t local_rank)
{
    uint64_t until = clock_ms() + 60000;

    while (!t.ended[local_rank] && clock_ms() < until)
        loop_turn(t.loop, 50);
    ck_assert_uint_eq(t.ended[local_rank], 1);
}

/* What crun's standard error holds, a file in the test's folder. */
static const char *own_content(void)
{
    static char text[65536];
    char path[128];
    FILE *f;

    snprintf(path, sizeof(path), "%s/err", t.folder);
    f = fopen(path, "r");
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    fclose(f);
    return text;
}

FIXTURE(setup, teardown);

TEST(both_streams_must_end)
{
    int fd[3];

    t.redirect[0] = CONFIG_STDOUT | CONFIG_STDERR;
    create_logs();
    open_worker(0, fd);
    close(fd[0]);
    close(fd[1]);
    for (int i = 0; i < 5; i++)
        loop_turn(t.loop, 2);
    ck_assert_uint_eq(t.ended[0], 0);
    close(fd[2]);
    turn_until_ended(0);
    logs_drain(t.logs, 0, 1); /* has ended already: not told again */
    for (int i = 0; i < 5; i++)
        loop_turn(t.loop, 2);
    ck_assert_uint_eq(t.ended[0], 1);
}

TEST(what_was_not_begun_ends_quietly_with_the_next_attempt)
{
    struct err e;
    int fd[3];

    create_logs();
    open_worker(0, fd);
    ck_assert_int_eq(logs_begin(t.logs, 1, 4, &e), 0);
    for (int i = 0; i < 5; i++)
        loop_turn(t.loop, 2);
    ck_assert_uint_eq(t.ended[0], 0);
    close_worker(fd);
}

TEST(cruns_messages_begin_on_a_line_of_their_own)
{
    int fd[3];

    t.shown[1] = false;
    create_logs();
    open_worker(0, fd);
    write_text(fd[2], "a bar: 10%");
    for (int i = 0; i < 200 && !*own_content(); i++)
        loop_turn(t.loop, 5);
    log_warn("hello");
    write_text(fd[2], "20%\n");
    close_worker(fd);
    turn_until_ended(0);
    end_logs();
    ck_assert_str_eq(own_content(), "a bar: 10%\ncrun: hello\n20%\n");
}

/* What crun says after the logs are gone begins on a line of its own, too. */
TEST_LOOP(the_end_tells_of_an_open_line, 0, 2)
{
    static const char *const texts[] = { "ended\n", "open" };
    struct logs_end end;
    int fd[3];

    create_logs();
    open_worker(0, fd);
    write_text(fd[2], texts[_i]);
    close_worker(fd);
    turn_until_ended(0);
    end = logs_destroy(t.logs);
    t.logs = NULL;
    ck_assert_int_eq(end.open_line, _i);
    ck_assert(!end.has_lost);
}

TEST_LOOP(the_end_tells_of_lost_output, 0, 2)
{
    int fd[3], reader[2];
    struct logs_end end;

    t.tee[0] = _i ? CONFIG_STDOUT : CONFIG_STDERR;
    ck_assert_int_eq(pipe2(reader, O_CLOEXEC), 0);
    create_logs();
    replace(_i ? STDOUT_FILENO : STDERR_FILENO, reader[1]);
    close(reader[0]);
    open_worker(0, fd);
    write_text(fd[_i ? 1 : 2], "text\n");
    close_worker(fd);
    turn_until_ended(0);
    end = logs_destroy(t.logs);
    t.logs = NULL;
    ck_assert(end.has_lost);
}

TEST(without_a_place_for_logs_workers_run_unless_they_need_them)
{
    struct logs_calls calls = { .ended = on_ended };
    struct err e;

    setenv("TMPDIR", "/nonexistent", 1);
    t.config.log_dir = NULL;
    t.logs = logs_create(t.loop, &t.config, &calls);
    ck_assert_int_eq(logs_begin(t.logs, 0, 0, &e), 0);
    ck_assert_str_eq(logs_error_file(t.logs, 0), "");
    logs_destroy(t.logs);
    t.tee[1] = CONFIG_STDOUT;
    t.logs = logs_create(t.loop, &t.config, &calls);
    ck_assert_int_eq(logs_begin(t.logs, 0, 0, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "/nonexistent"));
}

/* Two workers write as fast as they can: no turn of the loop takes long, so that its
 * timers and connections have theirs. */
TEST(a_flood_leaves_the_loop_its_turns)
{
    static char junk[65536];
    uint64_t worst = 0, until;
    pid_t child[WORKERS];

    t.tee[0] = t.tee[1] = CONFIG_STDOUT;
    create_logs();
    replace(STDOUT_FILENO, open("/dev/null", O_WRONLY | O_CLOEXEC));
    for (uint32_t i = 0; i < WORKERS; i++) {
        int fd[3];

        open_worker(i, fd);
        child[i] = fork();
        if (child[i] == 0) {
            for (;;)
                if (write(fd[1], junk, sizeof(junk)) < 0)
                    _exit(0);
        }
        close_worker(fd);
    }
    until = clock_ms() + 300;
    while (clock_ms() < until) {
        uint64_t began = clock_thread_us(), took;

        loop_turn(t.loop, 10);
        took = clock_thread_us() - began;
        worst = took > worst ? took : worst;
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        kill(child[i], SIGKILL);
        waitpid(child[i], NULL, 0);
        turn_until_ended(i);
    }
    ck_assert_uint_lt(worst, 200000);
}
