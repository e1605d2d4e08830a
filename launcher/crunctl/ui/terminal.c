/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ui/terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"

#define ENTER "\033[?1049h\033[?25l"
#define LEAVE "\033[?25h\033[?1049l"

struct screen {
    int signals; /* a signalfd */
    sigset_t mask_before;
    struct termios before;
    bool has_keys;
};

/* -- what standard output is ------------------------------------------------------ */

static unsigned columns_of_environment(void)
{
    const char *text = getenv("COLUMNS");
    long n = text ? strtol(text, NULL, 10) : 0;

    return n > 0 && n < 10000 ? (unsigned)n : 0;
}

struct terminal terminal_look(void)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    struct terminal t = { .is_terminal = isatty(STDOUT_FILENO) };
    struct winsize size = { .ws_col = 0 };

    t.is_dumb = !term || !*term || strcmp(term, "dumb") == 0;
    if (!t.is_terminal)
        return t;
    t.colours = !t.is_dumb && !(no_color && *no_color);
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
        t.columns = size.ws_col;
        t.rows = size.ws_row;
    }
    t.columns = t.columns ? t.columns : columns_of_environment();
    return t;
}

/* -- text ------------------------------------------------------------------------- */

const char *terminal_style_begin(bool colours, enum text_style style)
{
    static const char *const begin[] = {
        [STYLE_PLAIN] = "",        [STYLE_BOLD] = "\033[1m",  [STYLE_DIM] = "\033[2m",
        [STYLE_GOOD] = "\033[32m", [STYLE_WARN] = "\033[33m", [STYLE_BAD] = "\033[31m",
    };

    return colours ? begin[style] : "";
}

const char *terminal_style_end(bool colours, enum text_style style)
{
    return colours && style != STYLE_PLAIN ? "\033[0m" : "";
}

/* The bytes of the next character, and the columns that it takes: none for a sequence
 * that sets a style. */
static size_t next_character(const char *text, size_t *columns)
{
    size_t size;

    *columns = 0;
    if (*text == '\033')
        return strcspn(text, "m") + 1;
    *columns = 1;
    size = text_utf8_size(text, strlen(text));
    return size ? size : 1;
}

size_t terminal_text_width(const char *text)
{
    size_t width = 0, columns;

    while (*text) {
        text += next_character(text, &columns);
        width += columns;
    }
    return width;
}

size_t terminal_text_fit(const char *text, size_t columns)
{
    size_t at = 0, used = 0, taken;

    while (text[at]) {
        size_t size = next_character(text + at, &taken);

        if (used + taken > columns)
            break;
        used += taken;
        at += size;
    }
    return at;
}

/* -- the screen ------------------------------------------------------------------- */

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
        t.c_cc[VMIN] = 0;
        t.c_cc[VTIME] = 0;
    }
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &t);
}

struct screen *screen_open(void)
{
    struct terminal t = terminal_look();
    struct screen *s;
    sigset_t watched;

    if (!t.is_terminal || t.is_dumb)
        return NULL;
    s = xcalloc(1, sizeof(*s));
    sigemptyset(&watched);
    sigaddset(&watched, SIGINT);
    sigaddset(&watched, SIGTERM);
    sigaddset(&watched, SIGHUP);
    sigaddset(&watched, SIGQUIT);
    sigaddset(&watched, SIGTSTP);
    sigaddset(&watched, SIGWINCH);
    sigprocmask(SIG_BLOCK, &watched, &s->mask_before);
    s->signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    s->has_keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &s->before) == 0;
    set_keys(s, true);
    write_all(ENTER, strlen(ENTER));
    return s;
}

void screen_close(struct screen *s)
{
    if (!s)
        return;
    write_all(LEAVE, strlen(LEAVE));
    set_keys(s, false);
    if (s->signals >= 0)
        close(s->signals);
    sigprocmask(SIG_SETMASK, &s->mask_before, NULL);
    free(s);
}

/* Ctrl-Z: the shell's screen comes back until the program continues. */
static void suspend_screen(struct screen *s)
{
    sigset_t stop;

    write_all(LEAVE, strlen(LEAVE));
    set_keys(s, false);
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    if (s->has_keys)
        (void)tcgetattr(STDIN_FILENO, &s->before);
    set_keys(s, true);
    write_all(ENTER, strlen(ENTER));
}

void screen_draw(struct screen *s, const char *text)
{
    struct terminal t = terminal_look();
    size_t size;
    char *frame;
    FILE *out = open_memstream(&frame, &size);

    if (!out)
        return;
    fputs("\033[H", out);
    for (unsigned row = 0; *text && (!t.rows || row < t.rows); row++) {
        size_t length = strcspn(text, "\n");
        char *line = xasprintf("%.*s", (int)length, text);
        size_t fit = t.columns ? terminal_text_fit(line, t.columns) : length;

        fprintf(out, "%s%.*s\033[0m\033[K", row ? "\r\n" : "", (int)fit, line);
        free(line);
        text += length + (text[length] == '\n');
    }
    fputs("\033[J", out);
    fclose(out);
    write_all(frame, size);
    free(frame);
}

/* True: a key that ends the program. */
static bool read_keys(void)
{
    char key[64];
    ssize_t n = read(STDIN_FILENO, key, sizeof(key));

    for (ssize_t i = 0; i < n; i++)
        if (key[i] == 'q' || key[i] == 'Q' || key[i] == '\003')
            return true;
    return false;
}

/* False: a signal that ends the program. *again: draw now. */
static bool read_screen_signals(struct screen *s, bool *again)
{
    struct signalfd_siginfo info;

    while (read(s->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGTSTP)
            suspend_screen(s);
        else if (info.ssi_signo != SIGWINCH)
            return false;
        *again = true;
    }
    return true;
}

bool screen_wait(struct screen *s, uint64_t ms)
{
    uint64_t until = clock_ms() + ms, now;
    bool again = false;

    while (!again && (now = clock_ms()) < until) {
        struct pollfd p[] = { { .fd = s->signals, .events = POLLIN },
                              { .fd = s->has_keys ? STDIN_FILENO : -1,
                                .events = POLLIN } };

        if (poll(p, 2, (int)(until - now)) < 0 && errno != EINTR)
            return false;
        if (!read_screen_signals(s, &again) || (p[1].revents & POLLIN && read_keys()) ||
            p[1].revents & (POLLHUP | POLLERR))
            return false;
    }
    return true;
}
