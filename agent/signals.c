/* SPDX-License-Identifier: MIT */
#include "agent/signals.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/base/log.h"
#include "rendezvous/base/loop.h"
#include "rendezvous/protocol/message.h"

static enum signal_wish wish_to_leave(struct signals *s)
{
    static const enum signal_wish wishes[] = { SIGNAL_LEAVE, SIGNAL_HURRY };
    unsigned before = s->leaves++;

    if (before == 0 && s->preempted)
        return SIGNAL_NOTHING_NEW;
    return before < sizeof(wishes) / sizeof(wishes[0]) ? wishes[before] : SIGNAL_GO;
}

enum signal_wish signals_wish(struct signals *s, int signo)
{
    unsigned before;

    if (signo != SIGINT && !s->stays && s->ends == 0)
        return wish_to_leave(s);
    before = s->ends++;
    if (before == 0)
        return SIGNAL_END;
    return signo == SIGINT || before > 1 ? SIGNAL_KILL : SIGNAL_NOTHING_NEW;
}

enum signal_wish signals_wish_preempted(struct signals *s)
{
    bool asked = s->preempted || s->leaves > 0 || s->ends > 0;

    s->preempted = true;
    if (asked)
        return SIGNAL_NOTHING_NEW;
    return s->stays ? SIGNAL_END : SIGNAL_LEAVE;
}

static const struct {
    enum msg_type report;
    bool now;
} reports[SIGNAL_WISH_COUNT] = {
    [SIGNAL_LEAVE] = { MSG_LEAVE, false },
    [SIGNAL_HURRY] = { MSG_LEAVE, true },
    [SIGNAL_END] = { MSG_END, false },
    [SIGNAL_KILL] = { MSG_END, true },
};

bool signals_report(enum signal_wish wish, int exit_code, const char *reason,
                    struct msg *m)
{
    *m = (struct msg){ .type = reports[wish].report };
    if (m->type == MSG_LEAVE) {
        m->leave = (struct msg_leave){ .exit_code = exit_code,
                                       .now = reports[wish].now };
        snprintf(m->leave.reason, sizeof(m->leave.reason), "%s", reason);
    } else if (m->type == MSG_END) {
        m->end = (struct msg_end){ .exit_code = exit_code, .now = reports[wish].now };
        snprintf(m->end.reason, sizeof(m->end.reason), "%s", reason);
    }
    return m->type;
}

static void on_signal(void *arg, int signo)
{
    struct signals *s = arg;

    s->fn(s->arg, signo, signals_wish(s, signo));
}

static void on_preempted(void *arg, int signo)
{
    struct signals *s = arg;

    (void)signo;
    if (!s->preempted)
        log_info("SIGUSR1: this node is to be taken away");
    s->fn(s->arg, SIGTERM, signals_wish_preempted(s));
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
