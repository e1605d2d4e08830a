/* SPDX-License-Identifier: MIT */
#include "agent/interface/status_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent/logs/console.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"

#define TEXT_MAX 256
#define REDRAW_MS 1000
#define COLUMNS_DEFAULT 80

struct status_line {
    struct console *console;
    struct loop_timer redraw_timer;
    struct status_line_calls calls;
    char urgent[TEXT_MAX];
    bool shown;
};

static unsigned terminal_columns(void)
{
    struct winsize size;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
        return COLUMNS_DEFAULT;
    return size.ws_col;
}

/* Cuts the line between two characters, because a line that wraps cannot be erased. */
static void cut_to_columns(char *text, unsigned columns)
{
    for (; *text; text++)
        if ((*text & 0xc0) != 0x80 && columns-- == 0) {
            *text = '\0';
            return;
        }
}

static void draw_status_line(struct status_line *s, char *line)
{
    cut_to_columns(line, terminal_columns() - 1);
    if (*line || s->shown)
        console_set_status(s->console, line);
    s->shown = *line != '\0';
}

static void redraw_status_line(void *arg)
{
    struct status_line *s = arg;
    char line[TEXT_MAX] = "";

    if (*s->urgent)
        memcpy(line, s->urgent, sizeof(line));
    else
        s->calls.status(s->calls.arg, line, sizeof(line));
    draw_status_line(s, line);
    loop_timer_arm(&s->redraw_timer, clock_ms() + REDRAW_MS);
}

void status_line_set_urgent(struct status_line *s, const char *text)
{
    snprintf(s->urgent, sizeof(s->urgent), "%s", text);
    if (s->console)
        redraw_status_line(s);
}

/* Whether standard error is a terminal that can erase a line. */
static bool can_erase_lines(void)
{
    const char *term = getenv("TERM");

    return isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
}

struct status_line *status_line_create(struct loop *loop, struct console *console,
                                       const struct status_line_calls *calls)
{
    struct status_line *s = xcalloc(1, sizeof(*s));

    s->calls = *calls;
    loop_timer_init(&s->redraw_timer, loop, redraw_status_line, s);
    if (console && can_erase_lines()) {
        s->console = console;
        loop_timer_arm(&s->redraw_timer, clock_ms() + REDRAW_MS);
    }
    return s;
}

void status_line_hide(struct status_line *s)
{
    if (s->console)
        draw_status_line(s, (char[]){ "" });
}

bool status_line_is_shown(const struct status_line *s)
{
    return s && s->console;
}

void status_line_destroy(struct status_line *s)
{
    if (!s)
        return;
    status_line_hide(s);
    loop_timer_fini(&s->redraw_timer);
    free(s);
}
