/* SPDX-License-Identifier: MIT */
#include "launcher/remote/host_link.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/remote/push.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/xalloc.h"

#define SHELL_WORDS_MAX (1u << 20)
#define TUNNEL_FRAME_MAX (1u << 20)

static void put_relay(struct host_link *l, enum channel_type type, const void *body,
                      size_t size);
static void shut_tunnel(struct host_link *l);

/* -- the process ------------------------------------------------------------------- */

/* In the child of vfork, which shares our memory. Signals are blocked. */
static void exec_link(char *const *argv, const int *fds, int death_signal)
{
    sigset_t none;

    for (int signo = 1; signo < NSIG; signo++)
        signal(signo, SIG_DFL);
    if (setpgid(0, 0) < 0 || dup2(fds[0], STDIN_FILENO) < 0 ||
        dup2(fds[1], STDOUT_FILENO) < 0 || dup2(fds[2], STDERR_FILENO) < 0 ||
        prctl(PR_SET_PDEATHSIG, death_signal) < 0)
        return;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(argv[0], argv);
}

/* Returns 0 or an errno value. death_signal: what it gets if this process dies, or 0.
 */
static int spawn_link(pid_t *pid, char *const *argv, const int *fds, int death_signal)
{
    volatile int errnum = 0;
    sigset_t all, old;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old);
    *pid = vfork();
    if (*pid == 0) {
        exec_link(argv, fds, death_signal);
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
    if (l->has_line)
        put_relay(l, CHANNEL_RELAY_KILL, NULL, 0);
    l->has_line = false;
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
    if (l->out_fd >= 0 || l->pid || l->has_line || l->has_pending)
        return;
    if (l->err_fd >= 0)
        read_words(l);
    host_link_close(l);
    l->calls.closed(l->calls.arg);
}

