/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_routing.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"

#define WORKERS 2
#define PIPES                                                                          \
    {                                                                                  \
        { LOG_SINK_PIPE, LOG_SINK_PIPE }, false                                        \
    }
#define ONE_PIPE                                                                       \
    {                                                                                  \
        { LOG_SINK_PIPE, LOG_SINK_PIPE }, true                                         \
    }
#define FILES                                                                          \
    {                                                                                  \
        { LOG_SINK_FILE, LOG_SINK_FILE }, false                                        \
    }
#define ONE_FILE                                                                       \
    {                                                                                  \
        { LOG_SINK_FILE, LOG_SINK_FILE }, true                                         \
    }
#define NULLS                                                                          \
    {                                                                                  \
        { LOG_SINK_DEVICE, LOG_SINK_DEVICE }, true                                     \
    }
#define TERMINAL                                                                       \
    {                                                                                  \
        { LOG_SINK_TTY, LOG_SINK_TTY }, true                                           \
    }
/* the other worker's output goes to files only; without this flag, it is teed */
#define REDIRECTED 4
#define FILE_AND_TERMINAL                                                              \
    {                                                                                  \
        { LOG_SINK_FILE, LOG_SINK_TTY }, false                                         \
    }

/*
 * What local rank 0 gets, standard output and error: F file, L filtered file, C
 * console, P with a prefix, T by a pty, = crun's own descriptor, 0 /dev/null; 1 at the
 * end: both are one stream.
 */
static const struct {
    const char *what;
    struct log_routing_sinks sinks;
    uint8_t redirect, tee, other;
    bool hidden, filters;
    const char *log_dir, *out, *err, *one;
} cases[] = {
    { "pipes", PIPES, 0, 0, 0, false, false, NULL, "C", "C", "" },
    { "one pipe", ONE_PIPE, 0, 0, 0, false, false, NULL, "C", "C", "1" },
    { "files", FILES, 0, 0, 0, false, false, NULL, "C", "C", "" },
    { "files, one worker", FILES, 0, 0, REDIRECTED, false, false, NULL, "C=", "C", "" },
    { "one file", ONE_FILE, 0, 0, 0, false, false, NULL, "C", "C", "1" },
    { "one file, one worker", ONE_FILE, 0, 0, REDIRECTED, false, false, NULL, "C", "C",
      "1" },
    { "/dev/null", NULLS, 0, 0, 0, false, false, NULL, "C=", "C", "" },
    { "terminal", TERMINAL, 0, 0, 0, false, false, NULL, "CT", "CT", "1" },
    { "mixed", FILE_AND_TERMINAL, 0, 0, 0, false, false, NULL, "C", "CT", "" },
    { "mixed, one worker", FILE_AND_TERMINAL, 0, 0, REDIRECTED, false, false, NULL,
      "C=", "CT", "" },
    { "redirected", TERMINAL, 3, 0, 0, false, false, NULL, "F", "F", "" },
    { "one redirected", TERMINAL, 1, 0, 0, false, false, NULL, "F", "CT", "" },
    { "teed", PIPES, 0, 3, 0, false, false, NULL, "FCP", "FCP", "" },
    { "teed, terminal", TERMINAL, 0, 3, 0, false, false, NULL, "FCPT", "FCPT", "" },
    { "teed wins", PIPES, 3, 1, 0, false, false, NULL, "FCP", "F", "" },
    { "hidden", TERMINAL, 0, 0, 0, true, false, NULL, "0", "", "" },
    { "hidden and teed", PIPES, 0, 3, 0, true, false, NULL, "FP", "FP", "" },
    { "filters", FILES, 0, 0, 0, false, true, NULL, "LC", "LC", "" },
    { "filters, one pipe", ONE_PIPE, 0, 0, 0, false, true, NULL, "LC", "LC", "" },
    { "filters, teed", PIPES, 0, 1, 0, false, true, NULL, "FLCP", "LC", "" },
    { "filters, other teed", FILES, 0, 0, 3, false, true, NULL, "C", "C", "" },
    { "filters, hidden", PIPES, 0, 0, 0, true, true, NULL, "L", "L", "" },
    { "no logs", PIPES, 3, 0, 0, false, false, "/dev/null", "0", "", "" },
    { "no logs, teed", FILES, 0, 3, 0, false, true, "/dev/null", "CP", "CP", "" },
};

static void describe(const struct log_routing *p, char *text)
{
    const struct {
        bool is;
        char letter;
    } letters[] = { { p->file, 'F' },   { p->filter, 'L' }, { p->console, 'C' },
                    { p->prefix, 'P' }, { p->pty, 'T' },    { p->passed, '=' },
                    { p->nowhere, '0' } };

    for (size_t i = 0; i < sizeof(letters) / sizeof(letters[0]); i++)
        if (letters[i].is)
            *text++ = letters[i].letter;
    *text = '\0';
}

