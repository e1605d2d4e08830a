/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/notify/notify_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/show/notify/limits.h"
#include "rendezvous/show/notify/notify_lane.h"

#define SOCKET_FD 3
#define CHILDREN_FD 4

struct notify_state {
    struct notify_lane lane;
    bool ends; /* the program has closed its end */
    uint64_t until_ms;
};

/* It keeps nothing of the program but standard error. Privileges remain for a command
 * that needs them to send mail. */
static void give_up(int socket)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    sigset_t all, children;

    (void)prctl(PR_SET_NAME, "crun-notify");
    (void)prctl(PR_SET_DUMPABLE, 0);
    setsid(); /* Ctrl-C is not for it */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(SIGCHLD, SIG_DFL);
    (void)dup2(null, STDIN_FILENO);
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    if (socket != SOCKET_FD)
        (void)dup2(socket, SOCKET_FD);
    fd_close_from(SOCKET_FD + 1);
    (void)fcntl(SOCKET_FD, F_SETFD, FD_CLOEXEC);
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    if (signalfd(-1, &children, SFD_NONBLOCK | SFD_CLOEXEC) != CHILDREN_FD)
        _exit(EXIT_FAILURE);
}

/* The program may have been taken over: its texts end, and a bool is one. */
static void take_packet(struct notify_state *s, struct notify_packet *p)
{
    struct msg_event *event = &p->event;

    event->of_rank = *(const unsigned char *)&event->of_rank != 0;
    event->run_id[sizeof(event->run_id) - 1] = '\0';
    event->name[sizeof(event->name) - 1] = '\0';
    event->kind[sizeof(event->kind) - 1] = '\0';
    event->host[sizeof(event->host) - 1] = '\0';
    event->text[sizeof(event->text) - 1] = '\0';
    if (p->left_out)
        log_warn("%u events came too fast and were left out", p->left_out);
    notify_lane_add(&s->lane, event);
}

static void read_packets(struct notify_state *s)
{
    struct notify_packet p;
    ssize_t n = 1;

    while (n > 0) {
        n = recv(SOCKET_FD, &p, sizeof(p), MSG_DONTWAIT);
        if (n == (ssize_t)sizeof(p))
            take_packet(s, &p);
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    s->ends = true;
    s->until_ms = clock_ms() + NOTIFY_LAST_MS;
}

static void reap_commands(struct notify_state *s)
{
    struct signalfd_siginfo info;
    siginfo_t ended = { 0 };
    int status;

    while (read(CHILDREN_FD, &info, sizeof(info)) > 0)
        continue;
    while (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid) {
        kill(-ended.si_pid, SIGKILL); /* what it has left behind */
        (void)waitpid(ended.si_pid, &status, 0);
        notify_lane_reap(&s->lane, ended.si_pid, status);
        ended.si_pid = 0;
    }
}

/* How long it may wait; -1: until something comes. */
static int step_lane(struct notify_state *s)
{
    uint64_t now = clock_ms(), due = s->ends ? s->until_ms : UINT64_MAX;

    notify_lane_step(&s->lane, now);
    if (notify_lane_due(&s->lane) < due)
        due = notify_lane_due(&s->lane);
    if (due == UINT64_MAX)
        return -1;
    return due > now ? (int)(due - now) : 0;
}

static bool is_over(struct notify_state *s)
{
    unsigned left = s->lane.count;

    if (!s->ends)
        return false;
    if (left > 0 && clock_ms() < s->until_ms)
        return false;
    if (left > 0)
        log_warn("ending: %u event%s could not be told in time", left,
                 left == 1 ? "" : "s");
    notify_lane_kill(&s->lane);
    return true;
}

void notify_process_run(const struct notify_config *c, int socket)
{
    static struct notify_state s;
    struct pollfd p[] = { { .fd = SOCKET_FD, .events = POLLIN },
                          { .fd = CHILDREN_FD, .events = POLLIN } };

    give_up(socket);
    s.lane.command = c->command;
    s.lane.keep_closed = SOCKET_FD;
    while (!is_over(&s)) {
        int wait_ms = step_lane(&s);

        p[0].fd = s.ends ? -1 : SOCKET_FD;
        if (poll(p, 2, wait_ms) < 0)
            continue;
        if (p[0].revents)
            read_packets(&s);
        if (p[1].revents)
            reap_commands(&s);
    }
    _exit(EXIT_SUCCESS);
}
