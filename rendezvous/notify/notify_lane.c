/* SPDX-License-Identifier: MIT */
#include "rendezvous/notify/notify_lane.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/base/fd.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/xalloc.h"
#include "rendezvous/events/event_object.h"
#include "rendezvous/notify/notify_environment.h"

#define EXIT_FAILED 1
#define EXIT_HOPELESS 2 /* to try again does not help */
#define WHY_SIZE 300

void notify_lane_init(struct notify_lane *l, enum notify_lane_kind kind,
                      const char *target, const char *token_file, int keep_closed)
{
    static const char *const flags[] = { [NOTIFY_LANE_COMMAND] = "--on-event",
                                         [NOTIFY_LANE_WEBHOOK] = "--webhook",
                                         [NOTIFY_LANE_BEAT] = "--heartbeat-url" };
    struct err e;

    *l = (struct notify_lane){ .kind = kind,
                               .flag = flags[kind],
                               .target = target,
                               .token_file = token_file,
                               .keep_closed = keep_closed,
                               .why = -1 };
    if (target && kind != NOTIFY_LANE_COMMAND &&
        https_url_parse_any(target, &l->url, &e) < 0)
        l->target = NULL; /* was checked before */
}

void notify_lane_add(struct notify_lane *l, const struct msg_event *event)
{
    if (!l->target)
        return;
    if (l->count == NOTIFY_QUEUE_MAX) {
        if (l->left_out++ == 0)
            log_warn("%s: events come faster than they can be told: some are left out",
                     l->flag);
        return;
    }
    l->waiting[l->count] = xmalloc(sizeof(*event));
    *l->waiting[l->count++] = *event;
}

static void lane_drop_first(struct notify_lane *l)
{
    free(l->waiting[0]);
    memmove(&l->waiting[0], &l->waiting[1], --l->count * sizeof(l->waiting[0]));
    l->tries = 0;
    l->due_ms = 0;
    if (l->count == 0 && l->left_out > 0) {
        log_warn("%s: %u event%s left out", l->flag, l->left_out,
                 l->left_out == 1 ? " was" : "s were");
        l->left_out = 0;
    }
}

/* -- in the child ------------------------------------------------------------------ */

static void child_begin(const struct notify_lane *l, pid_t parent)
{
    sigset_t none;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_FAILED);
    for (int signo = 1; signo < NSIG; signo++)
        signal(signo, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    close(l->keep_closed);
}

static void child_run_command(const struct notify_lane *l, int input)
{
    notify_environment_set(l->waiting[0]);
    if (dup2(input, STDIN_FILENO) < 0)
        _exit(EXIT_FAILED);
    fd_close_from(STDERR_FILENO + 1);
    execl("/bin/sh", "sh", "-c", l->target, (char *)NULL);
    _exit(127);
}

static void child_say_why(int why, const char *text)
{
    (void)!write(why, text, strlen(text));
}

/* Only the server's address is told: the rest of a URL may be secret. */
static void child_send_request(const struct notify_lane *l, int why)
{
    struct https_request r = { .json = NULL };
    static char token[HTTPS_TOKEN_SIZE];
    char text[64];
    struct err e;
    int status;

    signal(SIGPIPE, SIG_IGN);
    if (l->kind == NOTIFY_LANE_WEBHOOK)
        r.json = event_object_message(l->waiting[0]);
    if (l->token_file) {
        if (https_read_token(l->token_file, token, &e) < 0) {
            child_say_why(why, e.text);
            _exit(EXIT_HOPELESS);
        }
        r.token = token;
    }
    status = https_send(&l->url, &r, &e);
    if (status >= 200 && status < 300)
        _exit(0);
    snprintf(text, sizeof(text), "it answers with status %d", status);
    child_say_why(why, status < 0 ? e.text : text);
    _exit(status >= 300 && status < 500 && status != 408 && status != 429
              ? EXIT_HOPELESS
              : EXIT_FAILED);
}

/* -- starting and ending it -------------------------------------------------------- */

