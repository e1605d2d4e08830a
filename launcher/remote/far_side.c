/* SPDX-License-Identifier: MIT */
/*
 * The parent: carries bytes between the launcher's frames and the streams of its child,
 * and ends the child when the launcher is gone. It reads no more from the child while
 * the launcher takes nothing, so that a slow terminal there slows the workers down
 * here.
 */
#include "launcher/remote/far_side.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "launcher/remote/channel.h"
#include "launcher/remote/far_child.h"
#include "launcher/remote/far_reach.h"
#include "launcher/remote/host_addresses.h"
#include "launcher/remote/limits.h"
#include "launcher/remote/remote_order.h"
#include "launcher/remote/tool_lines.h"
#include "rendezvous/common/base/bytes.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/version.h"
#include "rendezvous/common/base/xalloc.h"

#define STREAM_COUNT 3 /* its output and errors, and its claims, in packets */

struct far_side;

/* A stream of the child. */
struct far_stream {
    struct far_side *side;
    enum channel_type type;
    struct event *event; /* NULL: it has ended */
    int fd;
};

struct far_side {
    const struct far_side_calls *calls;
    struct loop *loop;
    struct channel_reader reader;
    struct event *input;        /* from the launcher */
    struct bufferevent *output; /* to the launcher */
    struct tool_lines *tools;   /* connections of tools to the child */
    int listener;

    struct far_child child;
    bool has_child, has_exited, has_started, is_paused;
    int exit_code;
    uint32_t grace_ms;
    struct event *status;
    struct far_stream stream[STREAM_COUNT];
    struct bufferevent *child_in;
    size_t
        in_unread; /* bytes of standard input that the launcher counts as on the way */
    bool in_ends;

    bool is_ending, is_suspended, is_leaving;
    struct loop_timer silence, kill, drain;
};

static void put_frame(struct far_side *f, enum channel_type type, const void *body,
                      size_t size)
{
    if (f->output)
        channel_put(bufferevent_get_output(f->output), type, 0, body, size);
}

/* -- the end ----------------------------------------------------------------------- */

/* The loop ends once all output is written and no tool is connected. */
static void far_side_leave(struct far_side *f)
{
    f->is_leaving = true;
    if (f->has_child && !tool_lines_are_idle(f->tools))
        return;
    if (!f->output || evbuffer_get_length(bufferevent_get_output(f->output)) == 0)
        loop_stop(f->loop);
}

static void signal_child(struct far_side *f, int signo)
{
    if (f->has_child && !f->has_exited)
        kill(f->child.pid, signo);
}

/* The launcher is gone, or has no more use for this node. */
static void far_side_end(struct far_side *f)
{
    if (f->is_ending)
        return;
    f->is_ending = true;
    f->is_suspended = false;
    tool_lines_end_all(f->tools);
    loop_timer_arm(&f->kill, clock_ms() + f->grace_ms + REMOTE_KILL_MS);
    if (!f->has_child || f->has_exited) {
        far_side_leave(f);
        return;
    }
    signal_child(f, f->has_started ? SIGTERM : SIGKILL);
    signal_child(f, SIGCONT);
}

static void on_kill_due(void *arg)
{
    signal_child(arg, SIGKILL);
}

static void on_silence(void *arg)
{
    struct far_side *f = arg;

    if (!f->is_suspended)
        far_side_end(f);
}

/* The launcher takes no more output. */
static void far_side_lose_launcher(struct far_side *f)
{
    if (f->input)
        event_free(f->input);
    f->input = NULL;
    if (f->output)
        bufferevent_free(f->output);
    f->output = NULL;
    if (f->is_leaving)
        loop_stop(f->loop);
    far_side_end(f);
}

static void refuse_order(struct far_side *f, enum remote_refusal why, const char *text)
{
    size_t size = strlen(text) + 1;
    char *body = xmalloc(size);

    body[0] = (char)why;
    memcpy(body + 1, text, size - 1);
    put_frame(f, CHANNEL_REFUSED, body, size);
    free(body);
    far_side_leave(f);
}

/* -- the child's streams ----------------------------------------------------------- */

static void far_stream_close(struct far_stream *s)
{
    if (!s->event)
        return;
    event_free(s->event);
    close(s->fd);
    s->event = NULL;
}

static void report_child_exit(struct far_side *f)
{
    uint8_t code = (uint8_t)f->exit_code;

    for (int i = 0; i < STREAM_COUNT; i++)
        far_stream_close(&f->stream[i]);
    put_frame(f, CHANNEL_EXITED, &code, 1);
    far_side_leave(f);
}

/* The exit code comes after all output; a process that still holds the streams is not
 * waited for. */
