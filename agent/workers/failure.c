/* SPDX-License-Identifier: MIT */
#include "agent/workers/failure.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/registry/job_end.h"

#define ERROR_FILE_MAX_BYTES (1 << 20)
#define REPORT_LINES 20

/* -- descriptions --------------------------------------------------------------- */

/* A worker's end: its exit code or signal. */
static char *format_end(const struct failure *f, char *buf, size_t size)
{
    const char *name = text_signal(f->code);

    if (f->kind == FAILURE_EXIT)
        snprintf(buf, size, "exit code %" PRId32, f->code);
    else
        snprintf(buf, size, "killed by %s%s%s%s", name ? "SIG" : "signal ",
                 name ? name : "?", f->out_of_memory ? ", out of memory" : "",
                 f->core_dumped ? ", core dumped" : "");
    return buf;
}

char *failure_what(const struct failure *f, char *buf, size_t size)
{
    switch (f->kind) {
    case FAILURE_EXIT:
    case FAILURE_SIGNAL:
        if (*f->what)
            snprintf(buf, size, "%s", f->what);
        else
            format_end(f, buf, size);
        break;
    case FAILURE_EXEC:
        snprintf(buf, size, "could not be started: %s",
                 *f->what ? f->what : strerror(f->code));
        break;
    case FAILURE_LOST:
        snprintf(buf, size, "the node was lost");
        break;
    case FAILURE_HANG:
        snprintf(buf, size, "%s", *f->what ? f->what : "no progress");
        break;
    default:
        snprintf(buf, size, "%s", *f->what ? f->what : "the agent failed");
    }
    return buf;
}

/* Hints for errors whose name does not suggest a remedy. */
static const struct {
    int errnum;
    const char *text;
} exec_hints[] = {
    { ENOENT, " (the interpreter or loader that it asks for is missing)" },
    { ENOEXEC, " (neither a program for this machine nor a script with a #! line)" },
    { EACCES, " (its interpreter is not executable, or is mounted noexec)" },
    { EAGAIN, " (no more processes: ulimit -u, or the cgroup's pids.max)" },
    { E2BIG, " (arguments and environment are too long)" },
};

void failure_set_not_executed(struct failure *f, const char *what, int errnum)
{
    const char *hint = "";

    for (size_t i = 0; i < sizeof(exec_hints) / sizeof(*exec_hints); i++)
        if (exec_hints[i].errnum == errnum)
            hint = exec_hints[i].text;
    f->kind = FAILURE_EXEC;
    f->code = errnum;
    f->final = true;
    snprintf(f->what, sizeof(f->what), "%s: %s%s", what, strerror(errnum), hint);
}

/* The list contains exit codes in the form of crun's own: "2,137". */
bool failure_is_final(const struct failure *f, const struct job_config *job)
{
    const char *at = job->no_restart_on;

    if (f->kind != FAILURE_EXIT && f->kind != FAILURE_SIGNAL)
        return false;
    if (job_exit_code(f) == EXIT_CODE_FINAL)
        return true;
    while (*at) {
        char *end;

        if (strtol(at, &end, 10) == job_exit_code(f))
            return true;
        at = *end ? end + 1 : end;
    }
    return false;
}

/* -- error files ---------------------------------------------------------------- */

/* The whole file as text, or NULL. Does not follow a symbolic link. */
static char *read_error_file(const char *path)
{
    int fd = *path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    char *text;

    if (fd < 0)
        return NULL;
    text = xmalloc(ERROR_FILE_MAX_BYTES + 1);
    fd_read_all(fd, text, ERROR_FILE_MAX_BYTES + 1);
    close(fd);
    return text;
}

uint64_t failure_error_file_time(const char *path)
{
    struct stat st;

    if (!*path || lstat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
        return 0;
    return (uint64_t)st.st_mtim.tv_sec * 1000 + (uint64_t)st.st_mtim.tv_nsec / 1000000;
}

static const char *get_json_text(const cJSON *o, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, name));

    return text ? text : "";
}

/* The end of a long text matters most: cuts the front, at a line. */
static void copy_end(char *out, size_t size, const char *text)
{
    size_t len = strlen(text);
    const char *start = len < size ? text : text + len - (size - 1);
    const char *line = start == text ? start : strchr(start, '\n');

    snprintf(out, size, "%s", line && line > text && line[1] ? line + 1 : start);
}

/* Either form: {"message": {"message": ..., "extraInfo": ...}} or {"message": ...}. */
static bool read_message(const cJSON *root, struct error_file *t)
{
    const cJSON *message = cJSON_GetObjectItemCaseSensitive(root, "message");
    const cJSON *time = cJSON_GetObjectItemCaseSensitive(root, "timestamp");
    const cJSON *extra;
    const char *error;

    if (cJSON_IsString(message)) {
        copy_end(t->text, sizeof(t->text), message->valuestring);
        t->time_ms = cJSON_IsNumber(time) ? (uint64_t)(time->valuedouble * 1000) : 0;
        return true;
    }
    if (!cJSON_IsObject(message))
        return false;
    extra = cJSON_GetObjectItemCaseSensitive(message, "extraInfo");
    t->time_ms = strtoull(get_json_text(extra, "timestamp"), NULL, 10) * 1000;
    error = get_json_text(message, "message");
    snprintf(t->message, sizeof(t->message), "%.*s", (int)strcspn(error, "\n"), error);
    copy_end(t->text, sizeof(t->text),
             *get_json_text(extra, "py_callstack")
                 ? get_json_text(extra, "py_callstack")
                 : error);
    return true;
}

