/* SPDX-License-Identifier: MIT */
#include "agent/signals.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/proc.h"
#include "rendezvous/common/base/text.h"

/* The far side of crun -H, our parent, forwards the signals that the launcher got. */
static bool is_launcher(pid_t pid)
{
    struct proc_stat parent, own;

    return pid == getppid() && proc_read_stat(pid, &parent) &&
           proc_read_stat(getpid(), &own) && strcmp(parent.name, own.name) == 0;
}

/* The process may have ended since. */
static void describe_sender(const struct signal_sender *sender, char *buf, size_t size)
{
    struct proc_stat stat;
    char name[4 * PROC_NAME_SIZE];

    if (sender->pid == 0)
        snprintf(buf, size, "a process outside of this container");
    else if (is_launcher(sender->pid))
        snprintf(buf, size, "its launcher");
    else if (proc_read_stat(sender->pid, &stat))
        snprintf(buf, size, "pid %d (%s)", (int)sender->pid,
                 text_printable(stat.name, name, sizeof(name)));
    else
        snprintf(buf, size, "pid %d (uid %u)", (int)sender->pid, (unsigned)sender->uid);
}

char *signals_describe(int signo, const struct signal_sender *sender, char *buf,
                       size_t size)
{
    const char *name = text_signal(signo);
    char process[SIGNAL_SENDER_MAX_BYTES + 1];

    describe_sender(sender, process, sizeof(process));
    if (sender->is_process)
        snprintf(buf, size, "%s%.16s from %.*s", name ? "SIG" : "signal ",
                 name ? name : "?", (int)sizeof(process) - 18, process);
    else if (signo == SIGINT)
        snprintf(buf, size, "Ctrl-C");
    else
        snprintf(buf, size, "SIG%s from the terminal", name ? name : "?");
    return buf;
}

static void note_sender(struct signals *s, int signo)
{
    struct signal_sender sender = loop_signal_sender(signo);
    bool passed_on = s->launcher && sender.pid == s->launcher;

    s->typed = !sender.is_process || (passed_on && signo == SIGINT);
    if (s->typed)
        sender.is_process = false;
    signals_describe(signo, &sender, s->sender, sizeof(s->sender));
    if (passed_on && !s->typed)
        snprintf(s->sender, sizeof(s->sender), "SIG%s from the launcher",
                 text_signal(signo));
}

static void on_job_signal(void *arg, int signo)
{
    struct signals *s = arg;

    note_sender(s, signo);
    s->announces = false;
    s->fn(s->arg, signo, signals_action(s, signo, clock_ms()));
}

static void on_preempted(void *arg, int signo)
{
    struct signals *s = arg;
    enum signal_action action = signals_action_preempted(s);

    if (action == SIGNAL_NO_CHANGE)
        return;
    note_sender(s, signo);
    s->announces = true;
    log_info("%s: this node will be taken away soon", s->sender);
    s->fn(s->arg, SIGTERM, action);
}

static void on_suspend(void *arg, int signo)
{
    struct signals *s = arg;

    s->suspend(s->arg, signo);
}

static bool is_signal_ignored(int signo)
{
    struct sigaction old;

    return sigaction(signo, NULL, &old) == 0 && old.sa_handler == SIG_IGN;
}

void signals_watch(struct signals *s, struct loop *loop, const struct config *config)
{
    bool preemption = !is_signal_ignored(SIGUSR1);
    bool suspension = !is_signal_ignored(SIGTSTP);

    s->launcher = config->key_text ? getppid() : 0;
    sigemptyset(&s->ignored);
    for (const int *signo = config->signals; *signo; signo++) {
        if (is_signal_ignored(*signo))
            sigaddset(&s->ignored, *signo);
        if (*signo != SIGHUP || !sigismember(&s->ignored, SIGHUP)) /* under nohup */
            loop_on_signal(loop, *signo, on_job_signal, s);
        preemption &= *signo != SIGUSR1;
        suspension &= *signo != SIGTSTP;
    }
    if (preemption)
        loop_on_signal(loop, SIGUSR1, on_preempted, s);
    if (suspension) {
        loop_on_signal(loop, SIGTSTP, on_suspend, s);
        loop_on_signal(loop, SIGCONT, on_suspend, s);
    }
    signal(SIGTTOU, SIG_IGN);
}

int signals_for_workers(const struct signals *s, int signo)
{
    return signo && !sigismember(&s->ignored, signo) ? signo : SIGTERM;
}