static void check_exit(struct far_side *f)
{
    if (!f->has_exited || f->is_leaving)
        return;
    if (!f->stream[0].event && !f->stream[1].event)
        report_child_exit(f);
    else if (!f->drain.armed)
        loop_timer_arm(&f->drain, clock_ms() + REMOTE_DRAIN_MS);
}

static void on_drain_over(void *arg)
{
    struct far_side *f = arg;

    /* its streams may be full because the launcher has not taken what came before */
    if (f->is_paused)
        loop_timer_arm(&f->drain, clock_ms() + REMOTE_DRAIN_MS);
    else if (!f->is_leaving)
        report_child_exit(f);
}

static void pause_streams(struct far_side *f, bool pause)
{
    f->is_paused = pause;
    for (int i = 0; i < STREAM_COUNT; i++)
        if (f->stream[i].event && pause)
            event_del(f->stream[i].event);
        else if (f->stream[i].event)
            event_add(f->stream[i].event, NULL);
    tool_lines_pause(f->tools, pause);
}

static void pause_full_output(struct far_side *f)
{
    if (f->output && !f->is_paused &&
        evbuffer_get_length(bufferevent_get_output(f->output)) > REMOTE_OUT_MAX)
        pause_streams(f, true);
}

static void on_stream(evutil_socket_t fd, short what, void *arg)
{
    struct far_stream *s = arg;
    struct far_side *f = s->side;
    char data[CHANNEL_DATA_MAX];
    ssize_t n = read(fd, data, sizeof(data));

    if (n > 0) {
        put_frame(f, s->type, data, (size_t)n);
        if (f->drain.armed)
            loop_timer_arm(&f->drain, clock_ms() + REMOTE_DRAIN_MS);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        far_stream_close(s);
        check_exit(f);
    }
    pause_full_output(f);
}

static void watch_stream(struct far_side *f, unsigned i, enum channel_type type, int fd)
{
    struct far_stream *s = &f->stream[i];

    *s = (struct far_stream){ .side = f, .type = type, .fd = fd };
    if (fd < 0)
        return;
    s->event = event_new(loop_base(f->loop), fd, EV_READ | EV_PERSIST, on_stream, s);
    event_add(s->event, NULL);
}

static void on_output_written(struct bufferevent *b, void *arg)
{
    struct far_side *f = arg;
    size_t left = evbuffer_get_length(bufferevent_get_output(b));

    if (f->is_paused && left <= REMOTE_OUT_MAX / 2)
        pause_streams(f, false);
    if (f->is_leaving)
        far_side_leave(f);
}

static void on_output_lost(struct bufferevent *b, short what, void *arg)
{
    struct far_side *f = arg;

    far_side_lose_launcher(f);
    if (f->is_paused)
        pause_streams(f, false);
}

/* -- the child's standard input ---------------------------------------------------- */

static void report_taken(struct far_side *f, size_t left)
{
    uint32_t taken = htole32((uint32_t)(f->in_unread - left));

    if (f->in_unread > left)
        put_frame(f, CHANNEL_STDIN_TAKEN, &taken, sizeof(taken));
    f->in_unread = left;
}

static void close_child_in(struct far_side *f)
{
    if (f->child_in)
        bufferevent_free(f->child_in);
    f->child_in = NULL;
    report_taken(f, 0);
}

static void on_child_in_written(struct bufferevent *b, void *arg)
{
    struct far_side *f = arg;
    size_t left = evbuffer_get_length(bufferevent_get_output(b));

    report_taken(f, left);
    if (left == 0 && f->in_ends)
        close_child_in(f);
}

static void on_child_in_lost(struct bufferevent *b, short what, void *arg)
{
    close_child_in(arg);
}

