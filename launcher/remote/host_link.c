/* SPDX-License-Identifier: MIT */
#include "launcher/remote/host_link.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/remote/push.h"
#include "rendezvous/common/base/clock.h"

#define SHELL_WORDS_MAX (1u << 20)

/* -- the process ------------------------------------------------------------------- */

/* In the child of vfork, which shares our memory. Signals are blocked. */
static void exec_link(char *const *argv, const int *fds)
{
    sigset_t none;

    for (int signo = 1; signo < NSIG; signo++)
        signal(signo, SIG_DFL);
    if (setpgid(0, 0) < 0 || dup2(fds[0], STDIN_FILENO) < 0 ||
        dup2(fds[1], STDOUT_FILENO) < 0 || dup2(fds[2], STDERR_FILENO) < 0)
        return;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(argv[0], argv);
}

/* Returns 0 or an errno value. */
static int spawn_link(pid_t *pid, char *const *argv, const int *fds)
{
    volatile int errnum = 0;
    sigset_t all, old;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old);
    *pid = vfork();
    if (*pid == 0) {
        exec_link(argv, fds);
        errnum = errno;
        _exit(127);
    }
    if (*pid < 0)
        errnum = errno;
    else if (errnum)
        waitpid(*pid, NULL, 0);
    sigprocmask(SIG_SETMASK, &old, NULL);
    return errnum;
}

static void close_link_out(struct host_link *l)
{
    if (l->out)
        event_free(l->out);
    if (l->out_fd >= 0)
        close(l->out_fd);
    l->out = NULL;
    l->out_fd = -1;
}

static void close_link_err(struct host_link *l)
{
    if (l->err)
        event_free(l->err);
    if (l->err_fd >= 0)
        close(l->err_fd);
    l->err = NULL;
    l->err_fd = -1;
}

void host_link_close(struct host_link *l)
{
    if (!l->is_open)
        return;
    l->is_open = false;
    host_link_shut(l);
    close_link_out(l);
    close_link_err(l);
    channel_reader_wipe(&l->reader);
    loop_timer_fini(&l->kill);
    if (l->pid) {
        kill(-l->pid, SIGKILL);
        waitpid(l->pid, NULL, 0);
    }
    l->pid = 0;
}

/* Keeps the end of what is said. */
static void keep_words(struct host_link *l, const char *at, size_t size)
{
    size_t room = sizeof(l->said) - 1 - l->said_used;

    if (size > sizeof(l->said) / 2) {
        at += size - sizeof(l->said) / 2;
        size = sizeof(l->said) / 2;
    }
    if (size > room) {
        memmove(l->said, l->said + size - room, l->said_used - (size - room));
        l->said_used -= size - room;
    }
    memcpy(l->said + l->said_used, at, size);
    l->said_used += size;
    l->said[l->said_used] = '\0';
}

static void read_words(struct host_link *l)
{
    char data[4096];
    ssize_t n;

    while ((n = read(l->err_fd, data, sizeof(data))) > 0)
        keep_words(l, data, (size_t)n);
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        close_link_err(l);
}

static void check_link_closed(struct host_link *l)
{
    if (l->out_fd >= 0 || l->pid || l->has_pending)
        return;
    if (l->err_fd >= 0)
        read_words(l);
    host_link_close(l);
    l->calls.closed(l->calls.arg);
}

static void on_kill_link(void *arg)
{
    struct host_link *l = arg;

    if (l->pid) {
        kill(-l->pid, SIGKILL);
    } else { /* a process that it has left behind may hold the other end */
        l->has_pending = false;
        close_link_out(l);
        check_link_closed(l);
    }
}

void host_link_end(struct host_link *l, unsigned within_ms)
{
    if (l->is_open)
        loop_timer_arm(&l->kill, clock_ms() + within_ms);
}

void host_link_reap(struct host_link *l)
{
    if (!l->is_open || !l->pid || waitpid(l->pid, NULL, WNOHANG) <= 0)
        return;
    l->pid = 0;
    if (l->out_fd >= 0)
        host_link_end(l, REMOTE_CLOSE_MS);
    check_link_closed(l);
}

/* -- its streams ------------------------------------------------------------------- */

void host_link_shut(struct host_link *l)
{
    if (l->in)
        bufferevent_free(l->in);
    l->in = NULL;
}

struct evbuffer *host_link_output(struct host_link *l)
{
    return l->in ? bufferevent_get_output(l->in) : NULL;
}

static void on_in_lost(struct bufferevent *b, short what, void *arg)
{
    host_link_shut(arg);
}

