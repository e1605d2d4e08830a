/* SPDX-License-Identifier: MIT */
/*
 * A group of two workers, driven by events in every order that matters. The guard and
 * the logs are replaced by the functions below, which record what the group asks them
 * for.
 */
#include "agent/workers/group.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/guard/status_pages.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/progress_page.h"
#include "tests/worlds/check_main.h"

#define WORKERS 2
#define GRACE_MS 60000
#define PATIENCE_MS 10000

static struct {
    struct loop *loop;
    struct config config;
    struct group *group;
    struct guard_worker_calls guard;
    struct logs_calls logs;
    char trace[64]; /* a letter for each call of the group */
    struct failure last;
    uint32_t drain_ms, term_delay_ms, grace_ms;
    char left[128];
    char error_file[64];
} t;

static void trace(char c)
{
    size_t used = strlen(t.trace);

    ck_assert_uint_lt(used + 1, sizeof(t.trace));
    t.trace[used] = c;
    t.trace[used + 1] = '\0';
}

/* -- the guard and the logs ------------------------------------------------------ */

static struct progress_page page_of_worker;
static struct progress_page *page_list[] = { &page_of_worker };
static const struct status_pages pages = { .count = 1, .page = page_list };

const struct status_pages *guard_pages(const struct guard *g)
{
    return &pages;
}

pid_t guard_pid(const struct guard *g)
{
    return 1;
}

const char *guard_launch_tag(const struct guard *g)
{
    return "";
}

int guard_spawn(struct guard *g, const struct guard_spawn *spawn, struct err *e)
{
    ck_assert_str_eq(spawn->argv[0], "/program");
    return 0;
}

void guard_sweep(struct guard *g, uint32_t term_delay_ms, uint32_t grace_ms)
{
    t.term_delay_ms = term_delay_ms;
    t.grace_ms = grace_ms;
    trace('w');
}

void guard_signal(struct guard *g, uint32_t local_rank, int signo)
{
    trace(signo == SIGTERM ? 't' : signo == SIGKILL && local_rank == 0 ? '9' : '?');
}

void guard_kill(struct guard *g)
{
    trace('k');
}

void guard_force(struct guard *g)
{
    trace('!');
}

int logs_begin(struct logs *l, uint64_t attempt, uint32_t first_rank, struct err *e)
{
    ck_assert_uint_eq(attempt, 0);
    ck_assert_uint_eq(first_rank, 4);
    return 0;
}

int logs_open(struct logs *l, uint32_t local_rank, int fd[3], bool *is_tty,
              struct err *e)
{
    *is_tty = false;
    fd[0] = fd[1] = fd[2] = 0;
    return 0;
}

void logs_drain(struct logs *l, uint32_t local_rank, uint32_t grace_ms)
{
    t.drain_ms = grace_ms;
}

struct logs_error_times logs_error_times(const struct logs *l, uint32_t local_rank)
{
    return (struct logs_error_times){ 0, 0 };
}

char *logs_tail(const struct logs *l, uint32_t local_rank, char *text, size_t size)
{
    snprintf(text, size, "tail %u", local_rank);
    return text;
}

char *logs_attempt_folder(const struct logs *l)
{
    return NULL;
}

const char *logs_error_file(const struct logs *l, uint32_t local_rank)
{
    return t.error_file;
}

const char *logs_stderr_file(const struct logs *l, uint32_t local_rank)
{
    return "/stderr.log";
}

/* -- the group -------------------------------------------------------------------- */

static void on_failed(void *arg, const struct failure *f)
{
    t.last = *f;
    trace((char)('0' + f->local_rank));
}

static void on_succeeded_late(void *arg, uint32_t rank)
{
    trace((char)('a' + rank));
}

static void on_unfit(void *arg, const struct failure *f)
{
    t.last = *f;
    trace('u');
}

static void on_left(void *arg, const char *text)
{
    snprintf(t.left, sizeof(t.left), "%s", text);
    trace('l');
}

static void on_finished(void *arg)
{
    trace('F');
}

static void on_stopped(void *arg)
{
    trace('P');
}

