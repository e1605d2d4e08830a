/* SPDX-License-Identifier: MIT */
#include "agent/ui/status_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent/logs/console.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/loop.h"
#include "rendezvous/base/xalloc.h"

#define TEXT_MAX 256
#define REDRAW_MS 1000
#define COLUMNS_DEFAULT 80

struct status_line {
    struct console *console;
    struct loop_timer again;
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

/* A line that wraps could not be drawn over: cut it, between two characters. */
static void cut(char *text, unsigned columns)
{
    for (; *text; text++)
        if ((*text & 0xc0) != 0x80 && columns-- == 0) {
            *text = '\0';
            return;
        }
}

static void draw(struct status_line *f, char *line)
{
    cut(line, terminal_columns() - 1);
    if (*line || f->shown)
        console_set_status(f->console, line);
    f->shown = *line != '\0';
}

static void show(void *arg)
{
    struct status_line *f = arg;
    char line[TEXT_MAX] = "";

    if (*f->urgent)
        memcpy(line, f->urgent, sizeof(line));
    else
        f->calls.standing(f->calls.arg, line, sizeof(line));
    draw(f, line);
    loop_timer_arm(&f->again, clock_ms() + REDRAW_MS);
}

void status_line_urgent(struct status_line *f, const char *text)
{
    snprintf(f->urgent, sizeof(f->urgent), "%s", text);
    if (f->console)
        show(f);
}

/* One that can take a line away again. */
static bool is_terminal(void)
{
    const char *term = getenv("TERM");

    return isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
}

struct status_line *status_line_create(struct loop *loop, struct console *console,
                                       const struct status_line_calls *calls)
{
    struct status_line *f = xcalloc(1, sizeof(*f));

    f->calls = *calls;
    loop_timer_init(&f->again, loop, show, f);
    if (is_terminal()) {
        f->console = console;
        loop_timer_arm(&f->again, clock_ms() + REDRAW_MS);
    }
    return f;
}

bool status_line_is_shown(const struct status_line *f)
{
    return f && f->console;
}

void status_line_destroy(struct status_line *f)
{
    if (!f)
        return;
    if (f->console)
        draw(f, (char[]){ "" });
    loop_timer_fini(&f->again);
    free(f);
}
