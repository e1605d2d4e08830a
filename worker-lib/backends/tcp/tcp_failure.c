/* SPDX-License-Identifier: MIT */
/*
 * Handles the failure of an operation: finds the rank at fault, and informs the others.
 * The rank that notices the failure first sends all others an error text with rank
 * numbers, and they report the same text: so all ranks name the same culprit.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/text.h"
#include "worker-lib/backends/tcp/backend_tcp.h"
#include "worker-lib/engine/failure_notice.h"

#define TELL_MS 200 /* for the other ranks to receive it */
#define RANKS_NAMED 8

static unsigned world_rank(const struct tcp *t, unsigned p)
{
    return p < t->size ? t->world_rank[p] : p;
}

/* Skips everything up to the last frame, which has the reason of the rank's failure.
 * NULL: it has not arrived. */
static const struct tcp_frame *last_frame(struct tcp_link *l)
{
    for (;;) {
        const struct tcp_frame *f;

        if (l->left > 0) {
            l->into = NULL;
            if (!tcp_link_read(l))
                return NULL;
            continue;
        }
        f = tcp_link_peek(l);
        if (!f && !tcp_link_fill(l))
            return NULL;
        if (!f)
            continue;
        if (f->kind == FRAME_FAIL || f->kind == FRAME_BYE)
            return f;
        if (f->kind == FRAME_DATA)
            tcp_link_take(l, NULL);
        else
            tcp_link_skip(l);
    }
}

crun_status tcp_fail_lost(struct tcp_plan *plan, unsigned peer, struct err *e)
{
    struct tcp_link *l = &plan->tcp->link[peer];
    const struct tcp_frame *f = l->error == EPROTO ? NULL : last_frame(l);
    unsigned rank = world_rank(plan->tcp, peer);

    if (f && f->kind == FRAME_FAIL)
        return abort_notice_error((const void *)(f + 1), e);
    /* it may have had no room to send the reason */
    if (!f && failure_notice_abort(plan->tcp->board, plan->tcp->aborted))
        return tcp_fail_aborted(plan->tcp, e);
    if (f)
        err_set(e, "rank %u has left, while others still call collectives", rank);
    else if (l->error == EPROTO)
        err_set(e, "rank %u sends data that is not in the protocol", rank);
    else if (l->error)
        err_set_errno(e, l->error, "rank %u is gone", rank);
    else
        err_set(e, "rank %u is gone: its connection was closed", rank);
    return CRUN_PEER_LOST;
}

/* -- late ranks -------------------------------------------------------------------- */

enum late { LATE_INPUT, LATE_RESULT, LATE_TAKING };

static bool peer_is_late(const struct tcp_plan *plan, unsigned p, enum late why)
{
    const struct tcp_lane *l = &plan->lane[p];
    const struct tcp_stream *input = &l->in[STREAM_INPUT];

    if (p == plan->tcp->rank)
        return false;
    switch (why) {
    case LATE_INPUT: /* a rank that waits for us to make room is not late */
        return (l->expects && !l->has_met) ||
               (input->done < input->bytes && input->done < input->allowed);
    case LATE_RESULT:
        return tcp_lane_receives(l);
    case LATE_TAKING:
        break;
    }
    return tcp_lane_sends(l) || tcp_link_is_sending(&plan->tcp->link[p]);
}

static unsigned name_late_peers(const struct tcp_plan *plan, enum late why, char *text,
                                size_t size)
{
    unsigned count = 0;
    size_t used = 0;

    text[0] = '\0';
    for (unsigned p = 0; p < plan->tcp->size; p++) {
        if (!peer_is_late(plan, p, why) || count++ >= RANKS_NAMED)
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%u", used ? ", " : "",
                                 world_rank(plan->tcp, p));
    }
    if (count > RANKS_NAMED)
        snprintf(text + used, size - used, " and %u more", count - RANKS_NAMED);
    return count;
}

static unsigned first_late(const struct tcp_plan *plan, enum late why)
{
    unsigned p = 0;

    while (p < plan->tcp->size - 1 && !peer_is_late(plan, p, why))
        p++;
    return p;
}

/* What this rank exchanges with that one: a message of a group, or the whole
 * operation. */
static struct op_header late_call(const struct tcp_plan *plan, unsigned p,
                                  enum late why)
{
    const struct tcp_lane *l = &plan->lane[p];

    if (why != LATE_TAKING)
        return tcp_header_in(plan, l);
    if (l->sends && l->sends == l->sends_end) /* its last bytes are in the link */
        return tcp_header_out(
            plan, &(struct tcp_lane){ .sends = l->sends - 1, .sends_end = l->sends });
    return tcp_header_out(plan, l);
}

/* The other rank of a message, or the root. */
static unsigned late_peer(const struct tcp_plan *plan, unsigned p)
{
    bool messages = op_is_message(plan->op) || plan->op->kind == OP_GROUP;

    return messages ? p : plan->member[plan->op->peer];
}

