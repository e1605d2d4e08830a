/* SPDX-License-Identifier: MIT */
#include "launcher/remote/own_stdin.h"

#include <errno.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/remote/limits.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"

struct own_stdin {
    struct loop *loop;
    void (*data)(void *arg, const void *data, size_t size);
    void *arg;
    struct event *event; /* NULL: a file, which is always ready, or not started */
    size_t on_the_way;
    bool is_file, is_reading, has_ended;
};

static void stop_reading(struct own_stdin *s)
{
    if (s->event && s->is_reading)
        event_del(s->event);
    s->is_reading = false;
}

/* One read. False: nothing more for now. */
static bool read_own(struct own_stdin *s)
{
    char data[REMOTE_IN_WINDOW];
    ssize_t n;

    if (s->has_ended || s->on_the_way >= REMOTE_IN_WINDOW) {
        stop_reading(s);
        return false;
    }
    n = read(STDIN_FILENO, data, sizeof(data) - s->on_the_way);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n > 0) {
        s->on_the_way += (size_t)n;
        s->data(s->arg, data, (size_t)n);
        return true;
    }
    s->has_ended = true;
    stop_reading(s);
    s->data(s->arg, NULL, 0);
    return false;
}

static void on_own_stdin(evutil_socket_t fd, short what, void *arg)
{
    (void)read_own(arg);
}

static void resume_reading(struct own_stdin *s)
{
    if (s->has_ended)
        return;
    if (s->event && !s->is_reading) {
        s->is_reading = true;
        event_add(s->event, NULL);
    }
    while (s->is_file && read_own(s))
        ;
}

struct own_stdin *
own_stdin_create(struct loop *loop,
                 void (*data)(void *arg, const void *data, size_t size), void *arg)
{
    struct own_stdin *s = xcalloc(1, sizeof(*s));

    s->loop = loop;
    s->data = data;
    s->arg = arg;
    return s;
}

void own_stdin_destroy(struct own_stdin *s)
{
    if (s && s->event)
        event_free(s->event);
    free(s);
}

/* epoll watches no files, and not /dev/null. */
static bool can_be_watched(void)
{
    struct stat st;

    return fstat(STDIN_FILENO, &st) == 0 &&
           (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || isatty(STDIN_FILENO));
}

void own_stdin_start(struct own_stdin *s)
{
    s->is_file = !can_be_watched();
    if (!s->is_file)
        s->event = event_new(loop_base(s->loop), STDIN_FILENO, EV_READ | EV_PERSIST,
                             on_own_stdin, s);
    resume_reading(s);
}

void own_stdin_taken(struct own_stdin *s, uint32_t bytes)
{
    s->on_the_way -= bytes < s->on_the_way ? bytes : s->on_the_way;
    if (s->on_the_way < REMOTE_IN_WINDOW / 2)
        resume_reading(s);
}
