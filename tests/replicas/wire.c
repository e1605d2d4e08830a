/* SPDX-License-Identifier: MIT */
/*
 * In place of conn.c and listener.c: connections between machines, as TCP gives them.
 * Frames arrive whole, once and in order, until the connection ends. A path that is
 * cut, or a machine without power, holds all back; a machine that is there again
 * without the program resets its connections.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/wire/net/conn.h"
#include "rendezvous/wire/net/listener.h"
#include "rendezvous/wire/protocol/limits.h"
#include "tests/replicas/machine.h"
#include "tests/replicas/watch.h"

#define FD_FIRST 1000000
#define CONNS_MAX 65536

enum parcel_kind { PARCEL_SYN, PARCEL_OPEN, PARCEL_FRAME, PARCEL_FIN, PARCEL_RESET };

struct parcel {
    struct parcel *next;
    struct machine *from, *to;
    struct conn *conn; /* that gets it; of a SYN, the one that connects */
    enum parcel_kind kind;
    uint64_t life;
    size_t size;
    uint8_t bytes[];
};

enum conn_phase { PHASE_CONNECTING, PHASE_OPEN, PHASE_LEAVING, PHASE_OVER };

struct conn {
    struct machine *machine;
    uint64_t life; /* the machine's, as it was made */
    struct conn *peer;
    struct conn_calls calls;
    void (*connected)(void *arg, struct conn *c);
    struct net_addr at, peer_at;
    enum conn_phase phase;
    bool local, server, destroyed, held, flushed;
    uint64_t arrives_us;     /* what it sends, in order */
    struct parcel *out, *in; /* not flushed; not taken */
    size_t waiting;
    uint64_t deadline; /* which one */
    const char *why;
    char why_text[200];
};

struct listener {
    struct listener *next;
    struct machine *machine;
    struct net_addr at;
    struct listener_calls calls;
};

static struct conn *conns[CONNS_MAX];
static unsigned conn_count;
static struct parcel *held_back, **last_held;

void wire_begin(void)
{
    conn_count = 0;
    held_back = NULL;
    last_held = &held_back;
}

/* -- parcels -------------------------------------------------------------------- */

static struct parcel *parcel_new(struct conn *to, enum parcel_kind kind, size_t size)
{
    struct parcel *p = world_alloc(sim.world, sizeof(*p) + size);

    *p = (struct parcel){ .to = to->machine, .conn = to, .kind = kind, .size = size };
    p->life = to->machine->life;
    return p;
}

static void append(struct parcel **list, struct parcel *p)
{
    while (*list)
        list = &(*list)->next;
    *list = p;
}

static void on_arrive(void *obj, uint64_t token);

static void parcel_travel(struct conn *from, struct parcel *p)
{
    struct machine *a = from->machine, *b = p->to;
    uint64_t at = world_now(sim.world) + 1;

    p->from = a;
    if (a != b)
        at += 20 + world_below(sim.world, sim.delay_max_us) +
              world_below(sim.world,
                          sim.slow_us[a->number] + sim.slow_us[b->number] + 1);
    if (at <= from->arrives_us)
        at = from->arrives_us + 1;
    from->arrives_us = at;
    world_after(sim.world, at - world_now(sim.world), on_arrive, p, 0);
}

static void conn_tell_peer(struct conn *c, enum parcel_kind kind)
{
    if (c->peer && c->phase != PHASE_CONNECTING)
        parcel_travel(c, parcel_new(c->peer, kind, 0));
}

/* -- ends ----------------------------------------------------------------------- */

static void on_over(void *obj, uint64_t token)
{
    struct conn *c = obj;

    if (c->destroyed)
        return;
    if (c->calls.closed)
        c->calls.closed(c->calls.arg, c, c->why);
    c->destroyed = true;
}

/* `closed` comes from the loop. */
static void conn_end(struct conn *c, const char *why)
{
    if (c->phase == PHASE_OVER)
        return;
    c->phase = PHASE_OVER;
    snprintf(c->why_text, sizeof(c->why_text), "%s", why);
    c->why = c->why_text;
    machine_after(c->machine, 0, on_over, c, 0);
}

static void conn_shut(struct conn *c)
{
    conn_tell_peer(c, PARCEL_FIN);
    conn_end(c, "");
}

