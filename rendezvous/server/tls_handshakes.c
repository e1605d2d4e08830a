/* SPDX-License-Identifier: MIT */
#include "rendezvous/server/tls_handshakes.h"

#include <stdlib.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/server/limits.h"
#include "rendezvous/wire/net/conn.h"

TAILQ_HEAD(handshake_queue, handshake);

struct handshakes {
    struct loop_timer serve;
    struct handshake_queue known;                    /* from these sources */
    struct handshake_queue others[HANDSHAKE_QUEUES]; /* by source */
    unsigned waiting[2];                             /* others, known */
    unsigned next;                                   /* of others */
    uint64_t source[HANDSHAKE_SOURCES];              /* known */
};

static struct handshake_queue *handshake_queue_of(struct handshake *w)
{
    struct handshakes *h = w->owner;

    return w->known ? &h->known : &h->others[w->source % HANDSHAKE_QUEUES];
}

static void handshake_leave_queue(struct handshake *w)
{
    TAILQ_REMOVE(handshake_queue_of(w), w, entry);
    w->owner->waiting[w->known]--;
    w->queued = false;
}

/* One step. The connection may be destroyed by it, and w with it. */
static void handshake_serve(struct handshake *w)
{
    handshake_leave_queue(w);
    w->served = true;
    w->deadline_ms += clock_ms() - w->queued_ms;
    conn_set_deadline(w->conn, w->deadline_ms, HANDSHAKE_LATE);
    conn_resume(w->conn);
}

static void handshakes_serve_known(struct handshakes *h, uint64_t until_us)
{
    while (h->waiting[true] > 0 && clock_us() < until_us)
        handshake_serve(TAILQ_FIRST(&h->known));
}

static void handshakes_serve_others(struct handshakes *h, uint64_t until_us)
{
    while (h->waiting[false] > 0 && clock_us() < until_us) {
        struct handshake *w = TAILQ_FIRST(&h->others[h->next++ % HANDSHAKE_QUEUES]);

        if (w)
            handshake_serve(w);
    }
}

static void on_serve(void *arg)
{
    struct handshakes *h = arg;
    uint64_t begun_us = clock_us();

    handshakes_serve_known(h, begun_us + HANDSHAKES_KNOWN_US);
    handshakes_serve_others(h, begun_us + HANDSHAKES_TURN_US);
    if (h->waiting[false] + h->waiting[true] > 0)
        loop_timer_arm(&h->serve, 0);
}

struct handshakes *handshakes_create(struct loop *loop)
{
    struct handshakes *h = xcalloc(1, sizeof(*h));

    TAILQ_INIT(&h->known);
    for (unsigned i = 0; i < HANDSHAKE_QUEUES; i++)
        TAILQ_INIT(&h->others[i]);
    loop_timer_init(&h->serve, loop, on_serve, h);
    return h;
}

void handshakes_destroy(struct handshakes *h)
{
    if (!h)
        return;
    loop_timer_fini(&h->serve);
    free(h);
}

void handshake_init(struct handshake *w, struct handshakes *h, struct conn *conn,
                    uint64_t source, uint64_t deadline_ms)
{
    *w = (struct handshake){
        .owner = h, .conn = conn, .source = source, .deadline_ms = deadline_ms
    };
    conn_set_deadline(conn, deadline_ms, HANDSHAKE_LATE);
}

void handshake_fini(struct handshake *w)
{
    if (w->queued)
        handshake_leave_queue(w);
}

bool handshake_may_step(struct handshake *w, bool proven)
{
    struct handshakes *h = w->owner;

    if (w->served) {
        w->served = false;
        return true;
    }
    if (w->queued)
        return false;
    w->known = proven || h->source[w->source % HANDSHAKE_SOURCES] == w->source;
    w->queued = true;
    w->queued_ms = clock_ms();
    h->waiting[w->known]++;
    if (proven)
        TAILQ_INSERT_HEAD(handshake_queue_of(w), w, entry);
    else
        TAILQ_INSERT_TAIL(handshake_queue_of(w), w, entry);
    conn_set_deadline(w->conn, 0, NULL);
    loop_timer_arm(&h->serve, 0);
    return false;
}

void handshake_succeeded(const struct handshake *w)
{
    w->owner->source[w->source % HANDSHAKE_SOURCES] = w->source;
}
