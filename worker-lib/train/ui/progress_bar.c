/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/ui/progress_bar.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"

#define REFRESH_MS 100
#define PLAIN_MS 10000
#define BAR_MAX 30
#define BAR_MIN 6
#define TEXT_COLUMNS 72 /* of the line without the bar */

struct progress_bar {
    bool shown, terminal, colour;
    bool drawn; /* the last line is the bar */
    uint64_t next_ms;
};

struct progress_bar *progress_bar_create(bool shown)
{
    struct progress_bar *s = xcalloc(1, sizeof(*s));
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");

    s->shown = shown;
    s->terminal = shown && isatty(STDOUT_FILENO) && !(term && !strcmp(term, "dumb"));
    s->colour = s->terminal && !(no_colour && *no_colour);
    s->next_ms = clock_ms() + (s->terminal ? 0 : PLAIN_MS);
    return s;
}

static void clear_bar(struct progress_bar *s)
{
    if (s->drawn)
        fputs("\r\033[K", stdout);
    s->drawn = false;
}

void progress_bar_destroy(struct progress_bar *s)
{
    if (!s)
        return;
    clear_bar(s);
    fflush(stdout);
    free(s);
}

void progress_bar_print_line(struct progress_bar *s, const char *fmt, ...)
{
    va_list args;

    if (!s->shown)
        return;
    clear_bar(s);
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

char *format_duration(double seconds, char *text, size_t size)
{
    uint64_t s = seconds > 0 && seconds < 1e9 ? (uint64_t)(seconds + .5) : 0;

    if (s < 3600)
        snprintf(text, size, "%" PRIu64 ":%02" PRIu64, s / 60, s % 60);
    else
        snprintf(text, size, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, s / 3600,
                 s / 60 % 60, s % 60);
    return text;
}

static int terminal_width(void)
{
    struct winsize w;

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : 80;
}

static void print_bar(const struct progress_bar *s, double part, int width)
{
    int done = (int)(part * width + .5);

    /* without colours the parts differ by their characters */
    fputs(s->colour ? "\033[32m" : "", stdout);
    for (int i = 0; i < done && i < width; i++)
        fputs("━", stdout);
    fputs(s->colour ? "\033[90m" : "", stdout);
    for (int i = done; i < width; i++)
        fputs(s->colour ? "━" : "─", stdout);
    fputs(s->colour ? "\033[0m" : "", stdout);
}

enum { PART, LOSS, ACCURACY, RATE, LEFT, WORDS };

/* A line wider than the terminal cannot be erased, so the least important words are
 * left out. Returns the columns that remain. */
static int fit_words(char words[WORDS][40], int free_columns)
{
    static const int by_importance[WORDS] = { PART, LOSS, LEFT, ACCURACY, RATE };

    for (int i = 0; i < WORDS; i++) {
        char *word = words[by_importance[i]];
        int width = (int)strlen(word);

        if (width <= free_columns)
            free_columns -= width;
        else
            *word = '\0';
    }
    return free_columns;
}

/* The same width every time, unless words need the room. */
static int bar_width(int all_columns, int free_columns)
{
    int width = all_columns - TEXT_COLUMNS;

    width = width < BAR_MIN ? BAR_MIN : width > BAR_MAX ? BAR_MAX : width;
    return width <= free_columns ? width : 0;
}

static void print_progress(const struct progress_bar *s, const struct pass_progress *p)
{
    char rate[32], left[32], words[WORDS][40];
    int all = terminal_width(), head;

    format_number((uint64_t)p->samples_per_s, rate, sizeof(rate));
    format_duration(p->left_s, left, sizeof(left));
    snprintf(words[PART], sizeof(words[PART]), " %3.0f%%", 100 * p->part);
    snprintf(words[LOSS], sizeof(words[LOSS]), "  loss %.4f", p->loss);
    snprintf(words[ACCURACY], sizeof(words[ACCURACY]), "  acc %.1f%%",
             100 * p->accuracy);
    snprintf(words[RATE], sizeof(words[RATE]), "  %s img/s", rate);
    snprintf(words[LEFT], sizeof(words[LEFT]), "  %s left", left);
    head = printf("pass %" PRIu64 "/%" PRIu64 " ", p->pass, p->passes);
    if (s->terminal)
        print_bar(s, p->part, bar_width(all, fit_words(words, all - 1 - head)));
    for (int i = 0; i < WORDS; i++)
        fputs(words[i], stdout);
}

void progress_bar_update(struct progress_bar *s, const struct pass_progress *p)
{
    uint64_t now = s->shown ? clock_ms() : 0;

    if (!s->shown || now < s->next_ms)
        return;
    s->next_ms = now + (s->terminal ? REFRESH_MS : PLAIN_MS);
    clear_bar(s);
    print_progress(s, p);
    s->drawn = s->terminal;
    if (!s->terminal)
        putchar('\n');
    fflush(stdout);
}
