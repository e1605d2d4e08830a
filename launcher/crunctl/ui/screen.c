/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ui/screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "launcher/crunctl/ui/terminal.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"

#define ENTER "\033[?1049h\033[?25l\033[?7l\033[2J"
#define LEAVE "\033[?7h\033[?25h\033[?1049l"

struct screen {
    int signals; /* a signalfd */
    sigset_t watched, mask_before;
    struct termios before;
    bool has_keys;
    char **line; /* as they are on the screen */
    size_t lines;
    unsigned columns; /* of the screen that has them */
};

static void write_all(const char *text, size_t size)
{
    while (size > 0) {
        ssize_t n = write(STDOUT_FILENO, text, size);

        if (n < 0 && errno != EINTR)
            return;
        text += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
}

static void set_keys(const struct screen *s, bool ours)
{
    struct termios t = s->before;

    if (!s->has_keys)
        return;
    if (ours) {
        t.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        t.c_iflag &= ~(tcflag_t)IXON;
        t.c_cc[VMIN] = 0;
        t.c_cc[VTIME] = 0;
    }
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &t);
}

void screen_forget(struct screen *s)
{
    for (size_t i = 0; i < s->lines; i++)
        free(s->line[i]);
    s->lines = 0;
}

static void enter_screen(struct screen *s)
{
    set_keys(s, true);
    write_all(ENTER, strlen(ENTER));
    screen_forget(s);
}

static void leave_screen(struct screen *s)
{
    write_all(LEAVE, strlen(LEAVE));
    set_keys(s, false);
}

struct screen *screen_open(void)
{
    static const int watched[] = { SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                   SIGTSTP, SIGCONT, SIGWINCH };
    struct terminal t = terminal_look();
    struct screen *s;

    if (!t.is_terminal || t.is_dumb)
        return NULL;
    s = xcalloc(1, sizeof(*s));
    sigemptyset(&s->watched);
    for (size_t i = 0; i < sizeof(watched) / sizeof(watched[0]); i++)
        sigaddset(&s->watched, watched[i]);
    sigprocmask(SIG_BLOCK, &s->watched, &s->mask_before);
    s->signals = signalfd(-1, &s->watched, SFD_CLOEXEC | SFD_NONBLOCK);
    s->has_keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &s->before) == 0;
    enter_screen(s);
    return s;
}

void screen_close(struct screen *s)
{
    if (!s)
        return;
    leave_screen(s);
    if (s->signals >= 0)
        close(s->signals);
    sigprocmask(SIG_SETMASK, &s->mask_before, NULL);
    screen_forget(s);
    free(s->line);
    free(s);
}

/* -- drawing ---------------------------------------------------------------------- */

static void change_line(struct screen *s, FILE *out, size_t row, char *line)
{
    if (row == s->lines) {
        s->line = xrealloc(s->line, (row + 1) * sizeof(*s->line));
        s->line[s->lines++] = NULL;
    }
    if (!s->line[row] || strcmp(s->line[row], line) != 0) {
        size_t fit = s->columns ? terminal_text_fit(line, s->columns) : strlen(line);
        bool is_full = s->columns && terminal_text_width(line) >= s->columns;

        /* A line that reaches the edge has no rest to be erased, and some terminals
         * would erase its last character. */
        fprintf(out, "\033[%zu;1H%.*s\033[0m%s", row + 1, (int)fit, line,
                is_full ? "" : "\033[K");
    }
    free(s->line[row]);
    s->line[row] = line;
}

void screen_draw(struct screen *s, const char *text)
{
    struct terminal t = terminal_look();
    size_t size, row = 0;
    char *frame;
    FILE *out = open_memstream(&frame, &size);

    if (!out)
        return;
    if (t.columns != s->columns)
        screen_forget(s);
    s->columns = t.columns;
    for (; *text && (!t.rows || row < t.rows); row++) {
        size_t length = strcspn(text, "\n");

        change_line(s, out, row, xasprintf("%.*s", (int)length, text));
        text += length + (text[length] == '\n');
    }
    if (row < s->lines && (!t.rows || row < t.rows))
        fprintf(out, "\033[%zu;1H\033[J", row + 1);
    while (s->lines > row)
        free(s->line[--s->lines]);
    fclose(out);
    write_all(frame, size);
    free(frame);
}

/* -- waiting ---------------------------------------------------------------------- */

/* Ctrl-Z: the shell's screen comes back until the program continues. A shell may have
 * changed the terminal meanwhile. */
static void suspend_screen(struct screen *s)
{
    sigset_t stop;

    leave_screen(s);
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    if (s->has_keys)
        (void)tcgetattr(STDIN_FILENO, &s->before);
    enter_screen(s);
}

static bool read_screen_signals(struct screen *s, enum screen_news *news)
{
    struct signalfd_siginfo info;

    while (read(s->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        *news = SCREEN_RESIZE;
        if (info.ssi_signo == SIGTSTP)
            suspend_screen(s);
        else if (info.ssi_signo == SIGCONT) /* also of a SIGSTOP, which is not seen */
            enter_screen(s);
        else if (info.ssi_signo == SIGWINCH)
            screen_forget(s);
        else
            *news = SCREEN_END;
        if (*news == SCREEN_END)
            return true;
    }
    return *news == SCREEN_RESIZE;
}

enum screen_news screen_wait(struct screen *s, uint64_t until_ms, int fd, char *keys,
                             size_t *size)
{
    enum screen_news news = SCREEN_TIME;
    uint64_t now;
    ssize_t n;

    while ((now = clock_ms()) < until_ms) {
        struct pollfd p[] = { { .fd = s->signals, .events = POLLIN },
                              { .fd = s->has_keys ? STDIN_FILENO : -1,
                                .events = POLLIN },
                              { .fd = fd, .events = POLLIN } };

        if (poll(p, 3, (int)(until_ms - now)) < 0 && errno != EINTR)
            return SCREEN_END;
        if (p[0].revents && read_screen_signals(s, &news))
            return news;
        n = p[1].revents & POLLIN ? read(STDIN_FILENO, keys, *size) : 0;
        if (n > 0) {
            *size = (size_t)n;
            return SCREEN_TYPED;
        }
        if (p[1].revents & (POLLHUP | POLLERR))
            return SCREEN_END;
        if (p[2].revents)
            return SCREEN_CALL;
    }
    return SCREEN_TIME;
}
