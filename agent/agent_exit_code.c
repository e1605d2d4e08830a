/* SPDX-License-Identifier: MIT */
/* The exit code of crun: the job's, and what changes it at this node. */
#include "agent/agent_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/interface/event_file.h"
#include "agent/interface/job_messages.h"
#include "agent/logs/logs.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/job/registry/exit_code.h"

const char *agent_result_name(const struct agent *a)
{
    if (a->result.reason != JOB_REASON_NONE)
        return proto_reason_name(a->result.reason);
    return agent_has_formed(a) ? "lost" : "not-formed";
}

const char *agent_end_state(const struct agent *a)
{
    switch (a->result.reason) {
    case JOB_REASON_NONE:
        return agent_result_name(a);
    case JOB_REASON_RELEASED:
        return "left";
    default:
        return "done";
    }
}

/* A job succeeds when all workers have ended well, and ours have not. */
static bool is_false_success(const struct agent *a, const struct msg_done *done)
{
    return done->reason == JOB_REASON_SUCCESS &&
           (a->state == AGENT_RUNNING || a->state == AGENT_STOPPING);
}

void agent_take_exit_code(struct agent *a, const struct msg_done *done)
{
    a->exit_code = done_exit_code(done);
    if (is_false_success(a, done)) {
        log_error("the rendezvous says that the job has succeeded, but the workers of "
                  "this node have not ended: they are stopped");
        a->exit_code = EXIT_FAILURE;
    }
    if (done->reason == JOB_REASON_RELEASED && a->leave_code) {
        a->exit_code = a->leave_code;
        if (*a->signals.sender)
            snprintf(a->result.text, sizeof(a->result.text), "%.400s: %s", done->text,
                     a->signals.sender);
    }
}

/* Lost output alone is an error, but never hides another one. */
void agent_report_result(struct agent *a, const struct logs_end *end)
{
    struct failure_report r = { .job = job_messages_job(a->messages),
                                .done = &a->result,
                                .others = &a->failures,
                                .epoch = a->epoch,
                                .own_host = a->host,
                                .is_first_nodes = job_messages_are_first_nodes(
                                    a->messages) };
    bool only_lost = end->has_lost && a->exit_code == 0;
    int exit_code = only_lost ? EX_IOERR : a->exit_code;

    if (end->open_line && (exit_code || a->result.reason == JOB_REASON_RELEASED))
        (void)!write(STDERR_FILENO, "\n", 1); /* there will be a message */
    event_file_add(a->events, "done", a->epoch, "%s, exit code %d",
                   agent_result_name(a), exit_code);
    failure_report_result(&r, a->exit_code);
    agent_end_local(a, &r);
    if (only_lost)
        log_error("exit code %d, because output was lost", exit_code);
    a->exit_code = exit_code;
}

/* The job's exit code if the signal ends it. */
int agent_code_of_signal(const struct agent *a)
{
    bool announced = a->signals.preempted || a->deadline.is_over;

    return announced && a->signo != SIGINT ? EXIT_REQUEUE : 128 + a->signo;
}

int agent_code_of_refusal(enum refusal why)
{
    switch (why) {
    case REFUSED_FENCED:
        return EX_TEMPFAIL;
    case REFUSED_ENDED:
        return 1;
    case REFUSED_UNFIT:
        return EX_UNAVAILABLE;
    default:
        return 2; /* usage */
    }
}
