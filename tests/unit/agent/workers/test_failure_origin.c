/* SPDX-License-Identifier: MIT */
#include "agent/workers/failure_origin.h"

#include <signal.h>

#include "agent/workers/limits.h"
#include "tests/worlds/check_main.h"

#define ENDED_MS 100000
#define FRAMES                                                                         \
    "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n"       \
    "    main()\n"
#define DURING                                                                         \
    "\nDuring handling of the above exception, another exception occurred:\n\n"
#define RESET "ConnectionResetError: [Errno 104] Connection reset by peer\n"

/* Worker 1 has written this and exited with 1. */
static const struct {
    const char *text;
    enum failure_origin origin;
    const char *error;
} written[] = {
    { "", FAILURE_ORIGIN_OWN, "" },
    { "loss is NaN\n", FAILURE_ORIGIN_OWN, "loss is NaN" },
    { FRAMES "ValueError: bad\n", FAILURE_ORIGIN_OWN, "ValueError: bad" },
    { FRAMES RESET, FAILURE_ORIGIN_PEER,
      "ConnectionResetError: [Errno 104] Connection reset by peer" },
    /* PyTorch marks the lines, and a C++ error has frames of its own */
    { "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a.py\"\n"
      "[rank1]: torch.distributed.DistStoreError: Failed to recv, got 0 bytes. "
      "Connection was likely closed.\nException raised from x (most recent call "
      "first):\nframe #0: c10::Error::Error\nframe #1: y\n",
      FAILURE_ORIGIN_PEER,
      "torch.distributed.DistStoreError: Failed to recv, got 0 bytes. Connection was "
      "likely closed." },
    { FRAMES "torch.distributed.DistBackendError: NCCL error in: a.cpp:1\n"
             "ncclRemoteError: A call failed possibly due to a network error or a "
             "remote process exiting prematurely.\nLast error:\n",
      FAILURE_ORIGIN_PEER,
      "ncclRemoteError: A call failed possibly due to a network error or a remote "
      "process exiting prematurely." },
    { FRAMES "RuntimeError: Broken pipe\n", FAILURE_ORIGIN_PEER,
      "RuntimeError: Broken pipe" },
    /* the first error of a chain counts */
    { FRAMES "ValueError: bad\n" DURING FRAMES RESET, FAILURE_ORIGIN_OWN,
      "ValueError: bad" },
    { FRAMES RESET DURING FRAMES "RuntimeError: step failed\n", FAILURE_ORIGIN_PEER,
      "ConnectionResetError: [Errno 104] Connection reset by peer" },
    { FRAMES RESET DURING FRAMES
      "RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed. \n",
      FAILURE_ORIGIN_OWN,
      "RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed. " },
    { FRAMES RESET DURING FRAMES
      "RuntimeError: DataLoader worker (pid(s) 9, 10) exited "
      "unexpectedly\n" DURING FRAMES "Error: step failed\n",
      FAILURE_ORIGIN_OWN,
      "RuntimeError: DataLoader worker (pid(s) 9, 10) exited unexpectedly" },
    /* an error that was handled before is not it */
    { FRAMES "ValueError: skipped\nnext\n" FRAMES RESET, FAILURE_ORIGIN_PEER,
      "ConnectionResetError: [Errno 104] Connection reset by peer" },
    /* threads, children and destructors only if the main thread says nothing */
    { FRAMES "ValueError: bad\nException in thread pin:\n" FRAMES RESET,
      FAILURE_ORIGIN_OWN, "ValueError: bad" },
    { "Exception in thread pin:\n" FRAMES RESET FRAMES "ValueError: bad\n",
      FAILURE_ORIGIN_OWN, "ValueError: bad" },
    { "Exception in thread a:\n" FRAMES
      "KeyError: 'x'\nException in thread b:\n" FRAMES RESET,
      FAILURE_ORIGIN_OWN, "KeyError: 'x'" },
    { FRAMES "ValueError: bad\nException ignored in: <function f>\n" FRAMES RESET,
      FAILURE_ORIGIN_OWN, "ValueError: bad" },
    { FRAMES "ValueError: bad\nProcess Loader-1:\n" FRAMES RESET, FAILURE_ORIGIN_OWN,
      "ValueError: bad" },
    /* what is logged after the error is not part of it */
    { FRAMES "ValueError: bad\n[W1122 a.cpp:1] Connection closed by peer\n",
      FAILURE_ORIGIN_OWN, "ValueError: bad" },
    { FRAMES "RuntimeError: of peers\n[\nBroken pipe\n]\n", FAILURE_ORIGIN_PEER,
      "Broken pipe" },
    /* programs in C, which name other ranks than their own */
    { "a.out: rank 0 (pid 7) is gone: it ended during or before all_reduce #4\n",
      FAILURE_ORIGIN_PEER,
      "a.out: rank 0 (pid 7) is gone: it ended during or before all_reduce #4" },
    { "a.out: rank 0: loss is NaN\n", FAILURE_ORIGIN_PEER,
      "a.out: rank 0: loss is NaN" },
    { "train: rank 1: loss is NaN\n", FAILURE_ORIGIN_OWN,
      "train: rank 1: loss is NaN" },
    { "train: rank 1: rank 12: loss is NaN\n", FAILURE_ORIGIN_PEER,
      "train: rank 1: rank 12: loss is NaN" },
    { "terminate called after throwing an instance of 'gloo::IoException'\n  what():  "
      "Connection closed by peer [10.0.0.1]:1\n\nFatal Python error: Aborted\n\n"
      "Thread 1:\n  File \"a\"\n  File \"b\"\n  File \"c\"\n  File \"d\"\n  File "
      "\"e\"\n"
      "  File \"f\"\n  File \"g\"\n  File \"h\"\n",
      FAILURE_ORIGIN_PEER, "what():  Connection closed by peer [10.0.0.1]:1" },
    /* long ago in the output */
    { "Connection refused, trying again\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\nloss is NaN\n",
      FAILURE_ORIGIN_OWN, "loss is NaN" },
};