void conn_destroy(struct conn *c)
{
    if (!c || c->destroyed)
        return;
    if (c->phase != PHASE_OVER && c->life == c->machine->life)
        conn_tell_peer(c, PARCEL_FIN);
    c->destroyed = true;
    c->phase = PHASE_OVER;
}

/* -- in ------------------------------------------------------------------------- */

static void conn_deliver(struct conn *c, const struct parcel *p)
{
    struct frame_header h;
    struct msg m;
    struct err e = { .text = "" };
    uint32_t most = c->calls.body_max(c->calls.arg, c);

    if (frame_get_header(p->bytes, p->size, most, &h, &e) != 1 ||
        proto_decode(&h, p->bytes + FRAME_HEADER_SIZE, &m, &e) < 0)
        trace_violation(&sim.trace, "a frame of %zu bytes does not decode: %s", p->size,
                        e.text);
    else if (c->calls.message(c->calls.arg, c, &m, &e) < 0 && c->phase != PHASE_OVER) {
        trace_line(&sim.trace, c->machine->name, "closes a connection: %s", e.text);
        conn_tell_peer(c, PARCEL_RESET);
        conn_end(c, e.text);
    }
}

static void conn_take_input(struct conn *c)
{
    struct parcel *p;

    while ((p = c->in) && c->phase < PHASE_OVER) {
        if (c->held)
            return;
        if (p->kind == PARCEL_FRAME && c->calls.ready &&
            !c->calls.ready(c->calls.arg, c)) {
            c->held = true;
            return;
        }
        c->in = p->next;
        if (p->kind == PARCEL_FIN)
            conn_end(c, "");
        else if (c->phase == PHASE_OPEN)
            conn_deliver(c, p);
    }
}

static void on_accept(void *obj, uint64_t fd)
{
    struct listener *l = obj;
    struct conn *c = conns[fd - FD_FIRST];

    for (struct listener *all = c->machine->listeners; all; all = all->next)
        if (all == l && l->calls.make_room(l->calls.arg, &c->peer_at)) {
            l->calls.arrived(l->calls.arg, (int)fd, FRAME_KIND_CONTROL, "", &c->peer_at,
                             clock_ms());
            return;
        }
    conn_tell_peer(c, PARCEL_RESET);
    conn_end(c, "");
}

static struct conn *conn_new(struct machine *m)
{
    struct conn *c = world_alloc(sim.world, sizeof(*c));

    if (conn_count == CONNS_MAX)
        abort();
    c->machine = m;
    c->life = m->life;
    conns[conn_count++] = c;
    return c;
}

static void syn_arrives(struct parcel *p)
{
    struct conn *client = p->conn, *c;
    struct machine *m = p->to;
    struct listener *l = m->listeners;

    while (l && net_port(&l->at) != net_port(&client->peer_at))
        l = l->next;
    if (client->destroyed || client->phase != PHASE_CONNECTING)
        return;
    c = conn_new(m);
    c->at = client->peer_at;
    c->peer_at = client->at;
    c->peer = client;
    c->server = true;
    c->phase = PHASE_OPEN;
    if (l) {
        client->peer = c;
        conn_tell_peer(c, PARCEL_OPEN);
        machine_after(m, 0, on_accept, l, FD_FIRST + conn_count - 1);
    } else {
        conn_tell_peer(c, PARCEL_RESET);
        c->phase = PHASE_OVER;
    }
}

static void take_parcel(void *obj, uint64_t token)
{
    struct parcel *p = obj;
    struct conn *c = p->conn;

    if (c->destroyed || c->phase == PHASE_OVER)
        return;
    switch (p->kind) {
    case PARCEL_OPEN:
        if (c->phase != PHASE_CONNECTING)
            break;
        c->phase = PHASE_OPEN;
        if (c->connected)
            c->connected(c->calls.arg, c);
        if (c->flushed)
            conn_flush(c);
        break;
    case PARCEL_RESET:
        conn_end(c, strerror(c->phase == PHASE_CONNECTING ? ECONNREFUSED : ECONNRESET));
        break;
    default:
        append(&c->in, p);
        conn_take_input(c);
    }
}

