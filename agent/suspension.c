/* SPDX-License-Identifier: MIT */
#include "agent/suspension.h"

#include <signal.h>
#include <unistd.h>

#include "agent/config.h"
#include "agent/guard/guard.h"
#include "agent/interface/status_line.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/proc.h"

#define OUTPUT_MS 30 /* in which the threads that write to the console finish */

/* As the kernel decides about SIGTSTP: whether a process of this session but of another
 * group, such as a shell, is an ancestor. */
static bool is_child_of_shell(void)
{
    pid_t group = getpgrp(), session = getsid(0);
    struct proc_stat stat;

    for (pid_t pid = getppid(); pid > 0; pid = stat.parent) {
        if (getpgid(pid) != group)
            return getsid(pid) == session;
        if (!proc_read_stat(pid, &stat))
            break;
    }
    return false;
}

static void signal_workers(const struct suspension *s, int signo)
{
    if (*s->guard)
        guard_signal(*s->guard, GUARD_ALL, signo);
}

static void on_suspension_timer(void *arg)
{
    struct suspension *s = arg;
    uint64_t since_ms = clock_ms();
    char took[32];
    struct sigaction stop = { .sa_handler = SIG_DFL }, before;

    if (loop_signal_waits(SIGCONT)) {
        signal_workers(s, SIGCONT);
        return;
    }
    signal_workers(s, SIGSTOP); /* also those that have started since */
    /* Returns after SIGCONT. */
    sigaction(SIGTSTP, &stop, &before);
    raise(SIGTSTP);
    sigaction(SIGTSTP, &before, NULL);
    s->resumed(s->arg);
    signal_workers(s, SIGCONT);
    clock_format_duration(clock_ms() - since_ms, took, sizeof(took));
    if (s->config->rendezvous != CONFIG_LOCAL)
        log_info("continued after %s", took);
}

/* A job of one node is quiet: only its shell says that it is stopped. */
static void announce_suspension(const struct suspension *s)
{
    if (s->config->rendezvous == CONFIG_LOCAL)
        return;
    if (!s->hosts_rendezvous)
        log_info("suspended: the job loses this node if it is not continued within "
                 "%g s",
                 s->config->job.lease_ms / 1000.0);
    else if (s->config->job.max_nodes > 1)
        log_info(
            "suspended, and the rendezvous with it: the job ends on the other nodes "
            "if it is not continued within %g s",
            s->config->job.lease_ms / 1000.0);
}

void suspension_begin(struct suspension *s)
{
    if (s->timer.armed || !is_child_of_shell())
        return;
    signal_workers(s, SIGSTOP);
    status_line_hide(s->status_line);
    announce_suspension(s);
    loop_timer_arm(&s->timer, clock_ms() + OUTPUT_MS);
}

void suspension_cancel(struct suspension *s)
{
    if (!s->timer.armed)
        return;
    loop_timer_cancel(&s->timer);
    signal_workers(s, SIGCONT);
}

void suspension_init(struct suspension *s, struct loop *loop)
{
    loop_timer_init(&s->timer, loop, on_suspension_timer, s);
}

void suspension_fini(struct suspension *s)
{
    loop_timer_fini(&s->timer);
}
