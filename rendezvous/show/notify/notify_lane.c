/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/notify/notify_lane.h"

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

#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/events/event_object.h"
#include "rendezvous/show/notify/notify_environment.h"

void notify_lane_add(struct notify_lane *l, const struct msg_event *event)
{
    if (l->count == NOTIFY_QUEUE_MAX) {
        if (l->left_out++ == 0)
            log_warn("--on-event: events come faster than the command ends: some are "
                     "left out");
        return;
    }
    l->waiting[l->count] = xmalloc(sizeof(*event));
    *l->waiting[l->count++] = *event;
}

static void lane_drop_first(struct notify_lane *l)
{
    free(l->waiting[0]);
    memmove(&l->waiting[0], &l->waiting[1], --l->count * sizeof(l->waiting[0]));
    if (l->count == 0 && l->left_out > 0) {
        log_warn("--on-event: %u event%s left out", l->left_out,
                 l->left_out == 1 ? " was" : "s were");
        l->left_out = 0;
    }
}

/* -- in the child ------------------------------------------------------------------ */

static void child_run(const struct notify_lane *l, pid_t parent, int input)
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
    close(l->keep_closed);
    notify_environment_set(l->waiting[0]);
    if (dup2(input, STDIN_FILENO) < 0)
        _exit(EXIT_FAILURE);
    fd_close_from(STDERR_FILENO + 1);
    execl("/bin/sh", "sh", "-c", l->command, (char *)NULL);
    _exit(127);
}

/* -- starting and ending it -------------------------------------------------------- */

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

static void lane_start(struct notify_lane *l, uint64_t now_ms)
{
    int input = make_input(l->waiting[0]);
    pid_t parent = getpid();

    l->child = input >= 0 ? fork() : -1;
    if (l->child == 0)
        child_run(l, parent, input);
    if (input >= 0)
        close(input);
    if (l->child < 0) {
        log_warn("--on-event: cannot start a process: %s", strerror(errno));
        l->child = 0;
        lane_drop_first(l);
        return;
    }
    setpgid(l->child, l->child);
    l->is_late = false;
    l->due_ms = now_ms + NOTIFY_COMMAND_MS;
}

static void lane_report_failure(const struct notify_lane *l, int status)
{
    char why[64];

    if (l->is_late)
        snprintf(why, sizeof(why), "it takes more than %d s", NOTIFY_COMMAND_MS / 1000);
    else if (WIFSIGNALED(status))
        snprintf(why, sizeof(why), "killed by signal %d", WTERMSIG(status));
    else
        snprintf(why, sizeof(why), "exit code %d", WEXITSTATUS(status));
    log_warn("--on-event: the command has failed for the event \"%s\": %s",
             l->waiting[0]->kind, why);
}

void notify_lane_reap(struct notify_lane *l, pid_t pid, int status)
{
    bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;

    if (l->child == 0 || pid != l->child)
        return;
    l->child = 0;
    if (failed && !l->fails)
        lane_report_failure(l, status);
    else if (!failed && l->fails)
        log_info("--on-event works again");
    l->fails = failed;
    lane_drop_first(l);
}

void notify_lane_step(struct notify_lane *l, uint64_t now_ms)
{
    if (l->child > 0 && now_ms >= l->due_ms && !l->is_late) {
        l->is_late = true;
        notify_lane_kill(l);
    } else if (l->child == 0 && l->count > 0) {
        lane_start(l, now_ms);
    }
}

uint64_t notify_lane_due(const struct notify_lane *l)
{
    if (l->child > 0)
        return l->is_late ? UINT64_MAX : l->due_ms;
    return l->count > 0 ? 0 : UINT64_MAX;
}

void notify_lane_kill(struct notify_lane *l)
{
    if (l->child <= 0)
        return;
    kill(-l->child, SIGKILL);
    kill(l->child, SIGKILL);
}
