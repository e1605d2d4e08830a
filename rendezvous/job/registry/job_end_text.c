/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/registry/job_end_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/common/base/text.h"

/* "SIGKILL", or "signal 34" for one without a name. */
static void describe_signal(int32_t signo, char *buf, size_t size)
{
    const char *name = text_signal(signo);

    if (name)
        snprintf(buf, size, "SIG%s", name);
    else
        snprintf(buf, size, "signal %" PRId32, signo);
}

/* "exit code 85". Returns buf. */
static char *describe_end(const struct failure *f, char *buf, size_t size)
{
    char signal[32];

    switch (f->kind) {
    case FAILURE_EXIT:
        snprintf(buf, size, "exit code %" PRId32, f->code);
        break;
    case FAILURE_SIGNAL:
        describe_signal(f->code, signal, sizeof(signal));
        snprintf(buf, size, "killed by %s%s", signal,
                 f->out_of_memory ? ", out of memory" : "");
        break;
    case FAILURE_EXEC:
        snprintf(buf, size, "could not be started");
        break;
    case FAILURE_LOST:
        snprintf(buf, size, "the node was lost");
        break;
    case FAILURE_HANG:
        snprintf(buf, size, "no progress");
        break;
    default:
        snprintf(buf, size, "the agent failed");
    }
    return buf;
}

char *job_describe_failure(const struct failure *f, char *buf, size_t size)
{
    const char *host = *f->host ? f->host : "?";
    const char *final = !f->final                    ? ""
                        : f->code == EXIT_CODE_FINAL ? " (final)"
                                                     : " (final by --no-restart-on)";
    char signal[32];

    switch (f->kind) {
    case FAILURE_EXIT:
        snprintf(buf, size, "rank %" PRIu32 " on %s exited with code %" PRId32 "%s",
                 f->rank, host, f->code, final);
        break;
    case FAILURE_SIGNAL:
        describe_signal(f->code, signal, sizeof(signal));
        snprintf(buf, size, "rank %" PRIu32 " on %s was killed by %s%s%s", f->rank,
                 host, signal, f->out_of_memory ? ", out of memory" : "", final);
        break;
    case FAILURE_EXEC:
        snprintf(buf, size, "rank %" PRIu32 " on %s could not be started: %s", f->rank,
                 host, strerror(f->code));
        break;
    case FAILURE_LOST:
        snprintf(buf, size, "node %s was lost", host);
        break;
    case FAILURE_HANG:
        snprintf(buf, size, "rank %" PRIu32 " on %s hangs: %s", f->rank, host,
                 *f->what ? f->what : "no progress");
        break;
    case FAILURE_AGENT:
        snprintf(buf, size, "the agent on %s failed: %s", host, f->what);
        break;
    default:
        snprintf(buf, size, "no failure");
    }
    return buf;
}

void job_set_ended_by(struct job *j, const char *fmt, ...)
{
    va_list ap;

    if (j->membership.stop.ending)
        return;
    va_start(ap, fmt);
    vsnprintf(j->ended_by, sizeof(j->ended_by), fmt, ap);
    va_end(ap);
}

void job_add_hang_line(struct job *j, const char *fmt, ...)
{
    size_t used = strlen(j->failure.said);
    char line[FAILURE_TEXT_MAX_BYTES + 1];
    va_list ap;
    int length;

    va_start(ap, fmt);
    length = vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    if (j->failure.kind == FAILURE_HANG &&
        length + 2 < (int)(sizeof(j->failure.said) - used))
        snprintf(j->failure.said + used, sizeof(j->failure.said) - used, "%s%s", line,
                 length && line[length - 1] == '\n' ? "" : "\n");
}

void job_add_afterwards(struct job *job, const struct failure *f)
{
    size_t used = strlen(job->afterwards);
    char line[256], end[64], error[128], what[192];
    unsigned lines = 0;
    size_t size;

    for (const char *at = job->afterwards; (at = strchr(at, '\n')); at++)
        lines++;
    text_printable(f->error, error, sizeof(error));
    snprintf(what, sizeof(what), "%s%s%s%s%s", describe_end(f, end, sizeof(end)),
             *error ? ", \"" : "", error, *error ? "\"" : "",
             f->origin == FAILURE_ORIGIN_PEER ? ": a consequence" : "");
    size = (size_t)snprintf(line, sizeof(line), "%s %" PRIu32 " %s\n", f->host, f->rank,
                            what);
    if (lines < AFTERWARDS_LINES_MAX && size < sizeof(line) &&
        used + size < sizeof(job->afterwards))
        memcpy(job->afterwards + used, line, size + 1);
}