/* A pipe that has the event; its size is less than what a pipe holds. */
static int make_input(const struct msg_event *event)
{
    char *line = event_object_line(event);
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

static void lane_start(struct notify_lane *l, uint64_t now_ms)
{
    bool is_command = l->kind == NOTIFY_LANE_COMMAND;
    int why[2] = { -1, -1 }, input = is_command ? make_input(l->waiting[0]) : -1;
    pid_t parent = getpid();

    if (pipe2(why, O_CLOEXEC | O_NONBLOCK) == 0 && (!is_command || input >= 0))
        l->child = fork();
    else
        l->child = -1;
    if (l->child == 0) {
        child_begin(l, parent);
        if (is_command)
            child_run_command(l, input);
        child_send_request(l, why[1]);
    }
    if (input >= 0)
        close(input);
    if (why[1] >= 0)
        close(why[1]);
    if (l->child < 0) {
        log_warn("%s: cannot start a process: %s", l->flag, strerror(errno));
        if (why[0] >= 0)
            close(why[0]);
        l->child = 0;
        lane_drop_first(l);
        return;
    }
    setpgid(l->child, l->child);
    l->why = why[0];
    l->tries++;
    l->is_late = false;
    l->due_ms = now_ms + (is_command ? NOTIFY_COMMAND_MS : NOTIFY_REQUEST_MS);
}

/* What the child has said, or how it has ended. */
static void lane_read_why(const struct notify_lane *l, int status, char *buf)
{
    ssize_t n = read(l->why, buf, WHY_SIZE - 1);

    buf[n > 0 ? n : 0] = '\0';
    if (n > 0)
        return;
    if (l->is_late)
        snprintf(
            buf, WHY_SIZE, "it takes more than %d s",
            (l->kind == NOTIFY_LANE_COMMAND ? NOTIFY_COMMAND_MS : NOTIFY_REQUEST_MS) /
                1000);
    else if (WIFSIGNALED(status))
        snprintf(buf, WHY_SIZE, "killed by signal %d", WTERMSIG(status));
    else
        snprintf(buf, WHY_SIZE, "exit code %d", WEXITSTATUS(status));
}

static void lane_tell_failure(struct notify_lane *l, const char *why, bool goes_on)
{
    if (l->fails)
        return;
    l->fails = true;
    if (l->kind == NOTIFY_LANE_COMMAND)
        log_warn("%s: the command has failed for the event \"%s\": %s", l->flag,
                 l->waiting[0]->kind, why);
    else
        log_warn("%s: %s:%u: %s%s", l->flag, l->url.host, l->url.port, why,
                 goes_on ? "; trying again" : "");
}

void notify_lane_reap(struct notify_lane *l, pid_t pid, int status, uint64_t now_ms)
{
    bool is_hopeless = (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_HOPELESS) ||
                       (l->ends && l->fails);
    bool goes_on = l->kind == NOTIFY_LANE_WEBHOOK && l->tries < NOTIFY_TRIES &&
                   !is_hopeless;
    uint64_t pause = l->ends ? NOTIFY_LAST_RETRY_MS : NOTIFY_RETRY_MS;
    char why[WHY_SIZE];

    if (l->child == 0 || pid != l->child)
        return;
    l->child = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        if (l->fails)
            log_info("%s works again", l->flag);
        l->fails = false;
        lane_drop_first(l);
    } else {
        lane_read_why(l, status, why);
        lane_tell_failure(l, why, goes_on);
        for (unsigned i = 1; i < l->tries && !l->ends; i++)
            pause *= 3;
        if (goes_on)
            l->due_ms = now_ms + pause;
        else
            lane_drop_first(l);
    }
    close(l->why);
    l->why = -1;
}

void notify_lane_step(struct notify_lane *l, uint64_t now_ms)
{
    if (l->child > 0 && now_ms >= l->due_ms && !l->is_late) {
        l->is_late = true;
        notify_lane_kill(l);
    } else if (l->child == 0 && l->count > 0 && now_ms >= l->due_ms) {
        lane_start(l, now_ms);
    }
}

uint64_t notify_lane_due(const struct notify_lane *l)
{
    if (l->child > 0)
        return l->is_late ? UINT64_MAX : l->due_ms;
    return l->count > 0 ? l->due_ms : UINT64_MAX;
}

bool notify_lane_is_idle(const struct notify_lane *l)
{
    return l->child == 0 && l->count == 0;
}

void notify_lane_hurry(struct notify_lane *l, uint64_t now_ms)
{
    l->ends = true;
    if (l->child == 0 && l->due_ms > now_ms + NOTIFY_LAST_RETRY_MS)
        l->due_ms = now_ms + NOTIFY_LAST_RETRY_MS;
}

void notify_lane_kill(struct notify_lane *l)
{
    if (l->child <= 0)
        return;
    kill(-l->child, SIGKILL);
    kill(l->child, SIGKILL);
}
