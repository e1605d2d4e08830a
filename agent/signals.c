/* SPDX-License-Identifier: MIT */
#include "agent/signals.h"

#include <stdbool.h>

#include "rendezvous/base/loop.h"

static void on_signal(void *arg, int signo)
{
    const struct signals *s = arg;

    s->fn(s->arg, signo);
}

static void on_preempted(void *arg, int signo)
{
    const struct signals *s = arg;

    (void)signo;
    s->preempted(s->arg);
}

static bool is_ignored(int signo)
{
    struct sigaction old;

    return sigaction(signo, NULL, &old) == 0 && old.sa_handler == SIG_IGN;
}

void signals_watch(struct signals *s, struct loop *loop, const struct config *config)
{
    bool preemption = !is_ignored(SIGUSR1);

    sigemptyset(&s->ignored);
    for (const int *signo = config->signals; *signo; signo++) {
        if (is_ignored(*signo))
            sigaddset(&s->ignored, *signo);
        if (*signo != SIGHUP || !sigismember(&s->ignored, SIGHUP)) /* under nohup */
            loop_on_signal(loop, *signo, on_signal, s);
        preemption &= *signo != SIGUSR1;
    }
    if (preemption)
        loop_on_signal(loop, SIGUSR1, on_preempted, s);
    signal(SIGTSTP, SIG_IGN); /* a stopped agent would be taken for a dead node */
    signal(SIGTTOU, SIG_IGN);
}

int signals_for_workers(const struct signals *s, int signo)
{
    return signo && !sigismember(&s->ignored, signo) ? signo : SIGTERM;
}