/* What comes before the first frame: marks, among words of the remote shell. */
static void find_marks(struct host_link *l)
{
    static const struct {
        const char *text;
        enum host_link_mark mark;
    } marks[] = { { CHANNEL_GREETING, LINK_GREETING },
                  { PUSH_WANTED_MARK, LINK_WANTED },
                  { PUSH_ABSENT_MARK, LINK_ABSENT } };
    char before[256];

    for (unsigned i = 0; i < sizeof(marks) / sizeof(*marks); i++)
        if (channel_reader_skip(&l->reader, marks[i].text, before, sizeof(before))) {
            l->has_shell = true;
            l->is_greeted = marks[i].mark == LINK_GREETING;
            l->calls.mark(l->calls.arg, marks[i].mark);
            return;
        }
    if (channel_reader_skip(&l->reader, PUSH_SHELL_MARK, before, sizeof(before)))
        l->has_shell = true;
    if (channel_reader_rest(&l->reader) > SHELL_WORDS_MAX)
        l->calls.malformed(l->calls.arg, "its shell talks without end");
}

static void read_frames(struct host_link *l)
{
    struct err e;
    int rc = 1;

    while (l->is_open && !l->is_paused) {
        if (!l->has_pending)
            rc = channel_reader_next(&l->reader, &l->pending, &e);
        if (rc <= 0)
            break;
        l->has_pending = !l->calls.frame(l->calls.arg, &l->pending);
        l->is_paused = l->has_pending;
    }
    if (rc < 0)
        l->calls.malformed(l->calls.arg, e.text);
}

static void read_input(struct host_link *l)
{
    if (!l->is_greeted)
        find_marks(l);
    if (l->is_open && l->is_greeted)
        read_frames(l);
    if (l->is_open && l->out && l->is_paused)
        event_del(l->out);
}

static void on_link_out(evutil_socket_t fd, short what, void *arg)
{
    struct host_link *l = arg;
    char data[CHANNEL_DATA_MAX];
    ssize_t n = read(fd, data, sizeof(data));

    if (n > 0) {
        channel_reader_add(&l->reader, data, (size_t)n);
        read_input(l);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        /* What a login shell says before it ends is the only reason that there is. */
        if (!l->has_shell && channel_reader_rest(&l->reader))
            keep_words(l, (const char *)l->reader.data + l->reader.taken,
                       channel_reader_rest(&l->reader));
        close_link_out(l);
        if (l->pid)
            host_link_end(l, REMOTE_CLOSE_MS);
        host_link_shut(l);
        check_link_closed(l);
    }
}

void host_link_resume(struct host_link *l)
{
    if (!l->is_open || !l->is_paused)
        return;
    l->is_paused = false;
    read_input(l);
    if (l->is_open && l->out && !l->is_paused)
        event_add(l->out, NULL);
    if (l->is_open)
        check_link_closed(l);
}

static void on_link_err(evutil_socket_t fd, short what, void *arg)
{
    read_words(arg);
}

static void watch_link(struct host_link *l, int in, int out, int err)
{
    struct event_base *base = loop_base(l->loop);

    fcntl(in, F_SETFL, O_NONBLOCK);
    fcntl(out, F_SETFL, O_NONBLOCK);
    fcntl(err, F_SETFL, O_NONBLOCK);
    loop_timer_init(&l->kill, l->loop, on_kill_link, l);
    l->is_open = true;
    l->out_fd = out;
    l->err_fd = err;
    l->in = bufferevent_socket_new(base, in, BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(l->in, NULL, NULL, on_in_lost, l);
    bufferevent_enable(l->in, EV_WRITE);
    l->out = event_new(base, out, EV_READ | EV_PERSIST, on_link_out, l);
    l->err = event_new(base, err, EV_READ | EV_PERSIST, on_link_err, l);
    event_add(l->out, NULL);
    event_add(l->err, NULL);
}

int host_link_open(struct host_link *l, struct loop *loop, char *const *argv,
                   const struct host_link_calls *calls, struct err *e)
{
    int in[2], out[2], err[2], errnum;

    *l = (struct host_link){
        .loop = loop, .calls = *calls, .out_fd = -1, .err_fd = -1
    };
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 ||
        pipe2(err, O_CLOEXEC) < 0)
        return err_set_errno(e, errno, "a pipe to %s", argv[0]);
    errnum = spawn_link(&l->pid, argv, (int[]){ in[0], out[1], err[1] });
    close(in[0]);
    close(out[1]);
    close(err[1]);
    if (errnum == 0) {
        watch_link(l, in[1], out[0], err[0]);
        return 0;
    }
    close(in[1]);
    close(out[0]);
    close(err[0]);
    l->pid = 0;
    return err_set_errno(e, errnum, "%s", argv[0]);
}