static void on_arrive(void *obj, uint64_t token)
{
    struct parcel *p = obj;
    struct machine *a = p->from, *b = p->to;

    if (a != b && (b->off || sim.cut[a->number][b->number])) {
        *last_held = p;
        last_held = &p->next;
        return;
    }
    if (p->kind == PARCEL_SYN) {
        syn_arrives(p);
    } else if (p->life == b->life) {
        machine_after(b, 0, take_parcel, p, 0);
    } else if (p->kind == PARCEL_FRAME && p->conn->peer) { /* to one that is gone */
        struct conn ghost = { .machine = b };

        parcel_travel(&ghost, parcel_new(p->conn->peer, PARCEL_RESET, 0));
    }
}

void wire_wake(void)
{
    struct parcel *p = held_back, *next;

    held_back = NULL;
    last_held = &held_back;
    for (uint64_t delay = 1000; p; p = next, delay++) {
        next = p->next;
        p->next = NULL;
        world_after(sim.world, delay, on_arrive, p, 0);
    }
}

void wire_lose(struct machine *m, bool quiet)
{
    m->listeners = NULL;
    for (unsigned i = 0; i < conn_count; i++) {
        struct conn *c = conns[i];

        if (c->machine != m || c->phase == PHASE_OVER)
            continue;
        if (!quiet)
            conn_tell_peer(c, PARCEL_RESET);
        c->phase = PHASE_OVER;
    }
}

void wire_break_one(struct machine *m)
{
    unsigned first = (unsigned)world_below(sim.world, conn_count);

    for (unsigned i = 0; i < conn_count; i++) {
        struct conn *c = conns[(first + i) % conn_count];

        if (c->machine != m || c->phase != PHASE_OPEN || c->local || !c->peer)
            continue;
        trace_line(&sim.trace, m->name, "a connection to %s breaks",
                   c->peer->machine->name);
        conn_tell_peer(c, PARCEL_RESET);
        conn_end(c, strerror(ECONNRESET));
        return;
    }
}

/* -- what the product calls ------------------------------------------------------ */

struct conn *conn_create(struct loop *loop, int fd, bool expect_preface,
                         struct tls_session *tls, const struct conn_calls *calls)
{
    struct conn *c = conns[fd - FD_FIRST];

    c->calls = *calls;
    return c;
}

int __wrap_socketpair(int domain, int type, int protocol, int fd[2])
{
    for (int i = 0; i < 2; i++) {
        struct conn *c = conn_new(machine_now());

        c->local = true;
        c->server = i == 0;
        c->phase = PHASE_OPEN;
        c->peer_at.sa.ss_family = c->at.sa.ss_family = AF_UNIX;
        fd[i] = FD_FIRST + (int)conn_count - 1;
    }
    conns[conn_count - 2]->peer = conns[conn_count - 1];
    conns[conn_count - 1]->peer = conns[conn_count - 2];
    return 0;
}

static void on_connect_late(void *obj, uint64_t token)
{
    struct conn *c = obj;

    if (!c->destroyed && c->phase == PHASE_CONNECTING)
        conn_end(c, strerror(ETIMEDOUT));
}

struct conn *conn_connect(struct loop *loop, const struct net_addr *addr,
                          const struct tls_psk *psk,
                          void (*connected)(void *arg, struct conn *c),
                          const struct conn_calls *calls, struct err *e)
{
    struct machine *m = loop->machine, *to = machine_at(addr);
    struct conn *c = conn_new(m);
    struct parcel *p;

    c->at = m->address;
    c->peer_at = *addr;
    c->calls = *calls;
    c->connected = connected;
    c->phase = PHASE_CONNECTING;
    p = parcel_new(c, PARCEL_SYN, 0);
    p->to = to;
    parcel_travel(c, p);
    machine_after(m, CONNECT_TIMEOUT_MS * 1000ull, on_connect_late, c, 0);
    return c;
}

void conn_send(struct conn *c, const struct msg *m)
{
    static uint8_t frame[FRAME_HEADER_SIZE + FRAME_BODY_MAX];
    struct parcel *p;
    size_t size;

    if (c->phase > PHASE_OPEN || c->life != c->machine->life)
        return;
    size = proto_encode(m, frame, sizeof(frame));
    p = world_alloc(sim.world, sizeof(*p) + size);
    p->kind = PARCEL_FRAME;
    p->size = size;
    memcpy(p->bytes, frame, size);
    append(&c->out, p);
    c->waiting += size;
}

