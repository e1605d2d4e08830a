/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/events/notify_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
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
#include "rendezvous/job/events/event_object.h"
#include "rendezvous/job/events/notify_environment.h"

#define COMMAND_MS 30000 /* that a command may take */
#define SOCKET_FD 3
#define CHILDREN_FD 4

/* Commands run one at a time. The events that wait are in the socket. */
struct notify_state {
    const char *command;
    uint64_t until_ms; /* the program has closed its end; UINT64_MAX: not yet */
    bool fails;        /* the last command has failed, which was reported */
    unsigned untold;
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
static void packet_check(struct notify_packet *p)
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
}

/* A pipe that has the event; its size is less than what a pipe holds. */
static int make_input(const struct msg_event *event)
{
    char *line = event_object_message(event);
    int end[2];

    if (!line || pipe2(end, O_CLOEXEC | O_NONBLOCK) < 0) {
        free(line);
        return -1;
    }
    (void)!write(end[1], line, strlen(line));
    (void)!write(end[1], "\n", 1);
    close(end[1]);
    fcntl(end[0], F_SETFL, 0);
    free(line);
    return end[0];
}

static void child_run(const char *command, const struct msg_event *event, pid_t parent,
                      int input)
{
    sigset_t none;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_FAILURE);
    for (int signo = 1; signo < NSIG; signo++)
        signal(signo, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    notify_environment_set(event);
    if (dup2(input, STDIN_FILENO) < 0)
        _exit(EXIT_FAILURE);
    fd_close_from(STDERR_FILENO + 1);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

/* False: its time is over. */
static bool wait_for_command(struct notify_state *s, pid_t child)
{
    struct pollfd p[] = { { .fd = CHILDREN_FD, .events = POLLIN },
                          { .fd = SOCKET_FD, .events = POLLRDHUP } };
    uint64_t now = clock_ms(), due = now + COMMAND_MS, until;
    struct signalfd_siginfo info;
    siginfo_t ended = { 0 };

    while (waitid(P_PID, (id_t)child, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           !ended.si_pid) {
        until = due < s->until_ms ? due : s->until_ms;
        now = clock_ms();
        if (now >= until)
            return false;
        p[1].fd = s->until_ms == UINT64_MAX ? SOCKET_FD : -1;
        if (poll(p, 2, (int)(until - now)) > 0 && p[1].revents)
            s->until_ms = clock_ms() + NOTIFY_LAST_MS;
        while (read(CHILDREN_FD, &info, sizeof(info)) > 0)
            continue;
    }
    return true;
}

/* Once for failures in a row. */
static void report_result(struct notify_state *s, const char *kind, bool in_time,
                          int status)
{
    bool failed = !in_time || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    char why[64];

    if (!in_time)
        snprintf(why, sizeof(why), "it takes more than %d s", COMMAND_MS / 1000);
    else if (WIFSIGNALED(status))
        snprintf(why, sizeof(why), "killed by signal %d", WTERMSIG(status));
    else
        snprintf(why, sizeof(why), "exit code %d", WEXITSTATUS(status));
    if (failed && !s->fails)
        log_warn("--on-event: the command has failed for the event \"%s\": %s", kind,
                 why);
    else if (!failed && s->fails)
        log_info("--on-event works again");
    s->fails = failed;
}

static void run_command(struct notify_state *s, const struct msg_event *event)
{
    int input = make_input(event), status = 0;
    pid_t parent = getpid(), child = input >= 0 ? fork() : -1;
    bool in_time;

    if (child == 0)
        child_run(s->command, event, parent, input);
    if (child < 0)
        log_warn("--on-event: cannot start a process: %s", strerror(errno));
    if (input >= 0)
        close(input);
    if (child < 0)
        return;
    setpgid(child, child);
    in_time = wait_for_command(s, child);
    kill(-child, SIGKILL); /* and what it has left behind */
    kill(child, SIGKILL);
    (void)waitpid(child, &status, 0);
    if (in_time || clock_ms() < s->until_ms)
        report_result(s, event->kind, in_time, status);
    else
        s->untold++;
}

void notify_process_run(const struct notify_config *c, int socket)
{
    struct notify_state s = { .command = c->command, .until_ms = UINT64_MAX };
    struct notify_packet p;
    ssize_t n;

    give_up(socket);
    while ((n = recv(SOCKET_FD, &p, sizeof(p), 0)) > 0 || (n < 0 && errno == EINTR)) {
        if (n != (ssize_t)sizeof(p))
            continue;
        packet_check(&p);
        if (clock_ms() < s.until_ms)
            run_command(&s, &p.event);
        else
            s.untold++;
    }
    if (s.untold > 0)
        log_warn("ending: %u event%s could not be told in time", s.untold,
                 s.untold == 1 ? "" : "s");
    _exit(EXIT_SUCCESS);
}
