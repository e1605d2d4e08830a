/* SPDX-License-Identifier: MIT */
/* The report at the end of a job. */
#include "agent/workers/failure.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/registry/exit_code.h"

#define REPORT_LINES 20

struct report_style {
    const char *bold, *red, *dim, *off;
};

/* A program's output must not control the terminal. */
static void print_printable(FILE *out, const char *text, size_t len)
{
    for (size_t i = 0, n; i < len; i += n) {
        unsigned char c = (unsigned char)text[i];

        n = text_printable_size(text + i, len - i);
        if (n > 0 || c == '\t')
            fwrite(text + i, n ? n : 1, 1, out);
        else if (c != '\r')
            fprintf(out, "\\x%02x", c);
        n = n ? n : 1;
    }
}

/* Prints the last lines, each after a bar. */
static void print_last_lines(FILE *out, const struct report_style *st,
                             const char *label, const char *text, unsigned most)
{
    const char *start = text + strlen(text);
    unsigned lines = 0;

    if (start == text)
        fprintf(out, "  %-14s  nothing on standard error\n", label);
    if (start > text && start[-1] == '\n')
        start--;
    while (start > text && lines < most)
        if (*--start == '\n' && ++lines == most)
            start++;
    while (*start) {
        size_t len = strcspn(start, "\n");

        fprintf(out, "  %-14s  %s|%s ", label, st->dim, st->off);
        print_printable(out, start, len);
        fputc('\n', out);
        label = "";
        start += len + (start[len] == '\n');
        if (*start == '\n' && !start[1])
            break;
    }
}

/* Prints failures of other nodes, which the rendezvous lists as HOST RANK WHAT. */
static void print_failures_elsewhere(FILE *out, const struct failure_report *r,
                                     const char *label)
{
    size_t length;

    for (const char *at = r->done->afterwards; *at; at += length + (at[length] != 0)) {
        size_t host = strcspn(at, " \n"), rank;

        length = strcspn(at, "\n");
        rank = host < length ? strcspn(at + host + 1, " \n") : 0;
        if (host + 1 + rank >= length ||
            (host == strlen(r->own_host) && strncmp(at, r->own_host, host) == 0))
            continue;
        fprintf(out, "  %-14s  rank ", label);
        print_printable(out, at + host + 1, rank);
        fputs(" on ", out);
        print_printable(out, at, host);
        fputs(": ", out);
        print_printable(out, at + host + rank + 2, length - host - rank - 2);
        fputc('\n', out);
        label = "";
    }
}

/* rank 0: exit code 1, 0.5 s later, "Connection reset by peer": a consequence. What is
 * written earlier is a consequence too: no time, as that is not of its cause. */
static void print_other_failure(FILE *out, const struct failure *f, uint64_t root_ms)
{
    char what[256];

    if (*f->error)
        failure_format_end(f, what, sizeof(what));
    else
        failure_what(f, what, sizeof(what));
    fprintf(out, "rank %" PRIu32 ": ", f->rank);
    print_printable(out, what, strlen(what));
    if (f->wall_ms > root_ms)
        fprintf(out, ", %.1f s later", (double)(f->wall_ms - root_ms) / 1000);
    if (*f->error) {
        fputs(", \"", out);
        print_printable(out, f->error, strlen(f->error));
        fputc('"', out);
    }
    fputs(f->origin == FAILURE_ORIGIN_PEER ? ": a consequence\n" : "\n", out);
}

static void print_other_ranks(FILE *out, const struct failure_report *r)
{
    const struct failure *root = &r->done->failure;
    const char *label = "other ranks";

    for (unsigned i = 0; i < r->others->count; i++) {
        const struct failure *f = &r->others->item[i];

        if (f->rank == root->rank && f->pid == root->pid)
            continue;
        fprintf(out, "  %-14s  ", label);
        print_other_failure(out, f, root->wall_ms);
        label = "";
    }
    print_failures_elsewhere(out, r, label);
}

static void print_first_failure(FILE *out, const struct failure_report *r)
{
    const struct failure *f = &r->done->failure;
    char when[32], age[32];

    fprintf(out, "  %-14s  ", "first failure");
    if (f->kind != FAILURE_LOST && f->kind != FAILURE_AGENT)
        fprintf(out, "rank %" PRIu32 " · local rank %" PRIu32 " · ", f->rank,
                f->local_rank);
    fprintf(out, "node %s", f->host);
    if (f->pid)
        fprintf(out, " · pid %" PRIu32, f->pid);
    fprintf(out, " · %s", clock_format_time(f->wall_ms, when, sizeof(when)));
    if (f->ran_ms)
        fprintf(out, ", %s into epoch %" PRIu64,
                clock_format_duration(f->ran_ms, age, sizeof(age)), r->epoch);
    fputc('\n', out);
}