TEST_EACH(the_output_tells_who_failed, written)
{
    struct failure f = {
        .kind = FAILURE_EXIT, .code = 1, .rank = 1, .at_ms = ENDED_MS
    };
    struct failure_output out = { written[_i].text, NULL, ENDED_MS - 10,
                                  ENDED_MS - 20 };

    failure_origin_read(&f, &out);
    ck_assert_msg(f.origin == written[_i].origin, "%s", written[_i].text);
    ck_assert_str_eq(f.error, written[_i].error);
}

/* The same text, after which a worker ended in another way. */
static const struct {
    enum failure_kind kind;
    int32_t code;
    enum failure_origin origin;
} ends[] = {
    { FAILURE_EXIT, 1, FAILURE_ORIGIN_PEER },
    { FAILURE_SIGNAL, SIGABRT, FAILURE_ORIGIN_PEER },
    { FAILURE_SIGNAL, SIGKILL, FAILURE_ORIGIN_OWN },
    { FAILURE_SIGNAL, SIGSEGV, FAILURE_ORIGIN_OWN },
    { FAILURE_SIGNAL, SIGTERM, FAILURE_ORIGIN_OWN },
    { FAILURE_EXEC, 2, FAILURE_ORIGIN_OWN },
};

TEST_EACH(a_signal_other_than_abort_tells_enough, ends)
{
    struct failure f = { .kind = ends[_i].kind,
                         .code = ends[_i].code,
                         .at_ms = ENDED_MS };

    failure_origin_read(&f,
                        &(struct failure_output){ FRAMES RESET, NULL, ENDED_MS, 0 });
    ck_assert_int_eq(f.origin, ends[_i].origin);
}

TEST(a_broken_pipe_needs_no_text)
{
    struct failure by_signal = { .kind = FAILURE_SIGNAL, .code = SIGPIPE };
    struct failure by_shell = { .kind = FAILURE_EXIT, .code = 128 + SIGPIPE };
    struct failure_output out = { "", NULL, 0, 0 };

    failure_origin_read(&by_signal, &out);
    failure_origin_read(&by_shell, &out);
    ck_assert_int_eq(by_signal.origin, FAILURE_ORIGIN_PEER);
    ck_assert_int_eq(by_shell.origin, FAILURE_ORIGIN_PEER);
}