static void read_verdict(const cJSON *root, struct error_file *file)
{
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(root, PREFLIGHT_KEY);
    const cJSON *verdict = cJSON_GetObjectItemCaseSensitive(o, PREFLIGHT_VERDICT_KEY);
    const cJSON *errnum = cJSON_GetObjectItemCaseSensitive(o, PREFLIGHT_ERRNO_KEY);

    if (!cJSON_IsNumber(verdict))
        return;
    if (verdict->valueint == PREFLIGHT_UNFIT) {
        file->verdict = PREFLIGHT_UNFIT;
    } else if (verdict->valueint == PREFLIGHT_NOT_EXECUTED && cJSON_IsNumber(errnum)) {
        file->verdict = PREFLIGHT_NOT_EXECUTED;
        file->exec_errno = errnum->valueint;
    }
}

/* The time in the file has whole seconds; that of the file itself may be another
 * machine's. */
static void refine_time(const char *path, struct error_file *file)
{
    uint64_t written = failure_error_file_time(path);

    if (file->time_ms <= written && written < file->time_ms + 2000)
        file->time_ms = written;
}

bool failure_read_error_file(const char *path, struct error_file *file)
{
    char *raw = read_error_file(path);
    cJSON *root = raw ? cJSON_Parse(raw) : NULL;
    bool understood;

    *file = (struct error_file){ 0 };
    understood = root && read_message(root, file) && *file->text;
    if (understood) {
        read_verdict(root, file);
        refine_time(path, file);
    }
    cJSON_Delete(root);
    free(raw);
    return understood;
}

void failure_describe_end(struct failure *f, const char *message)
{
    char end[64];

    if (*f->what)
        return;
    snprintf(f->what, sizeof(f->what), "%s%s%s", format_end(f, end, sizeof(end)),
             *message ? ": " : "", message);
}

/* The worker's own description of its error, or how it ended. */
static const char *find_own_message(const struct failure *f)
{
    char end[64];
    size_t length = strlen(format_end(f, end, sizeof(end)));

    if ((f->kind == FAILURE_EXIT || f->kind == FAILURE_SIGNAL) &&
        strncmp(f->what, end, length) == 0 && strncmp(f->what + length, ": ", 2) == 0)
        return f->what + length + 2;
    return f->what;
}

void failure_set_of_agent(struct failure *f, uint32_t rank, const char *why, bool final)
{
    f->kind = FAILURE_AGENT;
    f->final = final;
    f->rank = rank;
    f->at_ms = clock_ms();
    f->wall_ms = clock_wall_ms();
    snprintf(f->what, sizeof(f->what), "%s", why);
}

void failure_write_error_file(const char *path, const struct failure *f)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *message = cJSON_AddObjectToObject(root, "message");
    cJSON *extra;
    char *text, seconds[32];
    int fd;

    cJSON_AddStringToObject(message, "message", find_own_message(f));
    extra = cJSON_AddObjectToObject(message, "extraInfo");
    cJSON_AddStringToObject(extra, "py_callstack", f->said);
    snprintf(seconds, sizeof(seconds), "%" PRIu64, f->wall_ms / 1000);
    cJSON_AddStringToObject(extra, "timestamp", seconds);
    cJSON_AddNumberToObject(message, "errorCode", job_exit_code(f));
    text = text_printable_json(cJSON_PrintUnformatted(root));
    fd = text ? fd_create_file(path, O_TRUNC, 0600) : -1;
    if (fd >= 0) {
        size_t size = strlen(text);

        fd_write_all(fd, text, &size);
        close(fd);
    }
    free(text);
    cJSON_Delete(root);
}

/* -- the list ------------------------------------------------------------------- */

void failure_list_add(struct failure_list *l, const struct failure *f)
{
    l->item = xrealloc(l->item, (l->count + 1) * sizeof(*l->item));
    l->item[l->count++] = *f;
}

void failure_list_clear(struct failure_list *l)
{
    free(l->item);
    *l = (struct failure_list){ NULL, 0 };
}

/* -- the report ----------------------------------------------------------------- */

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
        format_end(f, what, sizeof(what));
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

int failure_exit_code(const struct msg_done *done)
{
    bool is_fine = done->reason == JOB_REASON_SUCCESS ||
                   done->reason == JOB_REASON_RELEASED;

    if (done->exit_code >= 1 && done->exit_code <= 255)
        return done->exit_code;
    return done->exit_code == 0 && is_fine ? EXIT_SUCCESS : EXIT_FAILURE;
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
