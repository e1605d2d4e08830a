/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/fd.h"
#include "worker-lib/train/trainer.h"

#define REFRESH_MS 100
#define PLAIN_MS 10000

static bool progress_shown; /* the last line of the terminal is the progress */

void report_line(const struct trainer *t, const char *fmt, ...)
{
    va_list args;

    if (crun_rank(t->world) != 0)
        return;
    fputs(progress_shown ? "\r\033[K" : "", stdout);
    progress_shown = false;
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

double report_samples_per_s(const struct trainer *t)
{
    return t->samples_here * 1000 / (double)(clock_ms() - t->pass_began_ms + 1);
}

void report_progress(const struct trainer *t)
{
    static uint64_t next_ms;
    const char *term = getenv("TERM");
    bool terminal = isatty(STDOUT_FILENO) && !(term && strcmp(term, "dumb") == 0);
    uint64_t now = clock_ms(), first_ms = t->pass_began_ms + (terminal ? 0 : PLAIN_MS);
    double all = (double)t->train.count, seen = t->score.samples,
           rate = report_samples_per_s(t);
    double left = (((double)t->flags->passes - (double)t->pass) * all - seen) / rate;
    struct winsize w = { 0 };
    char text[128], more[64];
    int length, left_s;

    if (crun_rank(t->world) != 0 || !(seen > 0 && rate > 0) ||
        now < (next_ms ? next_ms : first_ms))
        return;
    next_ms = now + (terminal ? REFRESH_MS : PLAIN_MS);
    left_s = (int)fmin(left, 1e6);
    length = snprintf(text, sizeof(text),
                      "pass %" PRIu64 "/%lld %3.0f%%  loss %.4f  %d:%02d left",
                      t->pass + 1, t->flags->passes, fmin(100 * seen / all, 100),
                      t->score.loss / seen, left_s / 60, left_s % 60);
    snprintf(more, sizeof(more), "  acc %.1f%%  %.0f img/s",
             100 * t->score.right / seen, rate);
    /* a line wider than the terminal cannot be erased */
    if (terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 &&
        (size_t)length + strlen(more) >= w.ws_col)
        *more = '\0';
    printf("%s%s%s%s", progress_shown ? "\r\033[K" : "", text, more,
           terminal ? "" : "\n");
    progress_shown = terminal;
    fflush(stdout);
}

int report_metrics(const struct trainer *t, struct err *e, const char *fmt, ...)
{
    const char *path = t->flags->metrics;
    va_list args;
    int fd, written;

    if (!path || crun_rank(t->world) != 0)
        return 0;
    fd = fd_create_file(path, O_APPEND, 0666);
    if (fd < 0)
        return err_set_errno(e, errno, "--metrics: %s", path);
    va_start(args, fmt);
    written = vdprintf(fd, fmt, args);
    va_end(args);
    if (close(fd) != 0 || written < 0)
        return err_set_errno(e, errno, "--metrics: %s", path);
    return 0;
}
