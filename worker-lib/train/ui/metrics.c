/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/ui/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/fd.h"

static FILE *open_metrics(const char *path)
{
    int fd = fd_create_file(path, O_APPEND, 0666);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "a");

    if (fd >= 0 && !file)
        close(fd);
    return file;
}

int metrics_check(const char *path, struct err *e)
{
    FILE *file = open_metrics(path);

    if (!file || fclose(file) != 0)
        return err_set_errno(e, errno, "--metrics: %s", path);
    return 0;
}

static int append_line(const char *path, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int append_line(const char *path, struct err *e, const char *fmt, ...)
{
    FILE *file = open_metrics(path);
    va_list args;
    int written;

    if (!file)
        return err_set_errno(e, errno, "%s", path);
    va_start(args, fmt);
    written = vfprintf(file, fmt, args);
    va_end(args);
    if (fclose(file) != 0 || written < 0)
        return err_set_errno(e, errno, "%s", path);
    return 0;
}

static bool has_line_with(const char *path, const char *beginning)
{
    FILE *file = fopen(path, "re");
    char line[512];
    bool found = false;

    while (file && !found && fgets(line, sizeof(line), file))
        found = strncmp(line, beginning, strlen(beginning)) == 0;
    if (file)
        fclose(file);
    return found;
}

int metrics_append(const char *path, const struct metrics *m, struct err *e)
{
    char results[256];

    snprintf(results, sizeof(results),
             "{\"pass\":%" PRIu64 ",\"step\":%" PRIu64 ",\"train_loss\":%.6f,"
             "\"train_accuracy\":%.6f,\"test_loss\":%.6f,\"test_accuracy\":%.6f,",
             m->pass, m->step, m->train_loss, m->train_accuracy, m->test_loss,
             m->test_accuracy);
    if (m->may_be_there && has_line_with(path, results))
        return 0;
    return append_line(
        path, e,
        "%s\"samples_per_s\":%.1f,\"seconds\":%.3f,"
        "\"communication_s\":%.6f,\"exposed_s\":%.6f,"
        "\"skew_s\":%.6f,\"ranks\":%d,\"restarts\":%d,\"backend\":\"%s\"}\n",
        results, m->samples_per_s, m->seconds, m->communication_s, m->exposed_s,
        m->skew_s, m->ranks, m->restarts, m->backend);
}

int metrics_append_steps(const char *path, const struct metrics_steps *m, struct err *e)
{
    return append_line(path, e,
                       "{\"after\":%" PRIu64 ",\"step\":%" PRIu64
                       ",\"train_loss\":%.6f,\"restarts\":%d,\"time_ms\":%" PRIu64
                       "}\n",
                       m->after, m->step, m->train_loss, m->restarts, m->time_ms);
}

int metrics_append_end(const char *path, uint64_t step, const char *digest,
                       struct err *e)
{
    return append_line(path, e, "{\"step\":%" PRIu64 ",\"parameters_sha256\":\"%s\"}\n",
                       step, digest);
}