static void begin(void)
{
    static const char *argv[] = { "/program", NULL };
    const struct group_calls calls = { .failed = on_failed,
                                       .succeeded_late = on_succeeded_late,
                                       .unfit = on_unfit,
                                       .left = on_left,
                                       .finished = on_finished,
                                       .stopped = on_stopped };
    const struct msg_start start = { .first_rank = 4, .world_size = 6, .workers = 2 };
    struct err e;

    memset(&t, 0, sizeof(t));
    t.config = (struct config){ .workers = WORKERS,
                                .argv = argv,
                                .role = "default",
                                .signals_text = "",
                                .job = { .failure_grace_ms = GRACE_MS,
                                         .shutdown_grace_ms = 60000 } };
    t.loop = loop_create();
    t.group = group_create(t.loop, &t.config, &calls);
    t.guard = group_guard_calls(t.group);
    t.logs = group_logs_calls(t.group);
    group_set_guard(t.group, (struct guard *)&t);
    group_set_logs(t.group, (struct logs *)&t);
    ck_assert_int_eq(
        group_start(t.group, &start, 1, &(struct id128){ .byte = { 7 } }, &e), 0);
}

static void end(void)
{
    group_destroy(t.group);
    loop_destroy(t.loop);
}

static void exits(uint32_t local_rank, int status)
{
    const struct guard_exit exit = { .local_rank = local_rank,
                                     .pid = 100 + (pid_t)local_rank,
                                     .status = status,
                                     .at_ms = clock_ms() };

    t.guard.exited(t.guard.arg, &exit);
}

/*
 * x and y: worker 0 or 1 exits with 0; X and Y: with 1; d and e: its streams end;
 * E: nothing is left; S and K: stop, with a grace and without; H: worker 1 hangs;
 * G: the guard is replaced.
 */
static void play(const char *script)
{
    for (; *script; script++) {
        switch (*script) {
        case 'x':
        case 'X':
            exits(0, *script == 'x' ? 0 : 1 << 8);
            break;
        case 'y':
        case 'Y':
            exits(1, *script == 'y' ? 0 : 1 << 8);
            break;
        case 'd':
        case 'e':
            t.logs.ended(t.logs.arg, *script == 'd' ? 0 : 1);
            break;
        case 'E':
            t.guard.empty(t.guard.arg);
            break;
        case 'S':
        case 'K':
            group_stop(t.group, SIGTERM, false, GRACE_MS,
                       *script == 'S' ? GRACE_MS : 0);
            break;
        case 'H':
            group_report_hang(t.group, 1, "no progress", 2000);
            break;
        case 'G':
            group_set_guard(t.group, (struct guard *)&t);
            break;
        default:
            ck_abort_msg("no such event: %c", *script);
        }
    }
}

static const struct {
    const char *what, *script, *trace;
} courses[] = {
    { "finished when all have exited and drained and nothing is left", "xdyeE", "wF" },
    { "streams may end before their worker", "dxeyE", "wF" },
    { "both exit, then both drain", "xydeE", "wF" },
    { "nothing is asked while a stream is open", "xdy", "" },
    { "nothing is asked while a worker lives", "xde", "" },
    { "an answer without a request ends nothing", "xdyEeE", "wF" },
    { "a second exit of a worker does not count", "xxdyeE", "wF" },
    { "a second end of its streams does not count", "xddyeE", "wF" },
    { "a failure is reported when its streams have ended", "X", "" },
    { "or when it exits after them", "dX", "0" },
    { "each failure is reported, in order", "YeXd", "10w" },
    { "a failed group has not finished", "XdyeE", "0fw" },
    { "and is stopped at once when it is over", "XdyeES", "0fwP" },
    { "what ends well before a failure is not reported", "yeXd", "0w" },
    { "a failed group is stopped while others run", "XdSyeE", "0twP" },
    { "a worker that was told to end has not failed", "SXdYeE", "twP" },
    { "a stop asks for nothing while a stream is open", "xydS", "t" },
    { "a stop while the sweep runs waits for its answer", "XdYeSE", "01wtP" },
    { "no grace: all are killed", "KxdyeE", "kwP" },
    { "killed once", "KKSxdyeE", "kwP" },
    { "a stop may become a kill", "SKxdyeE", "tkwP" },
    { "a worker that hangs has failed", "H", "1" },
    { "a hung group does not finish", "HxdyeE", "1efw" },
    { "a hung group is stopped", "HSxdyeE", "1twP" },
    { "with the guard its workers are forgotten", "xGdeE", "" },
    { "then a stop has nothing to wait for", "xGSd", "P" },
};

TEST_EACH(a_group_is_over_in_order, courses)
{
    begin();
    play(courses[_i].script);
    ck_assert_msg(strcmp(t.trace, courses[_i].trace) == 0, "%s: %s gives %s, not %s",
                  courses[_i].what, courses[_i].script, t.trace, courses[_i].trace);
    end();
}