TEST(the_time_of_the_error_counts_before_that_of_the_end)
{
    struct failure f = { .kind = FAILURE_EXIT,
                         .code = 1,
                         .at_ms = ENDED_MS,
                         .wall_ms = 70000,
                         .ran_ms = 400 };
    struct failure_output out = { FRAMES "ValueError: bad\n", NULL, ENDED_MS - 10,
                                  ENDED_MS - 500 };

    failure_origin_read(&f, &out);
    ck_assert_uint_eq(f.at_ms, ENDED_MS - 500);
    ck_assert_uint_eq(f.wall_ms, 70000 - 500); /* what users see is in the same order */
    ck_assert_uint_eq(f.ran_ms, 0);
    f.at_ms = ENDED_MS;
    out.text = "step 39\n"; /* may be no error */
    out.traceback_ms = 0;
    failure_origin_read(&f, &out);
    ck_assert_uint_eq(f.at_ms, ENDED_MS);
}

TEST(a_summary_stands_for_a_traceback_that_was_cut)
{
    struct failure f = { .kind = FAILURE_EXIT, .code = 1, .at_ms = ENDED_MS };
    struct failure_output out = { "frame #1: a\nframe #2: b\n",
                                  "DistNetworkError: failed to recv, got 0 bytes",
                                  ENDED_MS, ENDED_MS };

    failure_origin_read(&f, &out);
    ck_assert_int_eq(f.origin, FAILURE_ORIGIN_PEER);
    f.origin = FAILURE_ORIGIN_OWN;
    out.text = FRAMES "ValueError: bad\n";
    f.error[0] = '\0';
    failure_origin_read(&f, &out);
    ck_assert_int_eq(f.origin, FAILURE_ORIGIN_OWN);
}

TEST(what_was_written_long_ago_tells_nothing)
{
    struct failure f = { .kind = FAILURE_EXIT, .code = 1, .at_ms = ENDED_MS };
    struct failure_output out = { FRAMES "ValueError: handled\n" RESET, NULL, ENDED_MS,
                                  ENDED_MS - ERROR_AGE_MAX_MS - 1 };

    failure_origin_read(&f, &out);
    ck_assert_int_eq(f.origin, FAILURE_ORIGIN_PEER); /* by its last words */
    f.origin = FAILURE_ORIGIN_OWN;
    f.at_ms = ENDED_MS;
    out.written_ms = ENDED_MS - LAST_TRACEBACK_AGE_MAX_MS - 1;
    out.traceback_ms = out.written_ms - 1;
    failure_origin_read(&f, &out);
    ck_assert_int_eq(f.origin, FAILURE_ORIGIN_OWN);
    ck_assert_uint_eq(f.at_ms, ENDED_MS);
}

/* The end of an interpreter takes long. */
TEST(a_traceback_after_which_nothing_came_tells_longer)
{
    struct failure f = { .kind = FAILURE_EXIT, .code = 1, .at_ms = ENDED_MS };
    struct failure_output out = { FRAMES RESET, NULL, ENDED_MS - ERROR_AGE_MAX_MS - 1,
                                  ENDED_MS - ERROR_AGE_MAX_MS - 2 };

    failure_origin_read(&f, &out);
    ck_assert_int_eq(f.origin, FAILURE_ORIGIN_PEER);
    ck_assert_uint_eq(f.at_ms, out.traceback_ms);
    f = (struct failure){ .kind = FAILURE_EXIT, .code = 1, .at_ms = ENDED_MS };
    out.traceback_ms -= TRACEBACK_AGE_MAX_MS; /* the program went on */
    failure_origin_read(&f, &out);
    ck_assert_int_eq(f.origin, FAILURE_ORIGIN_OWN);
    ck_assert_uint_eq(f.at_ms, ENDED_MS);
}
