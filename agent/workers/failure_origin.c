/* SPDX-License-Identifier: MIT */
#include "agent/workers/failure_origin.h"

#include <ctype.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/workers/limits.h"
#include "rendezvous/common/base/text.h"

/*
 * Messages of programs whose peer, another rank, has ended or does not answer. Case
 * does not matter; # matches the number of a rank other than the worker's own.
 */
static const char *const consequences[] = {
    /* strerror of glibc, and with it gloo, NCCL, Python and the worker library */
    "connection reset by peer",
    "broken pipe",
    "connection refused",
    "connection timed out",
    "transport endpoint is not connected",
    "software caused connection abort",

    /* Python 3: exceptions of its sockets, and asyncio's of a stream that ends */
    "ConnectionResetError",
    "ConnectionAbortedError",
    "ConnectionRefusedError",
    "BrokenPipeError",
    "asyncio.exceptions.IncompleteReadError",

    /* gloo of PyTorch 2.2 to 2.15: transport/tcp/pair.cc, unbound_buffer.cc, context.cc
     */
    "connection closed by peer",
    "remote peer closed the connection",
    "caused by a remote worker crashing",
    "socket closed [",
    "application timeout caused pair closure",
    "timed out waiting ",
    "gloo connectFullMesh failed",

    /* PyTorch 2.2 to 2.15: TCPStore.cpp, socket.cpp, ProcessGroupGloo.cpp */
    "DistNetworkError",
    "connection was likely closed",
    "did the remote server shutdown or crash",
    "the client socket has failed to connect",
    "the client socket has timed out",
    "TCP client failed to connect/validate",
    "seconds waiting for clients",
    "wait timeout after ",
    "socket timeout",
    "timed out in monitoredBarrier",
    "failed to pass monitoredBarrier",

    /* PyTorch 2.2 to 2.15: ProcessGroupNCCL.cpp and NCCLUtils.hpp */
    "remote process exiting prematurely",
    "NCCL communicator was aborted",
    "watchdog caught collective operation timeout",
    "some NCCL operations have failed or timed out",
    "remote error detected from rank",

    /* NCCL 2.19 to 2.29: init.cc (ncclGetErrorString), misc/socket.cc */
    "remote process exited or there was a network error",
    "connection closed by remote peer",

    /* MPICH 3 and 4 (ch3), UCX 1.x (ucs_status_string), Open MPI 4 and 5 (mpirun) */
    "communication error with rank #",
    "connection reset by remote peer",
    "endpoint timeout",
    "has lost communication with a remote daemon",

    /* the worker library: CRUN_PEER_LOST, CRUN_TIMEOUT of the store, CRUN_ABORTED */
    "rank # is gone",
    "rank # (pid ",
    "rank # has left",
    "cannot connect to rank #",
    "the store at ",
    "rank #: ",
};

/* PyTorch reads from a connection to it: a chain begins with an error of that. */
static const char own_process[] = "DataLoader worker (pid";

/* Shells exit with this for a command that SIGPIPE has killed. */
#define EXIT_SIGPIPE (128 + SIGPIPE)

#define LINE_MAX_BYTES 1023
#define LAST_LINES 10
#define ERROR_LINES 4 /* of a traceback; C++ adds its own frames */

/* -- the table ------------------------------------------------------------------ */

/* text begins with a number, other than own; end: where it ends. */
static bool is_other_rank(const char *text, uint32_t own, const char **end)
{
    char *after;
    unsigned long rank;

    if (!isdigit((unsigned char)*text))
        return false;
    rank = strtoul(text, &after, 10);
    *end = after;
    return rank != own;
}

static bool line_has(const char *line, const char *wanted, uint32_t own)
{
    const char *hash = strchr(wanted, '#'), *after;
    char head[64];

    if (!hash)
        return strcasestr(line, wanted) != NULL;
    snprintf(head, sizeof(head), "%.*s", (int)(hash - wanted), wanted);
    while ((line = strcasestr(line, head)) != NULL) {
        line += strlen(head);
        if (is_other_rank(line, own, &after) &&
            strncasecmp(after, hash + 1, strlen(hash + 1)) == 0)
            return true;
    }
    return false;
}

static bool is_consequence(const char *line, uint32_t own)
{
    for (size_t i = 0; i < sizeof(consequences) / sizeof(consequences[0]); i++)
        if (line_has(line, consequences[i], own))
            return true;
    return false;
}

