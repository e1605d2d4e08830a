/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ended_logs.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/crunctl/ctl_jobs.h"
#include "launcher/crunctl/ui/log_lines.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/rank_ranges.h"

#define PART_BYTES 65536

/* The numbers N of the entries <prefix>N, as ranges; none if there is no folder. */
static void list_numbers(const char *folder, const char *prefix,
                         struct rank_ranges *numbers)
{
    DIR *d = opendir(folder);
    struct dirent *entry;

    while (d && (entry = readdir(d))) {
        const char *digits = entry->d_name + strlen(prefix);

        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && *digits &&
            digits[strspn(digits, "0123456789")] == '\0' && strlen(digits) < 9)
            rank_ranges_add(numbers, (uint32_t)atol(digits), (uint32_t)atol(digits));
    }
    if (d)
        closedir(d);
}

/* Where the last *lines lines begin; *lines becomes how many are not in the file. */
static off_t find_tail(int fd, off_t size, long long *lines)
{
    char *part = xmalloc(PART_BYTES);
    off_t at = *lines > 0 ? size : 0, found = *lines > 0 ? 0 : size;

    while (at > 0 && *lines > 0) {
        off_t from = at > PART_BYTES ? at - PART_BYTES : 0;
        ssize_t n = pread(fd, part, (size_t)(at - from), from);

        for (; n > 0 && *lines > 0; n--)
            if (part[n - 1] == '\n' && from + n < size && --*lines == 0)
                found = from + n;
        at = from;
    }
    free(part);
    *lines -= *lines > 0 && size > 0; /* its first one */
    return found;
}

/* A file of that user, or -1. The user has named the folder, and may have put a link to
 * another one there. */
static int open_file(const char *path, uid_t owner, off_t *size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;

    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
                    (owner != geteuid() && st.st_uid != owner))) {
        close(fd);
        fd = -1;
    }
    *size = fd >= 0 ? st.st_size : 0;
    return fd;
}

static void show_file(int fd, off_t at, const struct log_lines_style *style)
{
    struct log_lines lines = { .size = 0 };
    char *part = xmalloc(PART_BYTES);
    ssize_t n;

    while ((n = pread(fd, part, PART_BYTES, at)) > 0 && !ferror(stdout)) {
        log_lines_add(&lines, style, (uint64_t)at, part, (size_t)n);
        at += n;
    }
    log_lines_finish(&lines, style);
    fflush(stdout);
    free(part);
}

/* The stream's file and, with --log-max-size, what came before. False: there is
 * nothing. */
static bool show_stream_files(const char *path, const struct log_lines_style *style,
                              long long tail, uid_t owner)
{
    char *older = xasprintf("%s.1", path);
    off_t size[2], at[2] = { 0, 0 };
    int fd[2] = { open_file(path, owner, &size[0]), open_file(older, owner, &size[1]) };

    for (int i = 0; i < 2 && tail >= 0; i++)
        at[i] = find_tail(fd[i], size[i], &tail);
    for (int i = 1; i >= 0; i--)
        if (fd[i] >= 0) {
            show_file(fd[i], at[i], style);
            close(fd[i]);
        }
    free(older);
    return size[0] > 0 || size[1] > 0;
}

static bool show_rank_files(const struct ctl_options *o, const char *attempt,
                            struct log_lines_style style, uid_t owner)
{
    bool any = false;

    for (int k = 0; k < 2; k++) {
        char *path = xasprintf("%s/%" PRIu32 "/%s", attempt, style.rank,
                               k ? "stderr.log" : "stdout.log");

        style.error = k == 1;
        if (k ? !o->only_stdout : !o->only_stderr)
            any |= show_stream_files(path, &style, o->tail, owner);
        free(path);
    }
    return any;
}

static bool show_attempt(const struct ctl_options *o, const struct ctl_job *job,
                         uint32_t number, const struct rank_ranges *wanted)
{
    char *attempt = xasprintf("%s/attempt_%" PRIu32, job->log_dir, number);
    struct rank_ranges ranks = { .count = 0 };
    struct log_lines_style style = { .epoch = number + 1, .json = o->json };
    bool any = false;

    list_numbers(attempt, "", &ranks);
    style.prefix = rank_ranges_size(wanted->count ? wanted : &ranks) > 1;
    for (unsigned i = 0; i < ranks.count; i++)
        for (uint32_t r = ranks.range[i].first; r <= ranks.range[i].last; r++) {
            style.rank = r;
            if (!wanted->count || rank_ranges_have(wanted, r))
                any |= show_rank_files(o, attempt, style, job->uid);
        }
    rank_ranges_fini(&ranks);
    free(attempt);
    return any;
}

/* Of a job that has run elsewhere. */
static int set_outputs(const struct ctl_job *job, struct err *e)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(job->record, "outputs"), *item;
    char text[400] = "";
    size_t used = 0;

    cJSON_ArrayForEach(item, list)
    {
        const char *at = cJSON_GetStringValue(item);

        if (at && used + strlen(at) + 3 < sizeof(text))
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
                                     used ? ", " : "", at);
    }
    err_set(e, "job \"%s\" has ended; its output is in %s", job->name, text);
    return CTL_EXIT_REFUSED;
}

int ended_logs_show(const struct ctl_options *o, const struct ctl_job *job,
                    struct err *e)
{
    struct rank_ranges wanted = { .count = 0 }, attempts = { .count = 0 };
    bool any = false;

    if (ctl_ranks_parse(o, &wanted, e) < 0)
        return CTL_EXIT_USAGE;
    if (*job->command) {
        rank_ranges_fini(&wanted);
        return set_outputs(job, e);
    }
    if (*job->log_dir)
        list_numbers(job->log_dir, "attempt_", &attempts);
    if (job->nodes > 1)
        log_info("only the log files of this machine are shown, and its workers are "
                 "numbered from 0; the other nodes have the rest");
    if (attempts.count > 0)
        any = show_attempt(o, job, attempts.range[attempts.count - 1].last, &wanted);
    rank_ranges_fini(&wanted);
    rank_ranges_fini(&attempts);
    if (any)
        return CTL_EXIT_OK;
    err_set(e,
            "job \"%s\" has ended, and there are no log files of it: --log-dir with "
            "--redirects or --tee keeps them",
            job->name);
    return CTL_EXIT_REFUSED;
}
