/* SPDX-License-Identifier: MIT */
/* Ranks that make different calls. */
#include "worker-lib/backends/tcp/backend_tcp.h"

#include <string.h>

static bool is_collective(const struct op_header *w)
{
    return w->kind != OP_SEND && w->kind != OP_RECEIVE && w->kind != OP_GROUP;
}

/* Whether both ranks make the same call, or one sends and the other receives.
 */
static bool headers_agree(const struct op_header *mine, const struct op_header *its)
{
    struct op_header same = *mine;

    if (mine->kind == OP_RECEIVE)
        same.kind = OP_SEND;
    return memcmp(&same, its, sizeof(same)) == 0;
}

/* A rank that needs nothing from us may be at a later operation, but not at another
 * operation with our number. */
enum tcp_call tcp_compare_call(const struct tcp_plan *plan, const struct tcp_lane *lane,
                               const struct op_header *its)
{
    struct op_header mine = tcp_header_in(plan, lane);
    bool awaited = lane->expects && !lane->has_met;

    if (awaited && headers_agree(&mine, its))
        return TCP_CALL_SAME;
    if (awaited || (is_collective(&mine) && is_collective(its) && !lane->has_met &&
                    its->sequence == mine.sequence))
        return TCP_CALL_OTHER;
    return TCP_CALL_LATER;
}

void tcp_describe_header(const struct tcp *t, const struct op_header *w, unsigned other,
                         char text[TCP_CALL_TEXT_SIZE])
{
    bool is_pair = w->kind == OP_SEND || w->kind == OP_RECEIVE;
    struct op op = { .kind = (enum op_kind)w->kind,
                     .type = (crun_dtype)w->type,
                     .op = (crun_op)w->op,
                     .peer = (int)((is_pair ? other : w->peer) % t->size),
                     .count = w->count };

    op_describe(&op, t->world_rank, text, TCP_CALL_TEXT_SIZE);
}

unsigned long long tcp_call_of(const struct tcp *t, const struct op_header *w)
{
    bool is_pair = w->kind == OP_SEND || w->kind == OP_RECEIVE;

    return w->sequence / (is_pair ? 1 : t->steps);
}

/* The lower rank first, so that both report the same text. */
crun_status tcp_fail_mismatch(struct tcp_plan *plan, unsigned peer,
                              const struct op_header *w, struct err *e)
{
    struct tcp *t = plan->tcp;
    char mine[TCP_CALL_TEXT_SIZE], its[TCP_CALL_TEXT_SIZE];
    unsigned here = t->world_rank[t->rank], there = t->world_rank[peer];
    struct op_header own = tcp_header_in(plan, &plan->lane[peer]);
    bool first = here < there;

    tcp_describe_header(t, &own, peer, mine);
    tcp_describe_header(t, w, t->rank, its);
    err_set(e,
            "ranks call different things: rank %u %s (call %llu), "
            "rank %u %s (call %llu)",
            first ? here : there, first ? mine : its, tcp_call_of(t, first ? &own : w),
            first ? there : here, first ? its : mine, tcp_call_of(t, first ? w : &own));
    return CRUN_MISMATCH;
}