/* -- lines ---------------------------------------------------------------------- */

struct line {
    char bytes[LINE_MAX_BYTES + 1];
    const char *next; /* of the whole text; NULL: this was the last one */
};

/* PyTorch 2.4 and newer put this before each line of a traceback: "[rank0]: ". */
static const char *skip_rank(const char *at, const char *end)
{
    const char *digit = at;

    if (end - at < 8 || strncmp(at, "[rank", 5) != 0)
        return at;
    for (digit += 5; digit < end && isdigit((unsigned char)*digit);)
        digit++;
    if (end - digit < 2 || digit[0] != ']' || digit[1] != ':')
        return at;
    digit += 2;
    return digit < end && *digit == ' ' ? digit + 1 : digit;
}

/* The line at `at`, without the mark of its rank. */
static void read_output_line(const char *at, struct line *line)
{
    const char *end = at + strcspn(at, "\n"), *start = skip_rank(at, end);

    snprintf(line->bytes, sizeof(line->bytes), "%.*s", (int)(end - start), start);
    line->next = *end ? end + 1 : NULL;
}

static bool line_begins(const struct line *line, const char *with)
{
    return strncmp(line->bytes, with, strlen(with)) == 0;
}

/* -- tracebacks of Python --------------------------------------------------------- */

/*
 * The error of a chain of tracebacks ("During handling of the above exception ...") is
 * that of its first one, unless a later one tells of an own process. What a thread, a
 * child or a destructor reports is beside the point if the main thread reports too: the
 * loader's threads of a rank that raises often end with errors of their connections.
 */
enum report { REPORT_NONE, REPORT_MAIN, REPORT_THREAD, REPORT_ASIDE };

struct tracebacks {
    enum report report;                  /* whose the traceback is that is read */
    bool in_frames;                      /* its error has not come yet */
    bool is_chained;                     /* it follows from the one before */
    const char *error[REPORT_ASIDE + 1]; /* in the whole text; NULL: none */
    const char *error_end[REPORT_ASIDE + 1];
    bool open; /* lines still belong to the error of `report` */
};

static enum report report_after(const struct line *before)
{
    if (line_begins(before, "Exception in thread "))
        return REPORT_THREAD;
    if (line_begins(before, "Exception ignored in") || line_begins(before, "Process "))
        return REPORT_ASIDE;
    return REPORT_MAIN;
}

static bool line_links_chain(const struct line *line)
{
    return line_begins(line, "During handling of the above exception") ||
           line_begins(line, "The above exception was the direct cause");
}

static void close_error(struct tracebacks *t, const char *at)
{
    if (t->open)
        t->error_end[t->report] = at;
    t->open = false;
}

/* The first error of a thread counts, and the last one of the main thread. */
static void open_error(struct tracebacks *t, const char *at, const struct line *line)
{
    t->in_frames = false;
    if ((t->is_chained && !strstr(line->bytes, own_process)) ||
        (t->report == REPORT_THREAD && t->error[REPORT_THREAD]))
        return;
    t->error[t->report] = at;
    t->open = true;
}

static void read_traceback_line(struct tracebacks *t, const char *at,
                                const struct line *line, const struct line *before)
{
    if (line_links_chain(line) || line_begins(line, "Traceback (most recent call") ||
        line_begins(line, "Exception in thread ") ||
        line_begins(line, "Exception ignored in") ||
        line_begins(line, "Fatal Python error: "))
        close_error(t, at);
    if (line_links_chain(line)) {
        t->is_chained = t->report != REPORT_NONE;
    } else if (line_begins(line, "Traceback (most recent call last):")) {
        if (!t->is_chained)
            t->report = report_after(before);
        t->in_frames = true;
    } else if (t->in_frames && *line->bytes && *line->bytes != ' ') {
        open_error(t, at, line);
        t->is_chained = false;
    }
}

/* -- the part of the text that tells the error ------------------------------------ */

struct error_part {
    const char *start, *end; /* NULL: none */
    bool is_traceback;
};

static struct error_part find_traceback(const char *text)
{
    struct tracebacks t = { 0 };
    struct line line, before = { .bytes = "" };
    enum report found;