TEST(a_group_counts_the_living)
{
    begin();
    ck_assert_uint_eq(group_alive(t.group), 2);
    ck_assert_int_eq(group_pid(t.group, 0), 0);
    t.guard.started(t.guard.arg, 0, 77);
    ck_assert_int_eq(group_pid(t.group, 0), 77);
    play("x");
    ck_assert_uint_eq(group_alive(t.group), 1);
    ck_assert_int_eq(group_pid(t.group, 0), 0);
    play("G");
    ck_assert_uint_eq(group_alive(t.group), 0);
    end();
}

TEST(a_failure_counts_those_that_have_succeeded)
{
    begin();
    play("Xd");
    ck_assert_uint_eq(t.last.succeeded, 0);
    end();
    begin();
    play("yXd");
    ck_assert_uint_eq(t.last.succeeded, 1);
    ck_assert_uint_eq(t.last.succeeded_rank, 5);
    end();
}

TEST(a_failed_worker_is_drained_for_less_long)
{
    uint32_t well;

    begin();
    play("x");
    well = t.drain_ms;
    play("Y");
    ck_assert_uint_lt(t.drain_ms, well);
    end();
}

TEST(what_successful_workers_leave_may_go_on_for_some_time)
{
    begin();
    play("xdye");
    ck_assert_uint_gt(t.term_delay_ms, 12000 - PATIENCE_MS / 2);
    ck_assert_uint_le(t.term_delay_ms, 12000);
    ck_assert_uint_eq(t.grace_ms, 48000);
    t.guard.leftover(t.guard.arg, 101, "upload");
    t.guard.leftover(t.guard.arg, 100, "up");
    t.guard.leftover(t.guard.arg, 7, "upload");
    play("E");
    ck_assert_str_eq(t.trace, "wlF");
    ck_assert_str_eq(t.left, "ranks 4, 5 left 3 processes (upload, up): ended, as they "
                             "still ran after 12.0 s");
    end();
}

TEST(a_stop_ends_what_successful_workers_have_left)
{
    begin();
    play("xdyeS");
    ck_assert_str_eq(t.trace, "wtw");
    ck_assert_uint_eq(t.term_delay_ms, 0);
    ck_assert_uint_eq(t.grace_ms, GRACE_MS);
    t.guard.leftover(t.guard.arg, 100, "upload");
    play("E");
    ck_assert_str_eq(t.trace, "wtwP");
    end();
}

TEST(a_shorter_grace_counts)
{
    begin();
    group_stop(t.group, SIGTERM, false, GRACE_MS, GRACE_MS);
    group_stop(t.group, SIGTERM, false, 10, 10);
    group_stop(t.group, SIGTERM, false, GRACE_MS, GRACE_MS);
    while (!strchr(t.trace, 'k')) /* Check's time limit ends what never comes */
        loop_turn(t.loop, 10);
    ck_assert_str_eq(t.trace, "tttk");
    end();
}

TEST(a_worker_that_writes_a_checkpoint_has_more_time)
{
    uint64_t began;

    begin();
    page_of_worker.phase = PROGRESS_CHECKPOINTING;
    group_stop(t.group, SIGTERM, false, 10, GRACE_MS);
    began = clock_ms();
    while (clock_ms() < began + 100)
        loop_turn(t.loop, 10);
    ck_assert_str_eq(t.trace, "t");
    page_of_worker.phase = PROGRESS_TRAINING; /* and beside the training */
    page_of_worker.flags = PROGRESS_SAVES;
    began = clock_ms();
    while (clock_ms() < began + 100)
        loop_turn(t.loop, 10);
    ck_assert_str_eq(t.trace, "t");
    page_of_worker.flags = 0;
    while (!strchr(t.trace, 'k'))
        loop_turn(t.loop, 10);
    ck_assert_str_eq(t.trace, "tk");
    end();
}

/* Nor is a checkpoint of all ranks waited for when one of them has failed. */
TEST(what_needs_all_ranks_is_not_waited_for_after_a_failure)
{
    begin();
    page_of_worker.flags = PROGRESS_SAVES_TOGETHER;
    group_stop(t.group, SIGTERM, false, GRACE_MS, GRACE_MS);
    ck_assert_str_eq(t.trace, "t");
    page_of_worker.phase = PROGRESS_CHECKPOINTING;
    group_stop(t.group, SIGTERM, true, GRACE_MS, GRACE_MS);
    ck_assert_str_eq(t.trace, "tt");
    page_of_worker.phase = PROGRESS_TRAINING;
    group_stop(t.group, SIGTERM, true, GRACE_MS, GRACE_MS);
    ck_assert_str_eq(t.trace, "ttt9");
    exits(0, 0);
    group_stop(t.group, SIGTERM, true, GRACE_MS, GRACE_MS);
    ck_assert_str_eq(t.trace, "ttt9t");
    page_of_worker.flags = 0;
    end();
}

