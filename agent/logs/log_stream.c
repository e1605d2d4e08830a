/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_stream.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "agent/logs/limits.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"

struct log_stream {
    struct log_stream_calls calls;
    struct event *event;
    int fd;
    bool pty, enlarged, paused;
};

/* The loop's thread reads all streams, one after the other. */
static char buffer[LOG_READ_BYTES];

/* Reads what is available into the buffer. *ended: no process can write any more. A pty
 * gives EIO when its other end is closed, but too early where Linux looked for bytes,
 * then the last ones were written and the end closed, then Linux looked for the end:
 * read twice, none is lost. */
static size_t read_available(struct log_stream *s, bool *ended)
{
    size_t size = 0;
    bool closed = false;

    *ended = false;
    while (size < sizeof(buffer)) {
        ssize_t n = read(s->fd, buffer + size, sizeof(buffer) - size);

        if (n < 0 && (errno == EINTR || (errno == EIO && s->pty && !closed))) {
            closed = errno == EIO;
            continue;
        }
        *ended = n == 0 || (n < 0 && errno != EAGAIN);
        if (n <= 0)
            break;
        size += (size_t)n;
        if (!s->pty) /* a pipe returns all it has, a pty a page at a time */
            break;
    }
    return size;
}

static void on_stream_readable(evutil_socket_t fd, short what, void *arg)
{
    struct log_stream *s = arg;
    bool ended;
    size_t size;

    if (!s->calls.ready(s->calls.arg)) {
        s->paused = true;
        event_del(s->event);
        return;
    }
    size = read_available(s, &ended);
    if (!s->pty && !s->enlarged && size >= LOG_PIPE_DEFAULT_BYTES) {
        s->enlarged = true;
        (void)fcntl(s->fd, F_SETPIPE_SZ, LOG_PIPE_BYTES); /* may not be permitted */
    }
    if (size > 0)
        s->calls.data(s->calls.arg, buffer, size, size == sizeof(buffer));
    if (ended) {
        event_del(s->event);
        s->calls.ended(s->calls.arg); /* last, as it may free s */
    }
}

void log_stream_resume(struct log_stream *s)
{
    if (!s->paused)
        return;
    s->paused = false;
    event_add(s->event, NULL);
}

void log_stream_finish(struct log_stream *s)
{
    bool ended = false;
    size_t size, all = 0;

    /* at most the capacity of the pipe, even if a process still writes */
    while (!ended && all < LOG_PIPE_BYTES && (size = read_available(s, &ended)) > 0) {
        all += size;
        s->calls.data(s->calls.arg, buffer, size, size == sizeof(buffer));
    }
}

static int open_pty_peer(int master)
{
    int fd = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    char name[64];

    if (fd < 0 && ptsname_r(master, name, sizeof(name)) == 0) /* before Linux 4.13 */
        fd = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    return fd;
}

/* Raw mode: the real terminal processes the bytes. */
static int open_pty(int end[2], struct err *e)
{
    struct termios raw;

    end[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (end[0] < 0)
        return err_set_errno(e, errno, "cannot make a terminal for a worker");
    if (grantpt(end[0]) < 0 || unlockpt(end[0]) < 0 ||
        (end[1] = open_pty_peer(end[0])) < 0) {
        err_set_errno(e, errno, "cannot open a terminal for a worker");
        close(end[0]);
        return -1;
    }
    if (tcgetattr(end[1], &raw) == 0) {
        cfmakeraw(&raw);
        tcsetattr(end[1], TCSANOW, &raw);
    }
    return 0;
}

struct log_stream *log_stream_create(struct loop *loop, bool pty,
                                     const struct log_stream_calls *calls, int *far,
                                     struct err *e)
{
    struct log_stream *s;
    int end[2];

    if (pty ? open_pty(end, e) < 0 : pipe2(end, O_CLOEXEC) < 0) {
        if (!pty)
            err_set_errno(e, errno, "cannot make a pipe");
        return NULL;
    }
    s = xcalloc(1, sizeof(*s));
    s->calls = *calls;
    s->pty = pty;
    s->fd = end[0];
    *far = end[1];
    fcntl(s->fd, F_SETFL, O_NONBLOCK);
    s->event = event_new(loop_base(loop), s->fd, EV_READ | EV_PERSIST,
                         on_stream_readable, s);
    if (!s->event || event_add(s->event, NULL) < 0) {
        err_set(e, "cannot watch a worker's output");
        close(*far);
        log_stream_destroy(s);
        return NULL;
    }
    return s;
}

void log_stream_destroy(struct log_stream *s)
{
    if (!s)
        return;
    if (s->event)
        event_free(s->event);
    close(s->fd);
    free(s);
}

void log_stream_resize(const struct log_stream *s, int from, unsigned columns)
{
    struct winsize size;

    if (!s->pty || ioctl(from, TIOCGWINSZ, &size) < 0)
        return;
    if (size.ws_col > 2 * columns)
        size.ws_col = (unsigned short)(size.ws_col - columns);
    ioctl(s->fd, TIOCSWINSZ, &size);
}
