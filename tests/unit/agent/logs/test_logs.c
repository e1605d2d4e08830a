/* SPDX-License-Identifier: MIT */
#include "agent/logs/logs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"
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
    uint64_t until = clock_ms() + 4000;

    while (!t.ended[local_rank] && clock_ms() < until)
        loop_turn(t.loop, 50);
    ck_assert_uint_eq(t.ended[local_rank], 1);
}

/* What a file in the test's folder holds; "" if it is not there. */
static const char *content(const char *path)
{
    static char text[65536];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

    text[n] = '\0';
    if (f)
        fclose(f);
    return text;
}

static const char *own_content(const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", t.folder, name);
    return content(path);
}

static const char *log_content(const char *name)
{
    static char path[512];
    struct err e;

    snprintf(path, sizeof(path), "%s/attempt_0/%s", logs_directory(t.logs, &e), name);
    return content(path);
}

START_TEST(without_flags_streams_reach_cruns_own)
{
    int fd[3];
    char tail[64];

    t.shown[1] = false;
    create_logs();
    open_worker(0, fd);
    ck_assert_int_eq(fd[1], STDOUT_FILENO);
    write_text(fd[1], "to out\n");
    write_text(fd[2], "to err\n");
    close_worker(fd);
    turn_until_ended(0);
    ck_assert_str_eq(logs_tail(t.logs, 0, tail, sizeof(tail)), "to err\n");
    end_logs();
    ck_assert_str_eq(own_content("out"), "to out\n");
    ck_assert_str_eq(own_content("err"), "to err\n");
}
END_TEST

/* Several workers do not get crun's file itself, in which their lines would mix. */
START_TEST(lines_of_two_workers_stay_whole_in_a_file)
{
    int fd[WORKERS][3];

    create_logs();
    for (uint32_t i = 0; i < WORKERS; i++) {
        open_worker(i, fd[i]);
        ck_assert_int_ne(fd[i][1], STDOUT_FILENO);
        write_text(fd[i][1], i ? "tw" : "on");
    }
    for (int i = 0; i < 5; i++)
        loop_turn(t.loop, 2);
    write_text(fd[0][1], "e\n");
    for (int i = 0; i < 200 && !*own_content("out"); i++)
        loop_turn(t.loop, 5);
    write_text(fd[1][1], "o");
    for (uint32_t i = 0; i < WORKERS; i++) {
        close_worker(fd[i]);
        turn_until_ended(i);
    }
    end_logs();
    ck_assert_str_eq(own_content("out"), "one\ntwo");
}
END_TEST

START_TEST(redirected_streams_reach_files_alone)
{
    int fd[3];
    char text[64];

    t.redirect[0] = CONFIG_STDOUT | CONFIG_STDERR;
    create_logs();
    open_worker(0, fd);
    write_text(fd[1], "to out\n");
    write_text(fd[2], "to err\n");
    close_worker(fd);
    turn_until_ended(0);
    ck_assert_str_eq(logs_tail(t.logs, 0, text, sizeof(text)), "to err\n");
    for (int i = 0; i < 200 && !*log_content("0/stderr.log"); i++)
        loop_turn(t.loop, 5);
    ck_assert_str_eq(log_content("0/stderr.log"), "to err\n");
    ck_assert_str_eq(log_content("0/stdout.log"), "to out\n");
    end_logs();
    ck_assert_str_eq(own_content("out"), "");
    ck_assert_str_eq(own_content("err"), "");
}
END_TEST

START_TEST(teed_streams_reach_both_with_a_prefix)
{
    int fd[3];

    t.tee[1] = CONFIG_STDOUT;
    create_logs();
    open_worker(1, fd);
    write_text(fd[1], "one\ntwo\n");
    close_worker(fd);
    turn_until_ended(1);
    for (int i = 0; i < 200 && !*log_content("1/stdout.log"); i++)
        loop_turn(t.loop, 5);
    ck_assert_str_eq(log_content("1/stdout.log"), "one\ntwo\n");
    end_logs();
    ck_assert_str_eq(own_content("out"), "[trainer1]:one\n[trainer1]:two\n");
}
END_TEST

START_TEST(both_streams_must_end)
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
END_TEST

/* Another process still has the descriptors. */
START_TEST(a_stream_that_is_held_open_ends_with_the_grace)
{
    uint64_t began = clock_ms();
    char tail[64];
    int fd[3];

    t.redirect[0] = CONFIG_STDOUT | CONFIG_STDERR;
    create_logs();
    open_worker(0, fd);
    logs_drain(t.logs, 0, 60);
    loop_turn(t.loop, 1);
    write_text(fd[2], "last words\n");
    turn_until_ended(0);
    ck_assert_uint_ge(clock_ms() - began, 60);
    ck_assert_str_eq(logs_tail(t.logs, 0, tail, sizeof(tail)), "last words\n");
    ck_assert_int_eq(write(fd[2], "late\n", 5), -1);
    ck_assert_int_eq(errno, EPIPE);
    close_worker(fd);
}
END_TEST