/* Others see the end of a rank as a closed connection, also if it has ended well. */
static void print_succeeded(FILE *out, const struct failure *f)
{
    if (f->origin != FAILURE_ORIGIN_PEER || f->succeeded == 0)
        return;
    fprintf(out, "  %-14s  rank %" PRIu32, f->again ? "also ended" : "ended before",
            f->succeeded_rank);
    if (f->succeeded > 1)
        fprintf(out, " and %" PRIu32 " more", f->succeeded - 1);
    fputs(", with exit code 0: others see closed connections\n", out);
}

void failure_print_report(const struct failure_report *r, FILE *out)
{
    const struct failure *f = &r->done->failure;
    static const struct report_style plain = { "", "", "", "" },
                                     coloured = { "\033[1m", "\033[31m", "\033[2m",
                                                  "\033[0m" };
    struct report_style st = r->colour ? coloured : plain;
    int code = job_exit_code(f);
    char what[600];

    fprintf(out, "%scrun: %s has failed: %s", st.bold, r->job, st.red);
    print_printable(out, r->done->text, strlen(r->done->text));
    fprintf(out, "%s\n\n", st.off);
    print_first_failure(out, r);
    failure_what(f, what, sizeof(what));
    fprintf(out, "  %-14s  ", "what");
    print_printable(out, what, strlen(what));
    fputc('\n', out);
    if (f->kind == FAILURE_HANG) /* what all ranks did */
        print_last_lines(out, &st, "the ranks", f->said, UINT_MAX);
    else if (*f->said || (f->kind != FAILURE_AGENT && f->kind != FAILURE_LOST))
        print_last_lines(out, &st, "it said", f->said, REPORT_LINES);
    print_succeeded(out, f);
    print_other_ranks(out, r);
    fprintf(out, "  %-14s  %" PRIu32 " of %" PRIu32 " used\n", "restarts",
            r->done->restarts, r->done->max_restarts);
    if (*f->log) {
        fprintf(out, "  %-14s  ", "log");
        print_printable(out, f->log, strlen(f->log));
        fprintf(out, "%s%s%s\n", strcmp(f->host, r->own_host) ? "   (on " : "",
                strcmp(f->host, r->own_host) ? f->host : "",
                strcmp(f->host, r->own_host) ? ")" : "");
    }
    fprintf(out, "\ncrun: exit code %d", r->done->exit_code);
    if (r->done->exit_code == EXIT_CODE_FINAL && code != EXIT_CODE_FINAL)
        fprintf(out, ": do not start it again (--max-no-progress)");
    else if (f->kind == FAILURE_EXIT || f->kind == FAILURE_SIGNAL)
        fprintf(out, ", as rank %" PRIu32 "'s%s", f->rank,
                r->done->exit_code == code ? "" : " was before");
    fputs("\n", out);
    fflush(out);
}

/* Standard error has no buffer, and other processes may write to it meanwhile: by one
 * write the report stays whole. */
static void write_report_at_once(const struct failure_report *r)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    failure_print_report(r, out ? out : stderr);
    if (out && fclose(out) == 0)
        fwrite(text, 1, size, stderr);
    free(text);
}

void failure_report_result(const struct failure_report *r, int exit_code)
{
    const char *error_file = getenv("TORCHELASTIC_ERROR_FILE");
    const struct msg_done *done = r->done;
    struct failure_report report = *r;

    if (done->reason == JOB_REASON_RELEASED) {
        log_info("%s", done->text);
        return;
    }
    if (r->is_first_nodes && !done->reports) /* else the first node is the lost one */
        return;
    if (done->failure.kind == FAILURE_NONE) {
        if (done->reason != JOB_REASON_NONE && exit_code &&
            done->reason != JOB_REASON_USER)
            log_error("%s has failed: %s", r->job, done->text);
        return;
    }
    report.colour = isatty(STDERR_FILENO) && !getenv("NO_COLOR");
    write_report_at_once(&report);
    if (error_file && *error_file)
        failure_write_error_file(error_file, &done->failure);
}