void job_set_failure_text(struct job *job)
{
    size_t used;

    job_describe_failure(&job->failure, job->text, sizeof(job->text));
    used = strlen(job->text);
    if (job->membership.stop.too_young)
        snprintf(job->text + used, sizeof(job->text) - used,
                 ", and its epoch was younger than --restart-min-uptime (%g s)",
                 job->membership.config.restart_min_uptime_ms / 1e3);
    if (job->membership.stop.no_progress)
        snprintf(job->text + used, sizeof(job->text) - used,
                 ", and %" PRIu32 " restart%s brought no new step (--max-no-progress)",
                 job->membership.progress.restarts,
                 text_plural(job->membership.progress.restarts));
}

const char *job_ended_by_text(const struct job *job)
{
    return *job->ended_by ? job->ended_by : "ended by the user";
}

const char *job_stop_text(const struct job *job)
{
    switch (job->membership.stop.cause) {
    case JOB_CAUSE_SCALE_UP:
    case JOB_CAUSE_DRAIN:
        return job->change;
    case JOB_CAUSE_USER:
        return job_ended_by_text(job);
    default: /* the failure, or the lost node */
        return job->text;
    }
}

static bool is_newcomer(const struct membership_node *n)
{
    return n->state == MEMBERSHIP_NODE_WAITING && n->connected && !n->leaving &&
           !n->quarantined; /* it waits until other nodes leave */
}

static bool is_leaving(const struct membership_node *n)
{
    return n->leaving && n->state != MEMBERSHIP_NODE_FREE &&
           n->state != MEMBERSHIP_NODE_DISMISSED;
}

/* "node-3, node-4 and 7 more have joined": as many names as there is room for. */
void job_set_change_text(struct job *job)
{
    bool drain = job->membership.stop.cause == JOB_CAUSE_DRAIN;
    char names[sizeof(job->change) - 64] = "", more[32] = "";
    unsigned nodes = 0, left_out = 0;
    size_t at = 0;

    MEMBERSHIP_EACH(i, &job->membership) {
        const struct membership_node *n = &job->membership.node[i];
        size_t size;

        if (drain ? !is_leaving(n) : !is_newcomer(n))
            continue;
        size = (size_t)snprintf(names + at, sizeof(names) - at, "%s%s",
                                nodes++ ? ", " : "", job->node[i]->host);
        if (left_out || at + size >= sizeof(names))
            names[at] = '\0', left_out++;
        else
            at += size;
    }
    if (left_out)
        snprintf(more, sizeof(more), " and %u more", left_out);
    snprintf(job->change, sizeof(job->change), "%s%s %s", nodes ? names : "a node",
             more,
             nodes > 1 ? (drain ? "leave" : "have joined")
                       : (drain ? "leaves" : "has joined"));
}

static void set_text_of_vain_wait(struct job *job)
{
    const struct membership *membership = &job->membership;
    uint32_t there = membership->tally.live - membership->tally.leaving;
    bool ran = membership->epoch > 0;

    snprintf(job->text, sizeof(job->text),
             "%s%" PRIu32 " of %" PRIu32 " nodes had joined%s after %" PRIu32 " s",
             ran && there == 0 ? "all nodes were lost: " : "", there,
             membership->config.min_nodes, ran ? " again" : "",
             membership->config.join_timeout_ms / 1000);
}

void job_set_result_text(struct job *job)
{
    const struct membership *membership = &job->membership;
    const char *text = "all workers have exited 0";

    if (membership->stop.reason == JOB_REASON_USER)
        text = membership->last_checkpoint.asked &&
                       membership->stop.exit_code ==
                           membership->last_checkpoint.exit_code
                   ? "ended after a checkpoint was asked for"
                   : job_ended_by_text(job);
    if (membership->stop.reason == JOB_REASON_USER ||
        membership->stop.reason == JOB_REASON_SUCCESS)
        snprintf(job->text, sizeof(job->text), "%s", text);
    else if (membership_gave_up(membership))
        set_text_of_vain_wait(job);
    else if (membership->stop.no_progress) /* that of the failure is set already */
        job_set_failure_text(job);
}
