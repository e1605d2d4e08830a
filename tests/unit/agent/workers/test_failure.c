/* SPDX-License-Identifier: MIT */
#include "agent/workers/failure.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/job/registry/exit_code.h"
#include "tests/worlds/check_main.h"

static char path[64];

static void make_file(const char *text)
{
    FILE *out;
    int fd;

    strcpy(path, "/tmp/crun-failure-XXXXXX");
    fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    out = fdopen(fd, "w");
    fputs(text, out);
    fclose(out);
}

static void remove_file(void)
{
    unlink(path);
}

/* -- words ------------------------------------------------------------------ */

static const struct {
    struct failure f;
    const char *what;
    int exit_code;
} cases[] = {
    { { .kind = FAILURE_EXIT, .code = 85 }, "exit code 85", 85 },
    { { .kind = FAILURE_SIGNAL, .code = 9 }, "killed by SIGKILL", 137 },
    { { .kind = FAILURE_SIGNAL, .code = 9, .out_of_memory = true },
      "killed by SIGKILL, out of memory",
      137 },
    { { .kind = FAILURE_SIGNAL, .code = 11, .core_dumped = true },
      "killed by SIGSEGV, core dumped",
      139 },
    { { .kind = FAILURE_EXEC, .code = 2 },
      "could not be started: No such file or directory",
      1 },
    { { .kind = FAILURE_LOST }, "the node was lost", 1 },
    { { .kind = FAILURE_AGENT, .what = "no store" }, "no store", 1 },
};

TEST_EACH(a_failure_has_words_and_an_exit_code, cases)
{
    char what[256];

    ck_assert_str_eq(failure_what(&cases[_i].f, what, sizeof(what)), cases[_i].what);
    ck_assert_int_eq(job_exit_code(&cases[_i].f), cases[_i].exit_code);
}

/* -- error files ------------------------------------------------------------ */

static const struct {
    const char *json, *text; /* NULL: not understood */
    uint64_t time_ms;
    const char *message;
} files[] = {
    { "{\"message\":{\"message\":\"E: "
      "x\",\"extraInfo\":{\"py_callstack\":\"Traceback\\nE: x\","
      "\"timestamp\":\"1700000000\"}}}",
      "Traceback\nE: x", 1700000000000, "E: x" },
    { "{\"message\":\"plain\",\"timestamp\":17}", "plain", 17000, "" },
    { "{\"message\":{\"message\":\"only\"}}", "only", 0, "only" },
    { "{\"message\":{\"message\":\"one\\ntwo\"}}", "one\ntwo", 0, "one" },
    { "{\"message\":5}", NULL, 0, NULL },
    { "{}", NULL, 0, NULL },
    { "[1,2", NULL, 0, NULL },
    { "", NULL, 0, NULL },
};

TEST(some_codes_are_final)
{
    struct failure exit = { .kind = FAILURE_EXIT }, killed = { .kind = FAILURE_SIGNAL };
    struct job_config job = { .no_restart_on = "2,127,137" };

    for (int code = 1; code < 256; code++) {
        exit.code = code;
        ck_assert(failure_is_final(&exit, &job) ==
                  (code == 2 || code == 78 || code == 127 || code == 137));
    }
    killed.code = 9;
    ck_assert(failure_is_final(&killed, &job));
    killed.code = 15;
    ck_assert(!failure_is_final(&killed, &job));
    exit.kind = FAILURE_LOST;
    exit.code = 2;
    ck_assert(!failure_is_final(&exit, &job));
}

TEST_EACH(both_forms_of_an_error_file_are_read, files)
{
    struct error_file told;
    bool understood;

    make_file(files[_i].json);
    understood = failure_read_error_file(path, &told);
    remove_file();
    ck_assert_int_eq(understood, files[_i].text != NULL);
    if (!understood)
        return;
    ck_assert_str_eq(told.text, files[_i].text);
    ck_assert_str_eq(told.message, files[_i].message);
    ck_assert_uint_eq(told.time_ms, files[_i].time_ms);
}

static const struct {
    const char *json;
    enum preflight_verdict verdict;
    int exec_errno;
} verdicts[] = {
    { "\"preflight\":{\"verdict\":0,\"errno\":2}", PREFLIGHT_NO_VERDICT, 0 },
    { "\"preflight\":{\"verdict\":1,\"errno\":0}", PREFLIGHT_UNFIT, 0 },
    { "\"preflight\":{\"verdict\":2,\"errno\":13}", PREFLIGHT_NOT_EXECUTED, 13 },
    { "\"preflight\":{\"verdict\":2}", PREFLIGHT_NO_VERDICT, 0 },
    { "\"preflight\":{\"verdict\":3,\"errno\":13}", PREFLIGHT_NO_VERDICT, 0 },
    { "\"preflight\":{\"verdict\":\"1\"}", PREFLIGHT_NO_VERDICT, 0 },
    { "\"preflight\":1", PREFLIGHT_NO_VERDICT, 0 },
    { "\"verdict\":1", PREFLIGHT_NO_VERDICT, 0 },
};

