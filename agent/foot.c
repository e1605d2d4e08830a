/* SPDX-License-Identifier: MIT */
#include "agent/foot.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent/console.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/loop.h"
#include "rendezvous/base/xalloc.h"

#define TEXT_MAX 256
#define COLUMNS_DEFAULT 80

struct foot {
    struct console *console;
    struct loop_timer again;
    char status[TEXT_MAX], urgent[TEXT_MAX];
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

static void show(void *arg)
{
    struct foot *f = arg;
    char line[TEXT_MAX];

    snprintf(line, sizeof(line), "%s", *f->urgent ? f->urgent : f->status);
    cut(line, terminal_columns() - 1);
    if (*line || f->shown)
        console_foot(f->console, line);
    f->shown = *line != '\0';
    if (f->shown)
        loop_timer_arm(&f->again, clock_ms() + FOOT_AGAIN_MS);
}

static void set(struct foot *f, char *text, const char *to)
{
    snprintf(text, TEXT_MAX, "%s", to);
    if (f->console)
        show(f);
}

void foot_status(struct foot *f, const char *text)
{
    set(f, f->status, text);
}

void foot_urgent(struct foot *f, const char *text)
{
    set(f, f->urgent, text);
}

struct foot *foot_create(struct loop *loop, struct console *console)
{
    struct foot *f = xcalloc(1, sizeof(*f));

    f->console = isatty(STDERR_FILENO) ? console : NULL;
    loop_timer_init(&f->again, loop, show, f);
    return f;
}

void foot_destroy(struct foot *f)
{
    if (!f)
        return;
    foot_status(f, "");
    foot_urgent(f, "");
    loop_timer_fini(&f->again);
    free(f);
}
