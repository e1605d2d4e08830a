/* SPDX-License-Identifier: MIT */
#include "rendezvous/base/log.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/xalloc.h"

#define LINE_MAX_BYTES 2048
#define LIMIT_INTERVAL_MS 1000
#define CHARACTER_MAX 4 /* bytes of UTF-8 */

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

void log_set_sink(void (*sink)(void *, enum log_level, const char *), void *arg)
{
    self.sink = sink;
    self.sink_arg = arg;
}

bool log_enabled(enum log_level level)
{
    return level <= self.level;
}

size_t log_printable_size(const char *text, size_t size)
{
    static const struct {
        unsigned char first_min, first_max, second_min, second_max, length;
    } forms[] = {
        { 0xc2, 0xc2, 0xa0, 0xbf, 2 }, { 0xc3, 0xdf, 0x80, 0xbf, 2 },
        { 0xe0, 0xe0, 0xa0, 0xbf, 3 }, { 0xe1, 0xec, 0x80, 0xbf, 3 },
        { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
        { 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 },
        { 0xf4, 0xf4, 0x80, 0x8f, 4 },
    };
    const unsigned char *c = (const unsigned char *)text;
    size_t length = 1;

    if (size == 0 || c[0] < 0x80)
        return size > 0 && isprint(c[0]) ? 1 : 0;
    if (size == 1)
        return 0;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        if (c[0] >= forms[i].first_min && c[0] <= forms[i].first_max &&
            c[1] >= forms[i].second_min && c[1] <= forms[i].second_max)
            length = forms[i].length;
    if (length > size)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    return length > 1 ? length : 0;
}

/* Copy with everything unprintable as \xNN. JSON also escapes " and \. */
static void escape(char *out, size_t size, const char *in, bool json)
{
    size_t n = 0, length;

    for (; *in && n + 7 < size; in += length) {
        unsigned char c = (unsigned char)*in;

        length = log_printable_size(in, strnlen(in, CHARACTER_MAX));
        if (length == 0) {
            n += (size_t)snprintf(out + n, size - n, json ? "\\u%04x" : "\\x%02x", c);
            length = 1;
            continue;
        }
        if (json && (c == '"' || c == '\\'))
            out[n++] = '\\';
        memcpy(out + n, in, length);
        n += length;
    }
    out[n] = '\0';
}

char *log_printable(const char *text, char *buf, size_t size)
{
    escape(buf, size, text, false);
    return buf;
}

char *log_printable_json(char *json)
{
    size_t size = json ? strlen(json) : 0, length, used = 0;
    char *out = json ? xmalloc(size * strlen("\\u00NN") + 1) : NULL;

    for (size_t at = 0; at < size; at += length) {
        unsigned char c = (unsigned char)json[at];
        bool steers;

        length = log_printable_size(json + at, size - at);
        if (length > 0 || c == '\n' || c == '\t') { /* of the layout, not of a text */
            length = length ? length : 1;
            memcpy(out + used, json + at, length);
            used += length;
            continue;
        }
        steers = c == 0xc2 && (json[at + 1] & 0xc0) == 0x80; /* U+0080 to U+009F */
        length = steers ? 2 : 1;
        used += (size_t)sprintf(out + used, "\\u00%02x",
                                steers ? (unsigned char)json[at + 1] : c);
    }
    if (out)
        out[used] = '\0';
    free(json);
    return out;
}

static void write_line(enum log_level level, const char *line)
{
    char full[LINE_MAX_BYTES + 2];
    int n;

    if (self.sink) {
        self.sink(self.sink_arg, level, line);
        return;
    }
    /* one write a line: lines of several processes do not mix */
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
    escape(safe, sizeof(safe), message, self.format == LOG_JSON);
    if (self.format == LOG_JSON)
        snprintf(
            line, sizeof(line),
            "{\"time_ms\":%llu,\"program\":\"%s\",\"level\":\"%s\",\"message\":\"%s\"}",
            (unsigned long long)clock_wall_ms(), self.program, level_names[level],
            safe);
    else
        snprintf(line, sizeof(line), "%s: %s%s", self.program,
                 level == LOG_DEBUG ? "debug: " : "", safe);
    write_line(level, line);
    errno = saved_errno;
}

bool log_limit_pass(struct log_limit *limit, uint64_t source, uint64_t now_ms,
                    unsigned *held_back)
{
    unsigned count = sizeof(limit->slot) / sizeof(limit->slot[0]);
    unsigned i = (unsigned)((source * 0x9e3779b97f4a7c15u) >> 32) % count;

    /* a slot shared by two sources limits them together: memory stays bounded */
    if (limit->slot[i].last_ms && now_ms - limit->slot[i].last_ms < LIMIT_INTERVAL_MS) {
        limit->slot[i].held_back++;
        return false;
    }
    *held_back = limit->slot[i].held_back;
    limit->slot[i].last_ms = now_ms ? now_ms : 1;
    limit->slot[i].held_back = 0;
    return true;
}