TEST_EACH(the_verdict_of_the_preflight_is_read, verdicts)
{
    struct error_file file;
    char json[256];

    snprintf(json, sizeof(json), "{\"message\":{\"message\":\"preflight: x\"},%s}",
             verdicts[_i].json);
    make_file(json);
    ck_assert(failure_read_error_file(path, &file));
    remove_file();
    ck_assert_str_eq(file.message, "preflight: x");
    ck_assert_int_eq(file.verdict, verdicts[_i].verdict);
    ck_assert_int_eq(file.exec_errno, verdicts[_i].exec_errno);
}

TEST(a_long_traceback_keeps_its_end)
{
    static char json[16384] = "{\"message\":\"";
    struct error_file told;
    const char *text = told.text;

    for (int i = 0; i < 1000; i++)
        sprintf(json + strlen(json), "line %d\\n", i);
    strcat(json, "ValueError: the end\"}");
    make_file(json);
    ck_assert(failure_read_error_file(path, &told));
    remove_file();
    ck_assert_str_eq(text + strlen(text) - 19, "ValueError: the end");
    ck_assert_int_eq(strncmp(text, "line ", 5), 0);
}

TEST(no_file_and_a_link_are_nothing)
{
    struct error_file told;
    char link[80];

    ck_assert(!failure_read_error_file("", &told));
    ck_assert(!failure_read_error_file("/nonexistent/x", &told));
    make_file("{\"message\":\"secret\"}");
    snprintf(link, sizeof(link), "%s.link", path);
    ck_assert_int_eq(symlink(path, link), 0);
    ck_assert(!failure_read_error_file(link, &told));
    unlink(link);
    remove_file();
}

TEST(what_is_written_can_be_read)
{
    struct failure f = { .kind = FAILURE_EXIT,
                         .code = 3,
                         .wall_ms = 1700000000123,
                         .said = "a \"quoted\"\nline" };
    struct error_file told;

    failure_describe_end(&f, "Oops: both");
    ck_assert_str_eq(f.what, "exit code 3: Oops: both");
    make_file("");
    failure_write_error_file(path, &f);
    ck_assert(failure_read_error_file(path, &told));
    remove_file();
    ck_assert_str_eq(told.text, f.said);
    ck_assert_str_eq(told.message, "Oops: both");
    ck_assert_uint_eq(told.time_ms, 1700000000000);
}

/* -- the report ------------------------------------------------------------- */

static char *print(const struct failure_report *r)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    failure_print_report(r, out);
    fclose(out);
    return text;
}

TEST(a_job_that_has_not_succeeded_never_ends_with_0)
{
    static const struct {
        enum job_reason reason;
        int32_t code;
        int ends_with;
    } ends[] = {
        { JOB_REASON_SUCCESS, 0, 0 },   { JOB_REASON_RELEASED, 0, 0 },
        { JOB_REASON_USER, 143, 143 },  { JOB_REASON_USER, 255, 255 },
        { JOB_REASON_USER, 256, 1 },    { JOB_REASON_USER, -256, 1 },
        { JOB_REASON_USER, 512, 1 },    { JOB_REASON_SUCCESS, 256, 1 },
        { JOB_REASON_FAILURE, 0, 1 },   { JOB_REASON_LOST, 0, 1 },
        { JOB_REASON_FAILURE, 85, 85 }, { JOB_REASON_UNKNOWN, 0, 1 },
    };

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        struct msg_done done = { .exit_code = ends[i].code, .reason = ends[i].reason };

        ck_assert_int_eq(done_exit_code(&done), ends[i].ends_with);
    }
}