static void on_kill_link(void *arg)
{
    struct host_link *l = arg;

    if (l->pid)
        kill(-l->pid, SIGKILL);
    else if (l->has_line)
        put_relay(l, CHANNEL_RELAY_KILL, NULL, 0);
    /* a process that it has left behind may hold the other end */
    if (!l->pid && !l->has_line) {
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
    shut_tunnel(l);
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

/* What a login shell says before it ends is the only reason that there is. */
static void keep_shell_words(struct host_link *l)
{
    if (!l->has_shell && channel_reader_rest(&l->reader))
        keep_words(l, (const char *)l->reader.data + l->reader.taken,
                   channel_reader_rest(&l->reader));
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
        keep_shell_words(l);
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

static void watch_link(struct host_link *l, int in)
{
    struct event_base *base = loop_base(l->loop);

    l->in = bufferevent_socket_new(base, in, BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(l->in, NULL, NULL, on_in_lost, l);
    bufferevent_enable(l->in, EV_WRITE);
    l->out = event_new(base, l->out_fd, EV_READ | EV_PERSIST, on_link_out, l);
    l->err = event_new(base, l->err_fd, EV_READ | EV_PERSIST, on_link_err, l);
    event_add(l->out, NULL);
    event_add(l->err, NULL);
}

int host_link_spawn(char *const *argv, int death_signal, pid_t *pid,
                    struct host_link_fds *fds, struct err *e)
{
    int in[2], out[2], err[2], errnum;

    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 ||
        pipe2(err, O_CLOEXEC) < 0)
        return err_set_errno(e, errno, "a pipe to %s", argv[0]);
    errnum = spawn_link(pid, argv, (int[]){ in[0], out[1], err[1] }, death_signal);
    close(in[0]);
    close(out[1]);
    close(err[1]);
    *fds = (struct host_link_fds){ in[1], out[0], err[0] };
    fcntl(fds->in, F_SETFL, O_NONBLOCK);
    fcntl(fds->out, F_SETFL, O_NONBLOCK);
    fcntl(fds->err, F_SETFL, O_NONBLOCK);
    if (errnum == 0)
        return 0;
    close(fds->in);
    close(fds->out);
    close(fds->err);
    *pid = 0;
    return err_set_errno(e, errnum, "%s", argv[0]);
}

static void init_link(struct host_link *l, struct loop *loop,
                      const struct host_link_calls *calls)
{
    *l = (struct host_link){
        .loop = loop, .calls = *calls, .out_fd = -1, .err_fd = -1, .is_open = true
    };
    loop_timer_init(&l->kill, loop, on_kill_link, l);
}

int host_link_open(struct host_link *l, struct loop *loop, char *const *argv,
                   const struct host_link_calls *calls, struct err *e)
{
    struct host_link_fds fds;
    pid_t pid;

    *l = (struct host_link){ .out_fd = -1, .err_fd = -1 };
    if (host_link_spawn(argv, 0, &pid, &fds, e) < 0)
        return -1;
    init_link(l, loop, calls);
    l->pid = pid;
    l->out_fd = fds.out;
    l->err_fd = fds.err;
    watch_link(l, fds.in);
    return 0;
}

/* -- through another host ---------------------------------------------------------- */

static void put_relay(struct host_link *l, enum channel_type type, const void *body,
                      size_t size)
{
    struct evbuffer *out = l->via->is_open ? host_link_output(l->via) : NULL;

    if (out)
        channel_put(out, type, l->line, body, size);
}

/* What was written to the link becomes frames. Nothing is copied: an order has a key.
 */
static void move_tunnel(struct host_link *l)
{
    struct evbuffer *from = bufferevent_get_input(l->tunnel);
    struct evbuffer *to = l->via->is_open ? host_link_output(l->via) : NULL;
    uint8_t header[CHANNEL_HEADER_BYTES];
    size_t size;

    while ((size = evbuffer_get_length(from)) > 0) {
        size = size < TUNNEL_FRAME_MAX ? size : TUNNEL_FRAME_MAX;
        if (!to) {
            evbuffer_drain(from, size);
            continue;
        }
        channel_format_header(header, CHANNEL_RELAY_IN, l->line, size);
        evbuffer_add(to, header, sizeof(header));
        evbuffer_remove_buffer(from, to, size);
    }
}

static void on_tunnel(struct bufferevent *b, void *arg)
{
    move_tunnel(arg);
}

static void shut_tunnel(struct host_link *l)
{
    if (!l->tunnel)
        return;
    move_tunnel(l);
    put_relay(l, CHANNEL_RELAY_SHUT, NULL, 0);
    bufferevent_free(l->tunnel);
    l->tunnel = NULL;
}

void host_link_open_via(struct host_link *l, struct host_link *via, uint32_t line,
                        char *const *argv, const struct host_link_calls *calls)
{
    struct evbuffer *words = evbuffer_new();
    struct bufferevent *pair[2];

    init_link(l, via->loop, calls);
    l->via = via;
    l->line = line;
    l->has_line = true;
    if (bufferevent_pair_new(loop_base(via->loop), BEV_OPT_CLOSE_ON_FREE, pair) < 0)
        abort();
    l->in = pair[0];
    l->tunnel = pair[1];
    bufferevent_setcb(l->tunnel, on_tunnel, NULL, NULL, l);
    bufferevent_enable(l->in, EV_WRITE);
    bufferevent_enable(l->tunnel, EV_READ);
    for (; *argv; argv++)
        evbuffer_add(words, *argv, strlen(*argv) + 1);
    put_relay(l, CHANNEL_RELAY_OPEN, evbuffer_pullup(words, -1),
              evbuffer_get_length(words));
    evbuffer_free(words);
}

bool host_link_relayed(struct host_link *l, const struct channel_frame *frame)
{
    if (frame->type == CHANNEL_RELAY_WORDS) {
        keep_words(l, (const char *)frame->body, frame->size);
    } else if (frame->type == CHANNEL_RELAY_CLOSED) {
        l->has_line = false;
        keep_shell_words(l);
        host_link_shut(l);
        check_link_closed(l);
    } else if (l->is_paused) {
        return false;
    } else {
        channel_reader_add(&l->reader, frame->body, frame->size);
        read_input(l);
    }
    return true;
}

void host_link_cut(struct host_link *l, const char *why)
{
    if (!l->is_open || !l->has_line)
        return;
    keep_words(l, why, strlen(why));
    l->has_line = false;
    l->has_pending = false;
    host_link_shut(l);
    check_link_closed(l);
}
