/* SPDX-License-Identifier: MIT */
#include "worker-lib/backends/tcp/backend_tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"

#define LOOK_UP_MS 50 /* at the abort word, in a wait */
#define LOOK_AT_LINKS_MS 1000
#define BESIDE_MS 1   /* at shared memory, which cannot wake this thread */
#define DEAD_MS 30000 /* nothing acknowledged: a broken link, or a dead host */

/* One run of an operation: its plan, and its result so far. */
struct tcp_run {
    struct tcp_plan plan;
    struct tcp *tcp;
    crun_status status;
    struct err *e;
    uint64_t deadline_ms, looked_ms;
    bool waited;
    uint64_t early_ms; /* before the deadline: writes the wait to the store */
    const struct tcp_beside *beside; /* NULL: nothing, or it is done */
};

/* -- out --------------------------------------------------------------------------- */

static size_t next_piece(const struct tcp_run *r, const struct tcp_stream *s)
{
    size_t left = s->bytes - s->done;

    return left < r->plan.piece ? left : r->plan.piece;
}

static bool may_move(const struct tcp_run *r, const struct tcp_stream *s)
{
    size_t bytes = next_piece(r, s);

    return bytes > 0 && s->done + bytes <= s->allowed;
}

/* Results first, because other ranks wait for them. NULL: nothing may be sent now. */
static struct tcp_stream *next_out(const struct tcp_run *r, struct tcp_lane *lane)
{
    for (int i = STREAM_COUNT - 1; i >= 0; i--)
        if (may_move(r, &lane->out[i]))
            return &lane->out[i];
    return NULL;
}

static bool has_to_send(const struct tcp_run *r, unsigned p)
{
    struct tcp_lane *lane = &r->plan.lane[p];

    return tcp_link_is_sending(&r->tcp->link[p]) ||
           (lane->has_header && !lane->header_sent) || next_out(r, lane);
}

/* True: something was sent. */
static bool push_lane(struct tcp_run *r, unsigned p)
{
    struct tcp_lane *lane = &r->plan.lane[p];
    struct tcp_link *link = &r->tcp->link[p];
    struct tcp_stream *s;

    if (!tcp_link_is_sending(link)) {
        if (lane->has_header && !lane->header_sent) {
            struct op_header header = tcp_header_out(&r->plan, lane);

            tcp_link_put_op(link, &header);
        }
        lane->header_sent = true;
        s = next_out(r, lane);
        if (s) {
            size_t bytes = next_piece(r, s);

            tcp_link_put_data(link, (unsigned)(s - lane->out), s->base + s->done,
                              bytes);
            s->done += bytes;
        }
        tcp_lane_sent(lane);
    }
    return tcp_link_push(link);
}

/* -- in ---------------------------------------------------------------------------- */

/* The header of its operation has arrived. True: look at the next frame. */
static bool handle_op_frame(struct tcp_run *r, unsigned p, const struct op_header *w)
{
    struct tcp_lane *lane = &r->plan.lane[p];

    switch (tcp_compare_call(&r->plan, lane, w)) {
    case TCP_CALL_SAME:
        lane->has_met = true;
        tcp_link_skip(&r->tcp->link[p]);
        tcp_lane_received(lane);
        return true;
    case TCP_CALL_LATER:
        lane->parked = true;
        return false;
    default:
        r->status = tcp_fail_mismatch(&r->plan, p, w, r->e);
        return false;
    }
}

/* True: its bytes must be read. */
static bool handle_data_frame(struct tcp_run *r, unsigned p, const struct tcp_frame *f)
{
    struct tcp_lane *lane = &r->plan.lane[p];
    struct tcp_stream *s = &lane->in[f->stream % STREAM_COUNT];

    if (!lane->has_met || f->bytes == 0 || f->bytes != next_piece(r, s)) {
        r->tcp->link[p].error = EPROTO;
        r->status = tcp_fail_lost(&r->plan, p, r->e);
        return false;
    }
    if (!may_move(r, s))
        return false;
    lane->reading = s;
    tcp_link_take(&r->tcp->link[p],
                  s->base + (s->window ? s->done % s->window : s->done));
    lane->reading_bytes = f->bytes;
    return true;
}

/* True: look at the next frame. */
static bool handle_frame(struct tcp_run *r, unsigned p, const struct tcp_frame *f)
{
    const void *body = f + 1;

    switch (f->kind) {
    case FRAME_OP:
        return handle_op_frame(r, p, body);
    case FRAME_DATA:
        return handle_data_frame(r, p, f);
    case FRAME_FAIL:
        r->status = abort_notice_error(body, r->e);
        return false;
    default: /* FRAME_BYE */
        r->tcp->link[p].ended = true;
        return false;
    }
}

