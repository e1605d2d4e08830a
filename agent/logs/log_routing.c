/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_routing.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint8_t stream_bit[LOG_STREAMS] = {
    [LOG_OUT] = CONFIG_STDOUT,
    [LOG_ERR] = CONFIG_STDERR,
};

static enum log_sink find_sink_kind(const struct stat *st, int fd)
{
    if (S_ISREG(st->st_mode))
        return LOG_SINK_FILE;
    if (!S_ISCHR(st->st_mode))
        return LOG_SINK_PIPE;
    return isatty(fd) ? LOG_SINK_TTY : LOG_SINK_DEVICE;
}

struct log_routing_sinks log_routing_detect_sinks(int out, int err)
{
    struct log_routing_sinks sinks = { .same = false };
    struct stat st[LOG_STREAMS];

    /* a closed stream counts as a pipe without a reader */
    if (fstat(out, &st[LOG_OUT]) < 0 || fstat(err, &st[LOG_ERR]) < 0)
        return sinks;
    sinks.kind[LOG_OUT] = find_sink_kind(&st[LOG_OUT], out);
    sinks.kind[LOG_ERR] = find_sink_kind(&st[LOG_ERR], err);
    sinks.same = st[LOG_OUT].st_dev == st[LOG_ERR].st_dev &&
                 st[LOG_OUT].st_ino == st[LOG_ERR].st_ino;
    return sinks;
}

static bool has_filter(const struct config *c, int which)
{
    const char *const *f = which == LOG_OUT ? c->stdout_filters : c->stderr_filters;

    return f && *f;
}

static bool has_stream_bit(const uint8_t *list, uint32_t local_rank, int which)
{
    return list && list[local_rank] & stream_bit[which];
}

/* With --tee, filters apply to streams with a tee; without, to all. */
static bool is_filtered(const struct config *c, uint32_t local_rank, int which)
{
    if (!has_filter(c, which) || has_stream_bit(c->streams.tee, local_rank, which))
        return has_filter(c, which);
    for (uint32_t i = 0; i < c->workers; i++)
        if (has_stream_bit(c->streams.tee, i, which))
            return false;
    return true;
}

bool log_routing_has_no_files(const struct config *c)
{
    return c->log_dir && strcmp(c->log_dir, "/dev/null") == 0;
}

bool log_routing_needs_files(const struct config *c)
{
    bool any = has_filter(c, LOG_OUT) || has_filter(c, LOG_ERR);

    for (uint32_t i = 0; i < c->workers; i++)
        for (int k = 0; k < LOG_STREAMS; k++)
            any |= has_stream_bit(c->streams.redirect, i, k) ||
                   has_stream_bit(c->streams.tee, i, k);
    return any;
}

static bool is_on_console(const struct config *c, uint32_t local_rank, int which)
{
    return (!c->streams.shown || c->streams.shown[local_rank]) &&
           (has_stream_bit(c->streams.tee, local_rank, which) ||
            !has_stream_bit(c->streams.redirect, local_rank, which));
}

/* Whether lines of several streams could mix in the file if workers wrote it. */
static bool is_shared_file(const struct config *c,
                           const struct log_routing_sinks *sinks, int which)
{
    unsigned writers = 0;

    for (uint32_t i = 0; i < c->workers; i++)
        writers += is_on_console(c, i, which);
    return sinks->same || writers > 1;
}

struct log_routing log_routing_make(const struct config *c,
                                    const struct log_routing_sinks *sinks,
                                    uint32_t local_rank, int which)
{
    enum log_sink kind = sinks->kind[which];
    bool tee = has_stream_bit(c->streams.tee, local_rank, which);
    bool redirect = has_stream_bit(c->streams.redirect, local_rank, which);
    struct log_routing p = { .file = (tee || redirect) && !log_routing_has_no_files(c),
                             .filter = is_filtered(c, local_rank, which) &&
                                       !log_routing_has_no_files(c),
                             .console = is_on_console(c, local_rank, which),
                             .prefix = tee };

    p.pty = p.console && kind == LOG_SINK_TTY;
    /* standard error is always read: its end is part of a failure report */
    if (which == LOG_OUT && !p.file && !p.filter && !c->progress_pattern) {
        p.nowhere = !p.console;
        p.passed = p.console && !p.prefix &&
                   (kind == LOG_SINK_DEVICE ||
                    (kind == LOG_SINK_FILE && !is_shared_file(c, sinks, which)));
    }
    return p;
}

bool log_routing_is_one_stream(const struct log_routing routing[LOG_STREAMS],
                               const struct log_routing_sinks *sinks)
{
    bool one = sinks->same && sinks->kind[LOG_ERR] != LOG_SINK_DEVICE;

    for (int i = 0; i < LOG_STREAMS; i++)
        one &= routing[i].console && !routing[i].prefix && !routing[i].file &&
               !routing[i].filter;
    return one;
}

struct log_routing_writers
log_routing_count_writers(const struct config *c, const struct log_routing_sinks *sinks,
                          int which)
{
    struct log_routing_writers writers = { 0 };

    for (uint32_t i = 0; i < c->workers; i++) {
        struct log_routing p[LOG_STREAMS];
        unsigned streams = 0;

        for (int k = 0; k < LOG_STREAMS; k++) {
            p[k] = log_routing_make(c, sinks, i, k);
            streams += p[k].console && !p[k].passed && (k == which || sinks->same);
        }
        if (streams == 2 && log_routing_is_one_stream(p, sinks))
            streams = 1;
        writers.streams += streams;
        writers.workers += streams > 0;
    }
    return writers;
}
