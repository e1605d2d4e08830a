/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/progress_bar.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"

#define REFRESH_MS 100
#define PLAIN_MS 10000
#define BAR_MAX 30
#define BAR_MIN 6
#define TEXT_COLUMNS 72 /* of the line without the bar */

static struct {
    bool shown, terminal, colour;
    bool drawn; /* the last line is the bar */
    uint64_t next_ms;
} bar;

void progress_bar_open(void)
{
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");

    bar.shown = true;
    bar.terminal = isatty(STDOUT_FILENO) && !(term && strcmp(term, "dumb") == 0);
    bar.colour = bar.terminal && !(no_colour && *no_colour);
    bar.next_ms = clock_ms() + (bar.terminal ? 0 : PLAIN_MS);
}

static void clear_bar(void)
{
    if (bar.drawn)
        fputs("\r\033[K", stdout);
    bar.drawn = false;
}

void progress_bar_close(void)
{
    clear_bar();
    fflush(stdout);
}

void progress_bar_print_line(const char *fmt, ...)
{
    va_list args;

    if (!bar.shown)
        return;
    clear_bar();
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

char *format_number(uint64_t n, char *text, size_t size)
{
    char digits[32];
    int count = snprintf(digits, sizeof(digits), "%" PRIu64, n);
    size_t used = 0;

    for (int i = 0; i < count && used + 2 < size; i++) {
        if (i > 0 && (count - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

static void print_bar(double part, int width)
{
    int done = (int)(part * width + .5);

    /* without colours the parts differ by their characters */
    fputs(bar.colour ? "\033[32m" : "", stdout);
    for (int i = 0; i < done && i < width; i++)
        fputs("━", stdout);
    fputs(bar.colour ? "\033[90m" : "", stdout);
    for (int i = done; i < width; i++)
        fputs(bar.colour ? "━" : "─", stdout);
    fputs(bar.colour ? "\033[0m" : "", stdout);
}

void progress_bar_update(const struct pass_progress *p)
{
    uint64_t now = bar.shown ? clock_ms() : 0;
    int left = p->left_s < 1e6 ? (int)(p->left_s + .5) : 0, width;
    struct winsize w = { 0 };
    char rate[32], more[64] = "";

    if (!bar.shown || now < bar.next_ms)
        return;
    bar.next_ms = now + (bar.terminal ? REFRESH_MS : PLAIN_MS);
    clear_bar();
    if (bar.terminal && (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) != 0 || w.ws_col == 0))
        w.ws_col = TEXT_COLUMNS + BAR_MIN;
    width = w.ws_col - TEXT_COLUMNS;
    printf("pass %" PRIu64 "/%" PRIu64 " ", p->pass, p->passes);
    /* a line wider than the terminal cannot be erased */
    if (width >= BAR_MIN)
        print_bar(p->part, width < BAR_MAX ? width : BAR_MAX);
    if (width >= BAR_MIN || !bar.terminal)
        snprintf(more, sizeof(more), "  acc %.1f%%  %s img/s", 100 * p->accuracy,
                 format_number((uint64_t)p->samples_per_s, rate, sizeof(rate)));
    printf(" %3.0f%%  loss %.4f%s  %d:%02d left%s", 100 * p->part, p->loss, more,
           left / 60, left % 60, bar.terminal ? "" : "\n");
    bar.drawn = bar.terminal;
    fflush(stdout);
}