    for (const char *at = text; at; at = line.next) {
        read_output_line(at, &line);
        read_traceback_line(&t, at, &line, &before);
        if (*line.bytes)
            before = line;
    }
    close_error(&t, text + strlen(text));
    found = t.error[REPORT_MAIN] ? REPORT_MAIN : REPORT_THREAD;
    return (struct error_part){ t.error[found], t.error_end[found],
                                t.error[found] != NULL };
}

/* Where the program's own last words end: before a dump of its stacks. */
static const char *find_dump(const char *text)
{
    struct line line;

    for (const char *at = text; at; at = line.next) {
        read_output_line(at, &line);
        if (line_begins(&line, "Fatal Python error: ") ||
            line_begins(&line, "*** Aborted at ") ||
            line_begins(&line, "*** Process received signal"))
            return at;
    }
    return text + strlen(text);
}

static struct error_part find_last_words(const char *text)
{
    const char *end = find_dump(text), *start = end;
    unsigned lines = 0;

    if (start > text)
        start--; /* the newline at the end */
    while (start > text && lines < LAST_LINES)
        if (*--start == '\n' && ++lines == LAST_LINES)
            start++;
    return (struct error_part){ start, end, false };
}

/* -- the verdict ------------------------------------------------------------------ */

static void keep_error(struct failure *f, const char *line)
{
    while (*line == ' ' || *line == '\t')
        line++;
    text_printable(line, f->error, sizeof(f->error));
}

/* Lines that are logged after a traceback do not belong to its error. */
static bool is_past_error(const struct line *line, unsigned number)
{
    return number >= ERROR_LINES || (number > 0 && !*line->bytes) ||
           (line->bytes[0] == '[' && line->bytes[1] && strchr("IWEF", line->bytes[1]));
}

/* The error is the line that tells a consequence, or else the first line of a
 * traceback's error, or the last of other words. */
static void judge_part(struct failure *f, const struct error_part *part)
{
    unsigned number = 0;
    struct line line;

    for (const char *at = part->start; at && at < part->end; at = line.next) {
        read_output_line(at, &line);
        if (part->is_traceback && is_past_error(&line, number++))
            return;
        if (*line.bytes && (!part->is_traceback || !*f->error))
            keep_error(f, line.bytes);
        if (is_consequence(line.bytes, f->rank)) {
            keep_error(f, line.bytes);
            f->origin = FAILURE_ORIGIN_PEER;
            return;
        }
    }
}

bool failure_needs_text(const struct failure *f)
{
    return f->kind == FAILURE_EXIT ||
           (f->kind == FAILURE_SIGNAL && (f->code == SIGABRT || f->code == SIGPIPE));
}

/* A time at which the error may have been written; 0: not known. */
static bool is_fresh(uint64_t ms, const struct failure *f,
                     const struct failure_output *output)
{
    bool wrote_more = output->written_ms > output->traceback_ms + TRACEBACK_AGE_MAX_MS;

    return !ms ||
           ms + (wrote_more ? ERROR_AGE_MAX_MS : LAST_TRACEBACK_AGE_MAX_MS) >= f->at_ms;
}

void failure_origin_read(struct failure *f, const struct failure_output *output)
{
    const char *text = output->text;
    struct error_part part = find_traceback(text);
    uint64_t wrote_ms = output->traceback_ms ? output->traceback_ms
                                             : output->written_ms;

    if (part.start && !is_fresh(wrote_ms, f, output)) /* of an error that was handled */
        part.start = NULL;
    if (!part.start) {
        wrote_ms = output->written_ms;
        text = output->summary ? output->summary : text;
        part = find_last_words(text);
    }
    if (failure_needs_text(f) && *text && is_fresh(wrote_ms, f, output)) {
        judge_part(f, &part);
        if (output->traceback_ms && is_fresh(output->traceback_ms, f, output)) {
            uint64_t ms = output->traceback_ms < f->at_ms
                              ? f->at_ms - output->traceback_ms
                              : 0;

            f->at_ms -= ms;
            f->wall_ms -= ms;
            f->ran_ms -= ms < f->ran_ms ? ms : f->ran_ms;
        }
    }
    if ((f->kind == FAILURE_SIGNAL && f->code == SIGPIPE) ||
        (f->kind == FAILURE_EXIT && f->code == EXIT_SIGPIPE))
        f->origin = FAILURE_ORIGIN_PEER;
}