static void on_room(void *obj, uint64_t token)
{
    struct conn *c = obj;

    if (!c->destroyed)
        conn_resume(c);
}

void conn_flush(struct conn *c)
{
    struct parcel *p;

    c->flushed = true;
    if (c->phase == PHASE_CONNECTING || c->phase == PHASE_OVER || !c->peer ||
        c->life != c->machine->life)
        return;
    if (c->server && c->out)
        watch_flushes(c->machine, c);
    while ((p = c->out)) {
        c->out = p->next;
        p->next = NULL;
        p->conn = c->peer;
        p->to = c->peer->machine;
        p->life = c->peer->life;
        parcel_travel(c, p);
    }
    c->waiting = 0;
    if (c->held)
        machine_after(c->machine, 1000, on_room, c, 0);
    if (c->phase == PHASE_LEAVING)
        conn_shut(c);
}

size_t conn_waiting(const struct conn *c)
{
    return c->waiting;
}

void conn_hold(struct conn *c)
{
    c->held = true;
}

void conn_resume(struct conn *c)
{
    if (!c->held || c->phase > PHASE_OPEN || !c->calls.ready(c->calls.arg, c))
        return;
    c->held = false;
    conn_take_input(c);
}

void conn_hang_up(struct conn *c)
{
    if (c->phase == PHASE_CONNECTING) {
        conn_end(c, "");
    } else if (c->phase == PHASE_OPEN) {
        c->phase = PHASE_LEAVING;
        c->deadline++;
        if (!c->out)
            conn_shut(c);
    }
}

static void on_deadline(void *obj, uint64_t deadline)
{
    struct conn *c = obj;

    if (c->destroyed || c->deadline != deadline || c->phase == PHASE_OVER)
        return;
    conn_tell_peer(c, PARCEL_FIN);
    conn_end(c, "too late");
}

void conn_set_deadline(struct conn *c, uint64_t at_ms, const char *why)
{
    c->deadline++;
    if (at_ms)
        machine_after(c->machine,
                      machine_clock_until_us(&c->machine->clock, sim.world, at_ms),
                      on_deadline, c, c->deadline);
}

const struct net_addr *conn_peer(const struct conn *c)
{
    return &c->peer_at;
}

const char *conn_identity(const struct conn *c)
{
    return "";
}

const struct tls_session *conn_session(const struct conn *c)
{
    return NULL;
}

enum local_peer conn_local_peer(const struct conn *c, uid_t *uid)
{
    return LOCAL_PEER_ELSEWHERE;
}

enum local_peer __wrap_local_peer_find(int fd, uid_t *uid)
{
    return LOCAL_PEER_ELSEWHERE;
}

bool conn_local(const struct conn *c, struct net_addr *addr)
{
    *addr = c->at;
    return !c->local;
}

/* -- listeners -------------------------------------------------------------------- */

struct listener *listener_create(struct loop *loop, const struct net_addr *addr,
                                 const struct listener_calls *calls, struct err *e)
{
    struct machine *m = loop->machine;
    struct listener *l = world_alloc(sim.world, sizeof(*l));

    for (struct listener *other = m->listeners; other; other = other->next)
        if (net_port(&other->at) == net_port(addr)) {
            err_set(e, "the port is in use");
            return NULL;
        }
    *l = (struct listener){ .machine = m, .at = *addr, .calls = *calls };
    if (!net_port(addr))
        net_set_port(&l->at, (uint16_t)world_between(sim.world, 30000, 60000));
    l->next = m->listeners;
    m->listeners = l;
    return l;
}

struct listener *listener_adopt(struct loop *loop, int fd,
                                const struct listener_calls *calls)
{
    abort();
}

void listener_destroy(struct listener *l)
{
    struct listener **at;

    if (!l)
        return;
    at = &l->machine->listeners;
    while (*at && *at != l)
        at = &(*at)->next;
    if (*at)
        *at = l->next;
}

const struct net_addr *listener_address(const struct listener *l)
{
    return &l->at;
}

unsigned listener_waiting(const struct listener *l)
{
    return 0;
}

bool listener_drop_oldest(struct listener *l)
{
    return false;
}
