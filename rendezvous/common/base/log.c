/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/text.h"

#define LINE_MAX_BYTES 2048
#define LIMIT_INTERVAL_MS 1000

static const char *const level_names[LOG_LEVEL_COUNT] = {
    [LOG_ERROR] = "error",
    [LOG_WARN] = "warning",
    [LOG_INFO] = "info",
    [LOG_DEBUG] = "debug",
};

static struct {
    const char *program;
    enum log_level level;
    enum log_format format;
    void (*sink)(void *arg, enum log_level level, const char *line);
    void *sink_arg;
} self = { .program = "crun", .level = LOG_INFO };

void log_init(const char *program, enum log_level level, enum log_format format)
{
    self.program = program;
    self.level = level;
    self.format = format;
}

const char *log_program(void)
{
    return self.program;
}

const char *log_name_of(const char *argv0, const char *otherwise)
{
    const char *slash = argv0 ? strrchr(argv0, '/') : NULL;
    const char *name = slash ? slash + 1 : argv0;

    return name && *name ? name : otherwise;
}

void log_set_sink(void (*sink)(void *, enum log_level, const char *), void *arg)
{
    self.sink = sink;
    self.sink_arg = arg;
}

bool log_enabled(enum log_level level)
{
    return level <= self.level;
}

static void log_write_line(enum log_level level, const char *line)
{
    char full[LINE_MAX_BYTES + 2];
    int n;

    if (self.sink) {
        self.sink(self.sink_arg, level, line);
        return;
    }
    /* one write for each line, so that lines of several processes do not mix */
    n = snprintf(full, sizeof(full), "%s\n", line);
    while (n > 0 && write(STDERR_FILENO, full, (size_t)n) < 0 && errno == EINTR)
        ;
}

void log_at(enum log_level level, const char *fmt, ...)
{
    int saved_errno = errno;
    char message[LINE_MAX_BYTES / 2], safe[LINE_MAX_BYTES - 256], line[LINE_MAX_BYTES];
    va_list ap;

    if (!log_enabled(level))
        return;
    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    if (self.format == LOG_JSON)
        text_json_string(message, safe, sizeof(safe));
    else
        text_printable(message, safe, sizeof(safe));
    if (self.format == LOG_JSON)
        snprintf(
            line, sizeof(line),
            "{\"time_ms\":%llu,\"program\":\"%s\",\"level\":\"%s\",\"message\":\"%s\"}",
            (unsigned long long)clock_wall_ms(), self.program, level_names[level],
            safe);
    else
        snprintf(line, sizeof(line), "%s: %s%s", self.program,
                 level == LOG_DEBUG ? "debug: " : "", safe);
    log_write_line(level, line);
    errno = saved_errno;
}

bool log_limit_pass(struct log_limit *limit, uint64_t source, uint64_t now_ms,
                    unsigned *held_back)
{
    unsigned count = sizeof(limit->slot) / sizeof(limit->slot[0]);
    unsigned i = (unsigned)((source * 0x9e3779b97f4a7c15u) >> 32) % count;

    /* two sources may share a slot and its limit, so that memory stays bounded */
    if (limit->slot[i].last_ms && now_ms - limit->slot[i].last_ms < LIMIT_INTERVAL_MS) {
        limit->slot[i].held_back++;
        return false;
    }
    *held_back = limit->slot[i].held_back;
    limit->slot[i].last_ms = now_ms ? now_ms : 1;
    limit->slot[i].held_back = 0;
    return true;
}

bool log_bursts_pass(struct log_bursts *bursts, uint64_t source, uint64_t now_ms,
                     unsigned *held_back)
{
    const uint64_t burst_ms = (uint64_t)LOG_BURST_LINES * LOG_BURST_INTERVAL_MS;
    unsigned i = (unsigned)(source % (sizeof(bursts->slot) / sizeof(bursts->slot[0])));
    uint64_t from_ms = bursts->slot[i].full_at_ms;

    if (from_ms < now_ms)
        from_ms = now_ms;
    if (from_ms + LOG_BURST_INTERVAL_MS - now_ms > burst_ms) {
        bursts->slot[i].held_back++;
        return false;
    }
    bursts->slot[i].full_at_ms = from_ms + LOG_BURST_INTERVAL_MS;
    *held_back = bursts->slot[i].held_back;
    bursts->slot[i].held_back = 0;
    return true;
}