/* Describes the late ranks, and returns the one to accuse. */
static unsigned accuse_late_rank(const struct tcp_plan *plan, uint64_t waited_ms,
                                 struct err *e)
{
    static const char *const what[] = { [LATE_INPUT] = "",
                                        [LATE_RESULT] = " to send results",
                                        [LATE_TAKING] = " to receive the data" };
    char ranks[160], call[TCP_CALL_TEXT_SIZE];
    enum late why = LATE_INPUT;
    struct op_header late;
    unsigned count, first;

    while ((count = name_late_peers(plan, why, ranks, sizeof(ranks))) == 0 &&
           why < LATE_TAKING)
        why++;
    first = first_late(plan, why);
    late = late_call(plan, first, why);
    tcp_describe_header(plan->tcp, &late, late_peer(plan, first), call);
    err_set(e, "rank %u has waited %.1f s for rank%s %s%s in %s (call %llu)",
            world_rank(plan->tcp, plan->tcp->rank), (double)waited_ms / 1000,
            text_plural(count), ranks, what[why], call, tcp_call_of(plan->tcp, &late));
    return world_rank(plan->tcp, first);
}

bool tcp_is_alone(const struct tcp *t)
{
    return t->steps == 1;
}

void tcp_say_late(struct tcp_plan *plan, uint64_t left_ms)
{
    uint64_t timeout_ms = plan->op->timeout_ms;
    struct err e;
    unsigned accused = accuse_late_rank(
        plan, timeout_ms > left_ms ? timeout_ms - left_ms : 0, &e);

    timeout_culprit_report(&plan->chain, accused, e.text);
}

crun_status tcp_fail_timeout(struct tcp_plan *plan, struct err *e)
{
    uint64_t timeout_ms = plan->op->timeout_ms;
    unsigned accused = accuse_late_rank(plan, timeout_ms, e);

    return timeout_culprit_settle(&plan->chain, accused, timeout_ms,
                                  tcp_is_alone(plan->tcp), plan->tcp->aborted, e);
}

crun_status tcp_fail_aborted(struct tcp *t, struct err *e)
{
    if (abort_get(t->aborted))
        return abort_error(t->aborted, e);
    err_set(e, "an earlier operation of these ranks has failed");
    return CRUN_ABORTED;
}

/* -- informing the other ranks ----------------------------------------------------- */

/* Finishes the piece that is being sent, since the last frame comes after it, and reads
 * the remaining data of the other rank, so that this rank can also begin to read. True:
 * this link is done. */
static bool tell_one(struct tcp_link *l, const struct abort_notice *n)
{
    if (l->fd < 0)
        return true;
    while (tcp_link_push(l))
        ;
    if (!l->mute && !tcp_link_is_sending(l))
        tcp_link_put_last(l, FRAME_FAIL, n);
    if (last_frame(l))
        l->ended = true;
    return l->ended && l->mute;
}

/* Returns how many links are not done; polls has the events that they wait for. */
static unsigned tell_all(struct tcp *t, const struct abort_notice *n)
{
    unsigned count = 0;

    for (unsigned p = 0; p < t->size; p++) {
        struct tcp_link *l = &t->link[p];
        short events = 0;

        if (tell_one(l, n))
            continue;
        if (!l->ended)
            events |= POLLIN;
        if (!l->mute)
            events |= POLLOUT;
        t->polls[count++] = (struct pollfd){ .fd = l->fd, .events = events };
    }
    return count;
}

void tcp_tell(struct tcp *t, const struct abort_notice *n)
{
    uint64_t until = clock_ms() + TELL_MS, now;
    unsigned count;

    atomic_store(&t->holder, HELD_FOR_GOOD);
    while ((count = tell_all(t, n)) > 0 && (now = clock_ms()) < until)
        (void)poll(t->polls, count, (int)(until - now));
    /* a rank that has not received it finds its link closed, and looks in the store */
    if (count > 0)
        failure_notice_write(t->board, n);
    for (unsigned p = 0; p < t->size; p++)
        tcp_link_hang_up(&t->link[p]);
}

void tcp_tell_aborted(struct tcp *t)
{
    struct abort_notice n = abort_notice(t->aborted, world_rank(t, t->rank));

    for (unsigned p = 0; p < t->size; p++)
        if (t->link[p].fd >= 0)
            tcp_link_put_last(&t->link[p], FRAME_FAIL, &n);
}

void tcp_say_bye(struct tcp *t)
{
    for (unsigned p = 0; p < t->size; p++)
        if (t->link[p].fd >= 0) {
            tcp_link_put_last(&t->link[p], FRAME_BYE, NULL);
            (void)last_frame(&t->link[p]); /* unread data causes a reset */
        }
}