TEST_EACH(logplan_makes_each_case, cases)
{
    static const char *const filters[] = { "loss", NULL };
    uint8_t other = cases[_i].other;
    uint8_t redirect[WORKERS] = { cases[_i].redirect, other & REDIRECTED ? 3 : 0 },
            tee[WORKERS] = { cases[_i].tee, other & 3 };
    bool shown[WORKERS] = { !cases[_i].hidden, true };
    struct config c = { .workers = WORKERS,
                        .log_dir = cases[_i].log_dir,
                        .streams = { redirect, tee, shown } };
    struct log_routing p[LOG_STREAMS];
    char text[LOG_STREAMS][16];

    if (cases[_i].filters)
        c.stdout_filters = c.stderr_filters = filters;
    for (int i = 0; i < LOG_STREAMS; i++) {
        p[i] = log_routing_make(&c, &cases[_i].sinks, 0, i);
        describe(&p[i], text[i]);
    }
    ck_assert_msg(strcmp(text[LOG_OUT], cases[_i].out) == 0 &&
                      strcmp(text[LOG_ERR], cases[_i].err) == 0 &&
                      log_routing_is_one_stream(p, &cases[_i].sinks) ==
                          !!*cases[_i].one,
                  "%s: %s and %s", cases[_i].what, text[LOG_OUT], text[LOG_ERR]);
}

/* Per sink, standard output and error: streams and their workers. */
static const struct {
    const char *what;
    struct log_routing_sinks sinks;
    uint8_t redirect[WORKERS], tee[WORKERS];
    struct log_routing_writers writers[LOG_STREAMS];
} writers_cases[] = {
    { "pipes", PIPES, { 0, 0 }, { 0, 0 }, { { 2, 2 }, { 2, 2 } } },
    { "one pipe", ONE_PIPE, { 0, 0 }, { 0, 0 }, { { 2, 2 }, { 2, 2 } } },
    { "one pipe, teed", ONE_PIPE, { 0, 0 }, { 0, 3 }, { { 3, 2 }, { 3, 2 } } },
    { "pipes, one worker", PIPES, { 0, 3 }, { 0, 0 }, { { 1, 1 }, { 1, 1 } } },
    { "one pipe, one teed", ONE_PIPE, { 3, 0 }, { 0, 3 }, { { 2, 1 }, { 2, 1 } } },
    { "file, one worker", FILES, { 0, 3 }, { 0, 0 }, { { 0, 0 }, { 1, 1 } } },
    { "no worker", ONE_PIPE, { 3, 3 }, { 0, 0 }, { { 0, 0 }, { 0, 0 } } },
};

TEST_EACH(writers_of_a_sink_are_counted, writers_cases)
{
    uint8_t redirect[WORKERS], tee[WORKERS];
    struct config c = { .workers = WORKERS, .streams = { redirect, tee, NULL } };

    memcpy(redirect, writers_cases[_i].redirect, sizeof(redirect));
    memcpy(tee, writers_cases[_i].tee, sizeof(tee));
    for (int k = 0; k < LOG_STREAMS; k++) {
        const struct log_routing_writers *wanted = &writers_cases[_i].writers[k];
        struct log_routing_writers w = log_routing_count_writers(
            &c, &writers_cases[_i].sinks, k);

        ck_assert_msg(w.streams == wanted->streams && w.workers == wanted->workers,
                      "%s: %u streams of %u workers", writers_cases[_i].what, w.streams,
                      w.workers);
    }
}

TEST(files_are_needed_by_redirects_tees_and_filters)
{
    static const char *const none[] = { NULL }, *const some[] = { "loss", NULL };
    uint8_t redirect[WORKERS] = { 0 }, tee[WORKERS] = { 0 };
    struct config c = { .workers = WORKERS,
                        .stdout_filters = none,
                        .streams = { redirect, tee, NULL } };

    ck_assert(!log_routing_needs_files(&c));
    redirect[1] = CONFIG_STDERR;
    ck_assert(log_routing_needs_files(&c));
    redirect[1] = 0;
    tee[0] = CONFIG_STDOUT;
    ck_assert(log_routing_needs_files(&c));
    tee[0] = 0;
    c.stdout_filters = some;
    ck_assert(log_routing_needs_files(&c));
}

TEST(a_look_tells_files_devices_and_pipes_apart)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC), pipe_end[2];
    int file = memfd_create("test", MFD_CLOEXEC), copy = dup(file);
    struct log_routing_sinks sinks = log_routing_detect_sinks(file, null);

    ck_assert_int_eq(pipe2(pipe_end, O_CLOEXEC), 0);
    ck_assert_int_eq(sinks.kind[LOG_OUT], LOG_SINK_FILE);
    ck_assert_int_eq(sinks.kind[LOG_ERR], LOG_SINK_DEVICE);
    ck_assert(!sinks.same);
    ck_assert(log_routing_detect_sinks(file, copy).same);
    sinks = log_routing_detect_sinks(pipe_end[1], pipe_end[1]);
    ck_assert_int_eq(sinks.kind[LOG_ERR], LOG_SINK_PIPE);
    ck_assert(sinks.same);
    close(copy);
    ck_assert(!log_routing_detect_sinks(file, copy).same); /* closed */
    close(null);
    close(file);
    close(pipe_end[0]);
    close(pipe_end[1]);
}