static void watch_child_in(struct far_side *f)
{
    if (f->child.in < 0)
        return;
    f->child_in = bufferevent_socket_new(loop_base(f->loop), f->child.in,
                                         BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(f->child_in, NULL, on_child_in_written, on_child_in_lost, f);
    bufferevent_setwatermark(f->child_in, EV_WRITE, REMOTE_IN_WINDOW, 0);
    bufferevent_enable(f->child_in, EV_WRITE);
}

static void handle_stdin(struct far_side *f, const struct channel_frame *frame)
{
    if (frame->size == 0) {
        f->in_ends = true;
        if (f->in_unread == 0)
            close_child_in(f);
        return;
    }
    f->in_unread += frame->size;
    if (f->child_in)
        bufferevent_write(f->child_in, frame->body, frame->size);
    else
        report_taken(f, 0);
}

/* -- the order --------------------------------------------------------------------- */

static void on_child_status(evutil_socket_t fd, short what, void *arg)
{
    struct far_side *f = arg;
    struct far_child_status status;
    ssize_t n = read(fd, &status, sizeof(status));
    struct net_addr own;
    uint16_t port = 0;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    event_free(f->status);
    f->status = NULL;
    close(fd);
    if (n != (ssize_t)sizeof(status)) {
        refuse_order(f, REMOTE_BAD_FLAGS, "crun ended before it had checked its flags");
    } else if (status.refusal) {
        refuse_order(f, status.refusal, status.text);
    } else {
        f->grace_ms = status.grace_ms;
        if (net_local_addr(f->listener, &own) == 0)
            port = htole16(net_port(&own));
        put_frame(f, CHANNEL_LISTENING, &port, sizeof(port));
    }
}

static void handle_claimed(struct far_side *f, const struct channel_frame *frame)
{
    if (f->stream[2].event)
        (void)!send(f->child.witness, frame->body, frame->size, MSG_NOSIGNAL);
}

static void handle_order(struct far_side *f, const struct channel_frame *frame)
{
    struct remote_order order;
    struct err e;

    if (f->has_child || remote_order_parse(frame->body, frame->size, &order, &e) < 0) {
        refuse_order(f, REMOTE_BAD_ORDER, f->has_child ? "a second order" : e.text);
        return;
    }
    f->listener = net_listen_everywhere(0, SOMAXCONN, &e);
    if (f->listener < 0) {
        refuse_order(f, REMOTE_NO_SOCKET, e.text);
    } else if (far_child_start(&f->child, f->calls, &order, f->listener, &e) < 0) {
        refuse_order(f, e.code ? (enum remote_refusal)e.code : REMOTE_BAD_ORDER,
                     e.text);
    } else {
        f->has_child = true;
        f->status = event_new(loop_base(f->loop), f->child.status, EV_READ | EV_PERSIST,
                              on_child_status, f);
        event_add(f->status, NULL);
        watch_stream(f, 0, CHANNEL_OUT, f->child.out);
        watch_stream(f, 1, CHANNEL_ERR, f->child.err);
        watch_stream(f, 2, CHANNEL_CLAIM, f->child.witness);
        watch_child_in(f);
    }
    remote_order_clear(&order);
}

static void handle_start(struct far_side *f, const struct channel_frame *frame)
{
    size_t size = frame->size;

    if (!f->has_child || f->has_started)
        return;
    f->has_started = true;
    close(f->listener);
    (void)!fd_write_all(f->child.go, frame->body, &size);
    close(f->child.go);
}

static void handle_signal(struct far_side *f, const struct channel_frame *frame)
{
    int signo = frame->size == 1 ? frame->body[0] : 0;

    if (signo <= 0 || signo >= NSIG)
        return;
    f->is_suspended = signo == SIGTSTP || (f->is_suspended && signo != SIGCONT);
    signal_child(f, signo);
}

static void handle_drain(struct far_side *f, const struct channel_frame *frame)
{
    signal_child(f, SIGTERM);
}

static void handle_detach(struct far_side *f, const struct channel_frame *frame)
{
    const char *path = f->child.log;
    char *reach, *body;

    if (!path || !f->has_started || f->has_exited)
        return;
    reach = far_reach_command(f->child.pid, path);
    body = xasprintf("%s%c%s", path, 0, reach ? reach : "");
    put_frame(f, CHANNEL_DETACHED, body,
              strlen(path) + 1 + strlen(body + strlen(path) + 1));
    free(body);
    free(reach);
    f->has_child = false; /* its life is its own from here on */
    far_side_leave(f);
}

/* -- connections of tools ---------------------------------------------------------- */

static void put_tool_data(struct far_side *f, uint32_t number, const void *data,
                          size_t size)
{
    if (f->output)
        channel_put(bufferevent_get_output(f->output), CHANNEL_TOOL_OUT, number, data,
                    size);
}

static void on_tool_data(void *arg, uint32_t number, const void *data, size_t size)
{
    put_tool_data(arg, number, data, size);
    pause_full_output(arg);
}

static void on_tools_idle(void *arg)
{
    struct far_side *f = arg;

    if (f->is_leaving)
        far_side_leave(f);
}

static void handle_tool_open(struct far_side *f, const struct channel_frame *frame)
{
    int fd = f->has_child && !f->is_ending ? far_socket_connect(f->child.pid) : -1;

    if (fd < 0)
        put_tool_data(f, frame->number, NULL, 0);
    else
        tool_lines_add_numbered(f->tools, frame->number, fd);
}

static void handle_tool_in(struct far_side *f, const struct channel_frame *frame)
{
    tool_lines_write(f->tools, frame->number, frame->body, frame->size);
}

/* -- the launcher's frames --------------------------------------------------------- */

static void far_side_handle(struct far_side *f, const struct channel_frame *frame)
{
    static void (*const handlers[])(struct far_side *, const struct channel_frame *) = {
        [CHANNEL_ORDER] = handle_order,     [CHANNEL_START] = handle_start,
        [CHANNEL_SIGNAL] = handle_signal,   [CHANNEL_DRAIN] = handle_drain,
        [CHANNEL_STDIN] = handle_stdin,     [CHANNEL_PING] = NULL,
        [CHANNEL_DETACH] = handle_detach,   [CHANNEL_TOOL_OPEN] = handle_tool_open,
        [CHANNEL_TOOL_IN] = handle_tool_in, [CHANNEL_CLAIMED] = handle_claimed,
    };

    if (frame->type < sizeof(handlers) / sizeof(*handlers) && handlers[frame->type])
        handlers[frame->type](f, frame);
}

static void on_input(evutil_socket_t fd, short what, void *arg)
{
    struct far_side *f = arg;
    struct channel_frame frame;
    struct err e;
    char data[CHANNEL_DATA_MAX];
    ssize_t n = read(fd, data, sizeof(data));
    int rc;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        event_free(f->input);
        f->input = NULL;
        loop_timer_cancel(&f->silence);
        far_side_end(f);
        return;
    }
    channel_reader_add(&f->reader, data, (size_t)n);
    explicit_bzero(data, (size_t)n);
    while ((rc = channel_reader_next(&f->reader, &frame, &e)) > 0)
        far_side_handle(f, &frame);
    if (rc < 0)
        far_side_lose_launcher(f);
    else
        loop_timer_arm(&f->silence, clock_ms() + REMOTE_SILENCE_MS);
}