static void finish_piece(struct tcp_run *r, unsigned p)
{
    struct tcp_lane *lane = &r->plan.lane[p];

    lane->reading->done += lane->reading_bytes;
    lane->reading = NULL;
    tcp_lane_received(lane);
    if (r->plan.advance)
        r->plan.advance(&r->plan);
}

/* Up to one piece of data. True: something has come. */
static bool pull_lane(struct tcp_run *r, unsigned p)
{
    struct tcp_lane *lane = &r->plan.lane[p];
    struct tcp_link *link = &r->tcp->link[p];
    const struct tcp_frame *f;

    while (r->status == CRUN_OK && !lane->parked && tcp_lane_receives(lane)) {
        if (lane->reading) {
            if (!tcp_link_read(link))
                return false;
            if (link->left == 0)
                finish_piece(r, p);
            return true;
        }
        f = tcp_link_peek(link);
        if (f ? !handle_frame(r, p, f) : !tcp_link_fill(link))
            return false;
    }
    return false;
}

/* Reads from a rank from which this operation needs no data, or no more data: it may
 * report a failure, or be at another operation. */
static void listen_to_peer(struct tcp_run *r, unsigned p)
{
    struct tcp_link *link = &r->tcp->link[p];
    const struct tcp_frame *f;

    while (r->status == CRUN_OK && !r->plan.lane[p].parked && !link->ended) {
        f = tcp_link_peek(link);
        if (f && f->kind == FRAME_DATA)
            r->plan.lane[p].parked = true;
        else if (f ? !handle_frame(r, p, f) : !tcp_link_fill(link))
            return;
    }
}

/* -- waiting ----------------------------------------------------------------------- */

/* Whether a link is needed and cannot be used any more. */
static bool is_lost(struct tcp_run *r, unsigned p)
{
    struct tcp_lane *lane = &r->plan.lane[p];
    struct tcp_link *link = &r->tcp->link[p];

    if (!tcp_lane_receives(lane) && !tcp_lane_sends(lane) && !tcp_link_is_sending(link))
        return false;
    return link->mute || (link->ended && !lane->parked);
}

/* Checks the abort word, the clock, and links that are silently dead. */
static void check_deadline(struct tcp_run *r)
{
    uint64_t now = clock_ms();

    if (abort_get(r->tcp->aborted)) {
        r->status = tcp_fail_aborted(r->tcp, r->e);
        return;
    }
    if (now >= r->deadline_ms) {
        r->status = tcp_fail_timeout(&r->plan, r->e);
        return;
    }
    if (now + r->early_ms >= r->deadline_ms)
        tcp_say_late(&r->plan, r->deadline_ms - now);
    if (now < r->looked_ms + LOOK_AT_LINKS_MS)
        return;
    r->looked_ms = now;
    for (unsigned p = 0; p < r->tcp->size; p++)
        if (tcp_link_is_dead(&r->tcp->link[p], DEAD_MS)) {
            r->tcp->link[p].ended = true;
            r->tcp->link[p].error = ETIMEDOUT;
        }
}

/* The events to poll this link for; fd -1: it has ended, or must not be read now. */
static struct pollfd poll_interest(struct tcp_run *r, unsigned p)
{
    struct tcp_lane *lane = &r->plan.lane[p];
    struct tcp_link *link = &r->tcp->link[p];
    struct pollfd poll_for = { .fd = link->fd };

    if (has_to_send(r, p) && !link->mute)
        poll_for.events |= POLLOUT;
    if (!link->ended && !lane->parked)
        poll_for.events |= POLLIN;
    if (poll_for.events == 0)
        poll_for.fd = -1;
    return poll_for;
}

static bool is_full(const struct tcp_run *r, unsigned p)
{
    const struct tcp_link *link = &r->tcp->link[p];

    return !r->plan.lane[p].reading &&
           link->in_end - link->in_at >= sizeof(struct tcp_frame);
}

static void wait_for_links(struct tcp_run *r)
{
    uint64_t now = clock_ms(), left, longest = r->beside ? BESIDE_MS : LOOK_UP_MS;
    unsigned count = 0;

    r->tcp->polls[count++] = (struct pollfd){ .fd = r->tcp->wake, .events = POLLIN };
    for (unsigned p = 0; p < r->tcp->size; p++) {
        struct pollfd one;

        if (p == r->tcp->rank)
            continue;
        if (!tcp_lane_receives(&r->plan.lane[p]))
            listen_to_peer(r, p);
        one = poll_interest(r, p);
        /* it has sent more than fits: there will be room when other ranks' data
         * arrives */
        if (is_full(r, p))
            one.events &= ~POLLIN;
        if (one.fd >= 0 && one.events)
            r->tcp->polls[count++] = one;
    }
    left = r->deadline_ms > now ? r->deadline_ms - now : 0;
    if (left > longest)
        left = longest;
    if (r->status == CRUN_OK)
        (void)poll(r->tcp->polls, count, (int)left);
}

