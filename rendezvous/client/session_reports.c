/* SPDX-License-Identifier: MIT */
#include "rendezvous/client/session_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What the agent reports, and what the rendezvous orders and repeats. */

void session_send_reports(struct session *s)
{
    s->report_again = false;
    outbox_each(&s->reports, session_send, s);
}

void session_on_report(struct session_step *step)
{
    struct session *s = step->session;
    struct msg *kept;

    /* the first failures count */
    if ((step->msg->type == MSG_FAILED || step->msg->type == MSG_NOTE ||
         step->msg->type == MSG_STACKS || step->msg->type == MSG_LOGS ||
         (step->msg->type == MSG_ASK_OWNERS || step->msg->type == MSG_OWNERS)) &&
        s->reports.count >= WORKERS_PER_NODE_MAX)
        return;
    if (step->msg->type == MSG_STOPPED)
        memcpy(s->identity.memory, step->msg->stopped.memory,
               sizeof(s->identity.memory));
    order_filter_reported(&s->orders, step->msg);
    /* What became of the epoch on this node. Of its failures, one is enough. */
    if (step->msg->epoch == s->orders.epoch &&
        !outbox_find_type(&s->epoch_reports, step->msg->type) &&
        (step->msg->type == MSG_STORE_READY || step->msg->type == MSG_FAILED ||
         step->msg->type == MSG_FINISHED || step->msg->type == MSG_STOPPED))
        outbox_add(&s->epoch_reports, step->msg);
    kept = outbox_add(&s->reports, step->msg);
    if (s->state == SESSION_ATTACHED)
        session_send(s, kept);
}

void session_on_ack(struct session_step *step)
{
    outbox_settle(&step->session->reports, step->msg->sequence);
}

/*
 * A refusal also answers a report: usually its epoch is over. Sequence 0 refuses this
 * node itself.
 */
void session_on_refused(struct session_step *step)
{
    const struct msg *msg = step->msg;

    if (msg->refused.retry && outbox_has(&step->session->reports, msg->sequence))
        step->session->report_again = true;
    else if (msg->sequence > 0)
        session_on_ack(step);
    else if (msg->refused.why == REFUSED_FENCED)
        session_on_entry_refused(step);
}

static void repeat_report(void *arg, struct msg *report)
{
    struct session *s = arg;

    if (!outbox_find_type(&s->reports, report->type))
        session_send(s, outbox_add(&s->reports, report));
}

/* An older rendezvous than this goes on as if nothing were wrong. */
static void report_regression(struct session *s, const struct msg *order)
{
    struct msg m = { .type = MSG_NOTICE };

    if (s->regression_reported)
        return;
    s->regression_reported = true;
    snprintf(m.notice.text, sizeof(m.notice.text),
             "the rendezvous is in epoch %" PRIu64 ", and this node in epoch %" PRIu64
             ": it has lost what was decided since, and nothing that it orders is "
             "obeyed; end the job, and start it again",
             order->epoch, s->orders.epoch);
    s->calls.order(s->calls.arg, &m);
}

void session_on_order(struct session_step *step)
{
    struct session *s = step->session;
    const struct msg *order = step->msg;
    uint64_t epoch = s->orders.epoch;
    struct msg *stopped = outbox_find_type(&s->epoch_reports, MSG_STOPPED);

    if (order_filter_take(&s->orders, order)) {
        if (s->orders.epoch != epoch)
            outbox_clear(&s->epoch_reports);
        s->calls.order(s->calls.arg, order);
    } else if (order->epoch == epoch && !s->orders.done) {
        /*
         * The rendezvous repeats an order that this node has obeyed. It may do so
         * because it has lost the answer, which it had acknowledged.
         */
        if (order->type == MSG_START)
            outbox_each(&s->epoch_reports, repeat_report, s);
        else if (order->type == MSG_STOP && stopped)
            repeat_report(s, stopped);
    } else if (order->epoch < epoch && !s->orders.done) {
        report_regression(s, order);
    }
}

void session_on_notice(struct session_step *step)
{
    step->session->calls.order(step->session->calls.arg, step->msg);
}

/* A job that is done answers RESUME with DONE alone, if it has released the node. */
void session_on_early_order(struct session_step *step)
{
    if (step->msg->type == MSG_DONE)
        session_on_order(step);
}