static void on_child_changed(void *arg, int signo)
{
    struct far_side *f = arg;
    int status;

    if (!f->has_child || f->has_exited ||
        waitpid(f->child.pid, &status, WNOHANG | WUNTRACED) <= 0)
        return;
    if (WIFSTOPPED(status)) { /* it has stopped itself after the order to go on */
        if (!f->is_suspended && WSTOPSIG(status) == SIGTSTP)
            signal_child(f, SIGCONT);
        return;
    }
    f->has_exited = true;
    f->exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (f->has_started)
        check_exit(f);
    else if (f->is_ending)
        far_side_leave(f);
}

/* -- start and end ----------------------------------------------------------------- */

static void send_channel_greeting(struct far_side *f)
{
    struct remote_hello hello = { .version = (char *)CRUN_VERSION,
                                  .channel = CHANNEL_VERSION };
    char host[HOST_NAME_MAX_BYTES + 1] = "";
    char *text;

    (void)!gethostname(host, sizeof(host) - 1);
    hello.host = host;
    hello.addresses = host_addresses_list(getenv("SSH_CONNECTION"));
    text = remote_hello_format(&hello);
    bufferevent_write(f->output, CHANNEL_GREETING, strlen(CHANNEL_GREETING));
    put_frame(f, CHANNEL_HELLO, text, strlen(text));
    free(text);
    for (char **a = hello.addresses; *a; a++)
        free(*a);
    free(hello.addresses);
}

static void far_side_open(struct far_side *f)
{
    const struct tool_lines_calls tools = { NULL, on_tool_data, on_tools_idle, f };
    struct event_base *base = loop_base(f->loop);

    f->tools = tool_lines_create(f->loop, &tools);
    fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
    fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
    f->input = event_new(base, STDIN_FILENO, EV_READ | EV_PERSIST, on_input, f);
    event_add(f->input, NULL);
    f->output = bufferevent_socket_new(base, STDOUT_FILENO, 0);
    bufferevent_setcb(f->output, NULL, on_output_written, on_output_lost, f);
    bufferevent_setwatermark(f->output, EV_WRITE, REMOTE_OUT_MAX / 2, 0);
    bufferevent_enable(f->output, EV_WRITE);
    loop_timer_init(&f->silence, f->loop, on_silence, f);
    loop_timer_init(&f->kill, f->loop, on_kill_due, f);
    loop_timer_init(&f->drain, f->loop, on_drain_over, f);
    loop_timer_arm(&f->silence, clock_ms() + REMOTE_SILENCE_MS);
    loop_on_signal(f->loop, SIGCHLD, on_child_changed, f);
}

/* sshd's SIGHUP and a scheduler's SIGTERM mean the end of the connection. */
static void on_end_signal(void *arg, int signo)
{
    far_side_end(arg);
}

int far_side_run(const struct far_side_calls *calls)
{
    struct far_side f = { .calls = calls, .loop = loop_create() };

    far_side_open(&f);
    loop_on_signal(f.loop, SIGTERM, on_end_signal, &f);
    loop_on_signal(f.loop, SIGHUP, on_end_signal, &f);
    loop_on_signal(f.loop, SIGINT, on_end_signal, &f);
    send_channel_greeting(&f);
    loop_run(f.loop);
    signal_child(&f, SIGKILL);
    tool_lines_destroy(f.tools);
    channel_reader_wipe(&f.reader);
    return f.has_exited ? f.exit_code : EX_UNAVAILABLE;
}
