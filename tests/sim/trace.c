/* SPDX-License-Identifier: MIT */
#include "tests/sim/trace.h"

#include <inttypes.h>
#include <stdarg.h>

#include "rendezvous/wire/protocol/proto.h"
#include "tests/sim/world.h"

static void stamp(struct trace *t, const char *who)
{
    uint64_t us = world_now(t->world);

    fprintf(t->out, "%9" PRIu64 ".%06" PRIu64 " %-9s ", us / 1000000, us % 1000000,
            who);
}

void trace_line(struct trace *t, const char *who, const char *fmt, ...)
{
    va_list ap;

    if (!t->out)
        return;
    stamp(t, who);
    va_start(ap, fmt);
    vfprintf(t->out, fmt, ap);
    va_end(ap);
    fputc('\n', t->out);
}

static void describe_message(const struct msg *m, char *buf, size_t size)
{
    buf[0] = '\0';
    switch ((int)m->type) {
    case MSG_JOIN:
        snprintf(buf, size, "%s workers %u rank %d", m->join.run_id, m->join.workers,
                 m->join.node_rank);
        break;
    case MSG_RESUME:
        snprintf(buf, size, "%s node %u", m->resume.run_id, m->resume.node);
        break;
    case MSG_JOINED:
        snprintf(buf, size, "node %u slot %d%s", m->joined.node, m->joined.slot,
                 m->joined.spare ? " spare" : "");
        break;
    case MSG_START:
        snprintf(buf, size, "group %u/%u ranks %u+%u/%u slot %u restarts %u%s %s",
                 m->start.group_rank, m->start.group_size, m->start.first_rank,
                 m->start.workers, m->start.world_size, m->start.slot,
                 m->start.restarts, m->start.host_store ? " host" : "",
                 proto_cause_name(m->start.cause));
        break;
    case MSG_FAILED:
        snprintf(buf, size, "pid %u at %" PRIu64, m->failed.pid, m->failed.at_ms);
        break;
    case MSG_STOP:
        snprintf(buf, size, "%s grace %u ms", proto_cause_name(m->stop.cause),
                 m->stop.grace_ms);
        break;
    case MSG_DONE:
        snprintf(buf, size, "%s exit %d restarts %u root pid %u: %s",
                 proto_reason_name(m->done.reason), m->done.exit_code, m->done.restarts,
                 m->done.failure.pid, m->done.text);
        break;
    case MSG_REFUSED:
        snprintf(buf, size, "%s%s: %s", proto_refusal_name(m->refused.why),
                 m->refused.retry ? " (retry)" : "", m->refused.text);
        break;
    case MSG_BEAT:
        if (m->beat.waiting)
            snprintf(buf, size, "waiting, %u of %u", m->beat.present, m->beat.wanted);
        break;
    }
}

void trace_message(struct trace *t, const char *from, const char *to,
                   const struct msg *m)
{
    char what[256];

    if (!t->out)
        return;
    describe_message(m, what, sizeof(what));
    stamp(t, from);
    fprintf(t->out, "-> %-9s %s #%" PRIu64 " epoch %" PRIu64 " %s\n", to,
            proto_name(m->type), m->sequence, m->epoch, what);
}

void trace_violation(struct trace *t, const char *fmt, ...)
{
    va_list ap;

    if (t->violated)
        return;
    t->violated = true;
    va_start(ap, fmt);
    vsnprintf(t->invariant, sizeof(t->invariant), fmt, ap);
    va_end(ap);
    trace_line(t, "VIOLATION", "%s", t->invariant);
}