/* However long it says so. */
TEST(a_checkpoint_is_not_waited_for_without_end)
{
    begin();
    page_of_worker.phase = PROGRESS_CHECKPOINTING;
    group_stop(t.group, SIGTERM, false, 10, 100);
    while (!strchr(t.trace, 'k'))
        loop_turn(t.loop, 10);
    ck_assert_str_eq(t.trace, "tk");
    page_of_worker.phase = PROGRESS_TRAINING;
    end();
}

/* -- what a failure is ------------------------------------------------------------ */

#define PREFLIGHT_FILE(verdict, errnum)                                                \
    "{\"message\":{\"message\":\"preflight: bad\"},"                                   \
    "\"preflight\":{\"verdict\":" verdict ",\"errno\":" errnum "}}"

static const struct {
    int status, exec_errno;
    bool preflight;
    const char *file; /* NULL: none */
    enum failure_kind kind;
    int code;
    bool final;
    const char *trace, *what, *said;
} failures[] = {
    { 3 << 8, 0, false, NULL, FAILURE_EXIT, 3, false, "0", "exit code 3", "tail 0" },
    { SIGSEGV, 0, false, NULL, FAILURE_SIGNAL, SIGSEGV, false, "0", "killed by SIGSEGV",
      "tail 0" },
    { 1 << 8, 0, false, "{\"message\":{\"message\":\"E: x\"}}", FAILURE_EXIT, 1, false,
      "0", "exit code 1: E: x", "E: x" },
    { 127 << 8, ENOEXEC, false, NULL, FAILURE_EXEC, ENOEXEC, true, "0",
      "execve: Exec format error (neither a program for this machine nor a script with "
      "a #! line)",
      "tail 0" },
    { 69 << 8, 0, true, PREFLIGHT_FILE("1", "0"), FAILURE_EXIT, 69, false, "u",
      "preflight: bad", "preflight: bad" },
    { 127 << 8, 0, true, PREFLIGHT_FILE("2", "8"), FAILURE_EXEC, ENOEXEC, true, "0",
      "execve: Exec format error (neither a program for this machine nor a script with "
      "a #! line)",
      "preflight: bad" },
    { 1 << 8, 0, true, PREFLIGHT_FILE("0", "0"), FAILURE_EXIT, 1, false, "0",
      "exit code 1: preflight: bad", "preflight: bad" },
    /* a program's own file decides nothing where no preflight was asked for */
    { 69 << 8, 0, false, PREFLIGHT_FILE("1", "0"), FAILURE_EXIT, 69, false, "0",
      "exit code 69: preflight: bad", "preflight: bad" },
};

static void write_error_file(const char *text)
{
    FILE *out;
    int fd;

    strcpy(t.error_file, "/tmp/crun-group-XXXXXX");
    fd = mkstemp(t.error_file);
    ck_assert_int_ge(fd, 0);
    out = fdopen(fd, "w");
    fputs(text, out);
    fclose(out);
}

TEST_EACH(a_failure_says_what_happened, failures)
{
    begin();
    t.config.job.preflight = failures[_i].preflight;
    if (failures[_i].file)
        write_error_file(failures[_i].file);
    if (failures[_i].exec_errno)
        t.guard.exec_failed(t.guard.arg, 0, failures[_i].exec_errno, "execve");
    exits(0, failures[_i].status);
    play("d");
    if (failures[_i].file)
        unlink(t.error_file);
    ck_assert_str_eq(t.trace, failures[_i].trace);
    ck_assert_int_eq(t.last.kind, failures[_i].kind);
    ck_assert_int_eq(t.last.code, failures[_i].code);
    ck_assert_int_eq(t.last.final, failures[_i].final);
    ck_assert_uint_eq(t.last.rank, 4);
    ck_assert_uint_eq(t.last.pid, 100);
    ck_assert_str_eq(t.last.what, failures[_i].what);
    ck_assert_str_eq(t.last.said, failures[_i].said);
    ck_assert_str_eq(t.last.log, "/stderr.log");
    end();
}
