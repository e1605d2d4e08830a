/* SPDX-License-Identifier: MIT */
/* What a signal means for this node and the job, and which workers it has ended. */
#include <stdio.h>

#include "agent/signals.h"
#include "rendezvous/wire/protocol/message.h"

#define SAME_SIGNAL_MS 2000

static enum signal_action next_leave_action(struct signals *s)
{
    static const enum signal_action actions[] = { SIGNAL_LEAVE, SIGNAL_LEAVE_FAST };
    unsigned before = s->leaves++;

    return before < sizeof(actions) / sizeof(actions[0]) ? actions[before]
                                                         : SIGNAL_LEAVE_KILLED;
}

static bool is_repeated(struct signals *s, int signo, uint64_t now_ms)
{
    uint64_t *counted_ms = &s->counted_ms[signo];

    if (signo != SIGINT && *counted_ms && now_ms - *counted_ms < SAME_SIGNAL_MS)
        return true;
    *counted_ms = now_ms;
    return false;
}

enum signal_action signals_action(struct signals *s, int signo, uint64_t now_ms)
{
    unsigned before;

    if (is_repeated(s, signo, now_ms))
        return SIGNAL_NO_CHANGE;
    if (signo != SIGINT && !s->cannot_leave && s->ends == 0)
        return next_leave_action(s);
    before = s->ends++;
    if (before == 0)
        return SIGNAL_END;
    return signo == SIGINT || before > 1 ? SIGNAL_KILL : SIGNAL_NO_CHANGE;
}

enum signal_action signals_action_preempted(struct signals *s)
{
    bool asked = s->preempted || s->leaves > 0 || s->ends > 0;

    s->preempted = true;
    if (asked)
        return SIGNAL_NO_CHANGE;
    return s->cannot_leave || s->all_are_preempted ? SIGNAL_END : SIGNAL_LEAVE;
}

static const struct {
    enum msg_type report;
    bool now;
} reports[SIGNAL_ACTION_COUNT] = {
    [SIGNAL_LEAVE] = { MSG_LEAVE, false },
    [SIGNAL_LEAVE_FAST] = { MSG_LEAVE, true },
    [SIGNAL_END] = { MSG_END, false },
    [SIGNAL_KILL] = { MSG_END, true },
};

bool signals_report(enum signal_action action, int exit_code, const char *reason,
                    struct msg *m)
{
    *m = (struct msg){ .type = reports[action].report };
    if (m->type == MSG_LEAVE) {
        m->leave = (struct msg_leave){ .exit_code = exit_code,
                                       .now = reports[action].now };
        snprintf(m->leave.reason, sizeof(m->leave.reason), "%s", reason);
    } else if (m->type == MSG_END) {
        m->end = (struct msg_end){ .exit_code = exit_code, .now = reports[action].now };
        snprintf(m->end.reason, sizeof(m->end.reason), "%s", reason);
    }
    return m->type;
}

bool signals_ended(const struct failure *f)
{
    if (f->kind == FAILURE_SIGNAL)
        return f->code == SIGTERM || f->code == SIGUSR1;
    return f->kind == FAILURE_EXIT &&
           (f->code == 128 + SIGTERM || f->code == 128 + SIGUSR1);
}