/* Nothing moves: polls in a loop for a while, then sleeps until something can. */
static void idle_run(struct tcp_run *r, uint64_t *idle_since_us)
{
    uint64_t now;

    if (r->tcp->spin_us) {
        now = clock_us();
        if (*idle_since_us == 0)
            *idle_since_us = now;
        if (now < *idle_since_us + r->tcp->spin_us)
            return;
    }
    for (unsigned p = 0; p < r->tcp->size && r->status == CRUN_OK; p++)
        if (p != r->tcp->rank && is_lost(r, p))
            r->status = tcp_fail_lost(&r->plan, p, r->e);
    r->waited = true;
    if (r->status == CRUN_OK)
        wait_for_links(r);
    if (r->status == CRUN_OK)
        check_deadline(r);
}

/* -- running ----------------------------------------------------------------------- */

/* One round over all links. True: something moved. */
static bool move_data(struct tcp_run *r, bool *done)
{
    bool moved = false;

    *done = true;
    for (unsigned p = 0; p < r->tcp->size && r->status == CRUN_OK; p++) {
        struct tcp_lane *lane = &r->plan.lane[p];

        if (p == r->tcp->rank)
            continue;
        if (tcp_lane_sends(lane) || tcp_link_is_sending(&r->tcp->link[p]))
            moved |= push_lane(r, p);
        if (tcp_lane_receives(lane))
            moved |= pull_lane(r, p);
        if (tcp_lane_sends(lane) || tcp_lane_receives(lane) ||
            tcp_link_is_sending(&r->tcp->link[p]))
            *done = false;
    }
    return moved;
}

static bool move_beside(struct tcp_run *r)
{
    bool moved = false, done = false;

    if (!r->beside || r->status != CRUN_OK)
        return false;
    r->status = r->beside->step(r->beside->arg, &moved, &done, r->e);
    if (done)
        r->beside = NULL;
    return moved;
}

/* All data had arrived before: the other ranks were here earlier, and may have failed
 * since. */
static void listen_to_all(struct tcp_run *r)
{
    for (unsigned p = 0; p < r->tcp->size && r->status == CRUN_OK; p++)
        if (p != r->tcp->rank)
            listen_to_peer(r, p);
}

static crun_status run_plan(struct tcp_run *r)
{
    uint64_t idle_since_us = 0;
    bool done = false;

    if (abort_get(r->tcp->aborted))
        return tcp_fail_aborted(r->tcp, r->e);
    if (r->plan.advance)
        r->plan.advance(&r->plan);
    for (;;) {
        bool moved = move_data(r, &done);

        moved |= move_beside(r);
        if (r->status != CRUN_OK || done)
            break;
        if (moved)
            idle_since_us = 0;
        else
            idle_run(r, &idle_since_us);
    }
    if (r->status == CRUN_OK && !r->waited)
        listen_to_all(r);
    if (r->status == CRUN_OK && r->plan.finish)
        r->plan.finish(&r->plan);
    if (r->status == CRUN_OK)
        timeout_culprit_withdraw(&r->plan.chain);
    return r->status;
}

/* An abort from another thread may have found the links in use: then this thread
 * informs the other ranks. */
static crun_status release_links(struct tcp *t, crun_status status, struct err *e)
{
    int held = HELD_BY_RUN;

    if (status != CRUN_OK) {
        struct abort_notice n = e->code == ERROR_ABORTED
                                    ? abort_notice(t->aborted, t->world_rank[t->rank])
                                    : abort_notice_of_error(status, e);

        tcp_tell(t, &n);
        return status;
    }
    atomic_store(&t->holder, HELD_BY_NONE);
    held = HELD_BY_NONE;
    if (abort_get(t->aborted) &&
        atomic_compare_exchange_strong(&t->holder, &held, HELD_FOR_GOOD))
        tcp_tell_aborted(t);
    return CRUN_OK;
}

static crun_status run_operation(struct tcp *t, const struct op *op,
                                 const unsigned *member, unsigned size, unsigned rank,
                                 const struct tcp_beside *beside, struct err *e)
{
    struct tcp_run r = { .tcp = t,
                         .e = e,
                         .beside = beside,
                         .deadline_ms = op->deadline_ms,
                         .early_ms = tcp_is_alone(t)
                                         ? timeout_culprit_early_ms(op->timeout_ms)
                                         : 0 };
    int held = HELD_BY_NONE;
    crun_status status;

    if (!atomic_compare_exchange_strong(&t->holder, &held, HELD_BY_RUN))
        return tcp_fail_aborted(t, e);
    status = tcp_plan_make(&r.plan, t, op, member, size, rank, e);
    if (status == CRUN_OK)
        status = run_plan(&r);
    return release_links(t, status, e);
}