START_TEST(a_new_attempt_forgets_the_tail_and_keeps_the_files)
{
    char tail[64], first[512];
    struct err e;
    int fd[3];

    t.redirect[0] = CONFIG_STDERR;
    create_logs();
    open_worker(0, fd);
    write_text(fd[2], "one\n");
    close_worker(fd);
    turn_until_ended(0);
    snprintf(first, sizeof(first), "%s", logs_stderr_file(t.logs, 0));
    ck_assert_int_eq(logs_begin(t.logs, 1, 4, &e), 0);
    ck_assert_str_eq(logs_tail(t.logs, 0, tail, sizeof(tail)), "");
    ck_assert_ptr_nonnull(strstr(logs_error_file(t.logs, 0), "attempt_1/0/error.json"));
    t.ended[0] = 0;
    open_worker(0, fd);
    write_text(fd[2], "two\n");
    close_worker(fd);
    turn_until_ended(0);
    end_logs();
    ck_assert_str_eq(content(first), "one\n");
}
END_TEST

START_TEST(what_was_not_begun_ends_quietly_with_the_next_attempt)
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
END_TEST

START_TEST(cruns_messages_begin_on_a_line_of_their_own)
{
    int fd[3];

    t.shown[1] = false;
    create_logs();
    open_worker(0, fd);
    write_text(fd[2], "a bar: 10%");
    for (int i = 0; i < 200 && !*own_content("err"); i++)
        loop_turn(t.loop, 5);
    log_warn("hello");
    write_text(fd[2], "20%\n");
    close_worker(fd);
    turn_until_ended(0);
    end_logs();
    ck_assert_str_eq(own_content("err"), "a bar: 10%\ncrun: hello\n20%\n");
}
END_TEST

/* What crun says after the logs are gone begins on a line of its own, too. */
START_TEST(the_end_tells_of_an_open_line)
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
END_TEST

START_TEST(the_end_tells_of_lost_output)
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
END_TEST

START_TEST(without_a_place_for_logs_workers_run_unless_they_need_them)
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
END_TEST

/* Two workers write as fast as they can: no turn of the loop takes long, so that its
 * timers and connections have theirs. */
START_TEST(a_flood_leaves_the_loop_its_turns)
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
        uint64_t began = clock_ms();

        loop_turn(t.loop, 10);
        worst = clock_ms() - began > worst ? clock_ms() - began : worst;
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        kill(child[i], SIGKILL);
        waitpid(child[i], NULL, 0);
        turn_until_ended(i);
    }
    ck_assert_uint_lt(worst, 200);
}
END_TEST

/* crun's two streams are a terminal: so is the worker's one. */
START_TEST(a_terminal_is_a_terminal_for_the_worker)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), slave, fd[3];
    struct winsize size = { .ws_row = 40, .ws_col = 90 };
    char text[64] = "", tail[64];
    struct err e;
    bool is_tty;

    ck_assert(grantpt(master) == 0 && unlockpt(master) == 0);
    slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    ck_assert_int_eq(ioctl(slave, TIOCSWINSZ, &size), 0);
    ck_assert_int_eq(dup2(slave, STDOUT_FILENO), STDOUT_FILENO);
    replace(STDERR_FILENO, slave);
    create_logs();
    ck_assert_int_eq(logs_open(t.logs, 0, fd, &is_tty, &e), 0);
    ck_assert(is_tty);
    ck_assert_int_ne(fd[1], fd[2]);
    memset(&size, 0, sizeof(size));
    ck_assert_int_eq(ioctl(fd[1], TIOCGWINSZ, &size), 0);
    ck_assert_int_eq(size.ws_row, 40);
    ck_assert_int_eq(size.ws_col, 90);
    write_text(fd[1], "\r10%");
    write_text(fd[2], "\r20%\n");
    close_worker(fd);
    turn_until_ended(0);
    ck_assert_str_eq(logs_tail(t.logs, 0, tail, sizeof(tail)), "20%\n");
    end_logs();
    ck_assert_int_gt(read(master, text, sizeof(text) - 1), 0);
    ck_assert_str_eq(text, "\r10%\r20%\r\n"); /* the real terminal adds the return */
    close(master);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("logs");
    TCase *c = tcase_create("routes");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, without_flags_streams_reach_cruns_own);
    tcase_add_test(c, lines_of_two_workers_stay_whole_in_a_file);
    tcase_add_test(c, redirected_streams_reach_files_alone);
    tcase_add_test(c, teed_streams_reach_both_with_a_prefix);
    suite_add_tcase(s, c);

    c = tcase_create("life");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, both_streams_must_end);
    tcase_add_test(c, a_stream_that_is_held_open_ends_with_the_grace);
    tcase_add_test(c, a_new_attempt_forgets_the_tail_and_keeps_the_files);
    tcase_add_test(c, what_was_not_begun_ends_quietly_with_the_next_attempt);
    tcase_add_test(c, cruns_messages_begin_on_a_line_of_their_own);
    tcase_add_loop_test(c, the_end_tells_of_an_open_line, 0, 2);
    tcase_add_loop_test(c, the_end_tells_of_lost_output, 0, 2);
    tcase_add_test(c, without_a_place_for_logs_workers_run_unless_they_need_them);
    tcase_add_test(c, a_flood_leaves_the_loop_its_turns);
    tcase_add_test(c, a_terminal_is_a_terminal_for_the_worker);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return check_main(suite());
}