TEST(the_report_begins_with_the_first_failure)
{
    struct failure more[] = {
        { .kind = FAILURE_EXIT,
          .code = 1,
          .rank = 12,
          .pid = 5,
          .wall_ms = 1700000001900 },
        { .kind = FAILURE_EXIT,
          .code = 1,
          .rank = 13,
          .pid = 6,
          .wall_ms = 1699999999500,
          .origin = FAILURE_ORIGIN_PEER,
          .what = "exit code 1: it",
          .error = "Connection reset by peer" },
    };
    struct failure_list others = { more, 2 };
    struct msg_done done = { .exit_code = 85, .restarts = 3, .max_restarts = 3 };
    struct failure_report r = { .job = "job \"resnet\"",
                                .done = &done,
                                .others = &others,
                                .epoch = 2,
                                .own_host = "here" };
    char *text;

    strcpy(done.text, "rank 5 on there exited with code 85");
    strcpy(done.afterwards,
           "here 12 exit code 1\nthere 7 killed by SIGABRT\n\nbad\nx 1");
    done.failure = (struct failure){ .kind = FAILURE_EXIT,
                                     .code = 85,
                                     .rank = 5,
                                     .local_rank = 1,
                                     .pid = 81422,
                                     .wall_ms = 1700000000000,
                                     .ran_ms = 3000,
                                     .host = "there",
                                     .said = "Traceback\n  boom \033[2J\nError: NaN\n",
                                     .log = "/logs/1/stderr.log" };
    text = print(&r);
    ck_assert_ptr_nonnull(
        strstr(text, "crun: job \"resnet\" has failed: rank 5 on there"));
    ck_assert_ptr_nonnull(strstr(text, "node there · pid 81422"));
    ck_assert_ptr_nonnull(strstr(text, "it said         | Traceback\n"));
    ck_assert_ptr_nonnull(strstr(text, "| Error: NaN\n"));
    ck_assert_ptr_nonnull(strstr(text, "\\x1b[2J")); /* nothing steers the terminal */
    ck_assert_ptr_nonnull(
        strstr(text, "  other ranks     rank 12: exit code 1, 1.9 s later\n"));
    ck_assert_ptr_nonnull(strstr(text,
                                 "  rank 13: exit code 1, "
                                 "\"Connection reset by peer\": a consequence\n"));
    ck_assert_ptr_nonnull(strstr(text, "  rank 7 on there: killed by SIGABRT\n"));
    ck_assert_ptr_null(strstr(text, "rank 12 on here")); /* it is told already */
    ck_assert_ptr_null(strstr(text, "bad"));
    ck_assert_ptr_nonnull(strstr(text, "3 of 3 used"));
    ck_assert_ptr_nonnull(strstr(text, "/logs/1/stderr.log   (on there)"));
    ck_assert_ptr_nonnull(strstr(text, "crun: exit code 85, as rank 5's\n"));
    ck_assert_ptr_null(strchr(text, '\033'));
    free(text);
    r.colour = true;
    text = print(&r);
    ck_assert_ptr_nonnull(strchr(text, '\033'));
    free(text);
}

#define STEER                                                                          \
    "\033[2J\a\xc2\x9b"                                                                \
    "31m\x7f"
#define SHOWN "\\x1b[2J\\x07\\xc2\\x9b31m\\x7f"

/* ESC, BEL, DEL, and U+009B, which some terminals take as ESC [. */
TEST(nothing_in_a_report_steers_the_terminal)
{
    static const char *const shown[] = {
        "has failed: text" SHOWN "\n",
        "what            exit" SHOWN "\n",
        "| said\t" SHOWN "\n",
        "rank 3: other" SHOWN,
        "rank 7" SHOWN " on there" SHOWN ": x" SHOWN "\n",
        "log" SHOWN "   (on there)\n",
    };
    struct failure second = {
        .kind = FAILURE_EXIT, .rank = 3, .pid = 5, .what = "other" STEER
    };
    struct failure_list others = { &second, 1 };
    struct msg_done done = { .text = "text" STEER,
                             .afterwards = "there" STEER " 7" STEER " x" STEER };
    struct failure_report r = {
        .job = "the job", .done = &done, .others = &others, .own_host = "here"
    };
    char *text;

    done.failure = (struct failure){ .kind = FAILURE_EXIT,
                                     .host = "there",
                                     .what = "exit" STEER,
                                     .said = "said\t" STEER "\n",
                                     .log = "log" STEER };
    text = print(&r);
    for (unsigned i = 0; i < sizeof(shown) / sizeof(shown[0]); i++)
        ck_assert_msg(strstr(text, shown[i]) != NULL, "no \"%s\" in %s", shown[i],
                      text);
    ck_assert_ptr_null(strpbrk(text, "\033\a\x9b\x7f"));
    free(text);
}

TEST(the_report_shows_the_last_lines_only)
{
    struct failure_list none = { NULL, 0 };
    struct msg_done done = { .exit_code = 1 };
    struct failure_report r = {
        .job = "the job", .done = &done, .others = &none, .own_host = "here"
    };
    char *text;

    done.failure.kind = FAILURE_EXIT;
    for (int i = 0; i < 100; i++)
        sprintf(done.failure.said + strlen(done.failure.said), "line %d\n", i);
    text = print(&r);
    ck_assert_ptr_null(strstr(text, "| line 79\n"));
    ck_assert_ptr_nonnull(strstr(text, "it said         | line 80\n"));
    ck_assert_ptr_nonnull(strstr(text, "| line 99\n"));
    free(text);
}