crun_status tcp_run_among(struct backend *b, const struct op *op,
                          const unsigned *member, unsigned size, unsigned rank,
                          struct err *e)
{
    return run_operation((struct tcp *)b, op, member, size, rank, NULL, e);
}

crun_status tcp_run_beside(struct backend *b, const struct op *op,
                           const struct tcp_beside *beside, struct err *e)
{
    struct tcp *t = (struct tcp *)b;

    return run_operation(t, op, t->all_ranks, t->size, t->rank, beside, e);
}

void tcp_number_by(struct backend *b, uint64_t steps)
{
    ((struct tcp *)b)->steps = steps;
}

static crun_status tcp_run(struct backend *b, const struct op *op, struct err *e)
{
    return tcp_run_beside(b, op, NULL, e);
}

static void tcp_abort(struct backend *b)
{
    struct tcp *t = (struct tcp *)b;
    int held = HELD_BY_NONE, errnum = errno;
    uint64_t one = 1;

    if (atomic_compare_exchange_strong(&t->holder, &held, HELD_FOR_GOOD))
        tcp_tell_aborted(t);
    else if (held == HELD_BY_RUN)
        (void)!write(t->wake, &one, sizeof(one));
    errno = errnum;
}

/* -- open and close ---------------------------------------------------------------- */

static void tcp_close(struct backend *b)
{
    struct tcp *t = (struct tcp *)b;

    if (t->link && atomic_load(&t->holder) == HELD_BY_NONE)
        tcp_say_bye(t);
    for (unsigned p = 0; t->link && p < t->size; p++)
        tcp_link_fini(&t->link[p]);
    if (t->wake >= 0)
        close(t->wake);
    free(t->world_rank);
    free(t->all_ranks);
    free(t->link);
    free(t->lane);
    free(t->polls);
    free(t->inputs);
    free(t->staging);
    free(t);
}

static bool init_tcp(struct tcp *t, const struct team *team)
{
    *t = (struct tcp){ .base.calls = &backend_tcp,
                       .rank = team->rank,
                       .size = team->size,
                       .steps = 1,
                       .aborted = team->aborted,
                       .board = team->board,
                       .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                       .world_rank = calloc(team->size, sizeof(*t->world_rank)),
                       .all_ranks = calloc(team->size, sizeof(*t->all_ranks)),
                       .link = calloc(team->size, sizeof(*t->link)),
                       .lane = calloc(team->size, sizeof(*t->lane)),
                       .polls = calloc(team->size + 1, sizeof(*t->polls)),
                       .inputs = calloc(team->size, sizeof(*t->inputs)),
                       .holder = HELD_FOR_GOOD };
    if (!t->world_rank || !t->all_ranks || !t->link || !t->lane || !t->polls ||
        !t->inputs)
        return false;
    memcpy(t->world_rank, team->world_rank, team->size * sizeof(*t->world_rank));
    for (unsigned p = 0; p < t->size; p++)
        t->link[p].fd = -1;
    for (unsigned p = 0; p < t->size; p++)
        t->all_ranks[p] = p;
    for (unsigned p = 0; p < t->size; p++)
        if (!tcp_link_init(&t->link[p]))
            return false;
    return true;
}

static crun_status tcp_open(struct backend **b, const struct team *team,
                            uint64_t deadline_ms, struct err *e)
{
    struct tcp *t = calloc(1, sizeof(*t));
    crun_status status = CRUN_NO_MEMORY;

    err_set(e, "no memory for the links to %u ranks", team->size - 1);
    if (!t)
        return status;
    if (init_tcp(t, team))
        status = tcp_meet(t, team, deadline_ms, e);
    if (status != CRUN_OK) {
        tcp_close(&t->base);
        return status;
    }
    atomic_store(&t->holder, HELD_BY_NONE);
    *b = &t->base;
    return CRUN_OK;
}

static crun_status tcp_alloc(struct backend *b, size_t bytes, uint64_t deadline_ms,
                             void **memory, struct err *e)
{
    (void)b, (void)bytes, (void)deadline_ms, (void)e;
    *memory = NULL;
    return CRUN_OK;
}

static bool tcp_free(struct backend *b, void *memory)
{
    (void)b, (void)memory;
    return false;
}

const struct backend_calls backend_tcp = {
    .name = "tcp",
    .open = tcp_open,
    .run = tcp_run,
    .abort = tcp_abort,
    .alloc = tcp_alloc,
    .free = tcp_free,
    .close = tcp_close,
};
