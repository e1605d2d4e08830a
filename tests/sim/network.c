/* SPDX-License-Identifier: MIT */
#include "tests/sim/network.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/frame.h"
#include "rendezvous/wire/protocol/proto.h"
#include "tests/sim/trace.h"
#include "tests/sim/world.h"

enum parcel_kind { PARCEL_OPEN, PARCEL_FRAME, PARCEL_CLOSE, PARCEL_RESET };

struct sim_parcel {
    struct sim_parcel *next, *next_of_all;
    struct sim_link *link;
    enum link_end to;
    enum parcel_kind kind;
    size_t size, room;
    uint8_t *bytes;
};

struct queue {
    struct sim_parcel *first, **last;
};

struct sim_link {
    struct sim_link *next;
    struct network *network;
    struct path *path;
    const char *name;
    struct {
        const struct link_calls *calls;
        void *arg;
        bool open;
        uint64_t arrives_us; /* not before what was sent earlier */
        struct queue held;   /* arrived at a cut or at a sleeper */
        uint8_t *last_frame; /* sent from here */
        size_t last_size;
    } end[2];
    bool connecting, broken, tainted;
    void *tag;
};

struct network {
    struct sim_world *world;
    struct trace *trace;
    const struct link_calls *server_calls;
    void *server;
    struct sim_link *links;
    struct sim_parcel *parcels, *spare;
    uint8_t scratch[FRAME_HEADER_SIZE + FRAME_BODY_MAX];
};

/* -- parcels ---------------------------------------------------------------- */

static struct sim_parcel *parcel_new(struct sim_link *l, enum link_end to,
                                     enum parcel_kind kind)
{
    struct network *n = l->network;
    struct sim_parcel *p = n->spare;

    if (p) {
        n->spare = p->next;
    } else {
        p = world_alloc(n->world, sizeof(*p));
        p->next_of_all = n->parcels;
        n->parcels = p;
    }
    p->next = NULL;
    p->link = l;
    p->to = to;
    p->kind = kind;
    p->size = 0;
    return p;
}

static void parcel_fill(struct sim_parcel *p, const void *bytes, size_t size)
{
    if (size > p->room) {
        p->room = size < 512 ? 512 : size;
        p->bytes = xrealloc(p->bytes, p->room);
    }
    memcpy(p->bytes, bytes, size);
    p->size = size;
}

void parcel_drop(struct sim_parcel *p)
{
    p->next = p->link->network->spare;
    p->link->network->spare = p;
}

struct sim_parcel *parcel_next(const struct sim_parcel *p)
{
    return p->next;
}

struct sim_parcel **parcel_link(struct sim_parcel *p)
{
    return &p->next;
}

static enum link_end other(enum link_end end)
{
    return end == LINK_CLIENT ? LINK_SERVER : LINK_CLIENT;
}

/* -- arrival ---------------------------------------------------------------- */

static uint64_t some_delay(struct sim_link *l)
{
    return world_between(l->network->world, l->path->delay_min_us,
                         l->path->delay_max_us);
}

static void shut(struct sim_link *l, enum link_end end, const char *why)
{
    if (!l->end[end].open)
        return;
    l->end[end].open = false;
    l->end[end].calls->closed(l->end[end].arg, l, why);
}

/* What a frame says must be legal to any reader, whatever is done to it. */
static void hand_over(struct sim_parcel *p)
{
    struct sim_link *l = p->link;
    struct msg m;
    struct frame_header h;
    struct err e;
    uint32_t body_max = l->end[p->to].calls->body_max(l->end[p->to].arg, l);

    if (frame_get_header(p->bytes, p->size, body_max, &h, &e) != 1 ||
        proto_decode(&h, p->bytes + FRAME_HEADER_SIZE, &m, &e) < 0) {
        trace_violation(l->network->trace,
                        "frame of type %u, %zu bytes (%u allowed), does not decode: %s",
                        (unsigned)h.type, p->size, body_max, e.text);
        return;
    }
    l->end[p->to].calls->message(l->end[p->to].arg, l, &m);
}

static void reset_peer(struct sim_link *l, enum link_end to)
{
    if (l->end[to].open)
        parcel_post(parcel_new(l, to, PARCEL_RESET));
}

static void deliver(struct sim_parcel *p)
{
    struct sim_link *l = p->link;

    switch (p->kind) {
    case PARCEL_OPEN:
        if (l->end[p->to].open)
            l->end[p->to].calls->opened(l->end[p->to].arg, l);
        break;
    case PARCEL_FRAME:
        if (l->broken)
            break;
        if (l->end[p->to].open)
            hand_over(p);
        else if (l->end[p->to].arg) /* its program is there, this connection is not */
            reset_peer(l, p->to == LINK_CLIENT ? LINK_SERVER : LINK_CLIENT);
        break;
    case PARCEL_CLOSE:
        if (!l->broken)
            shut(l, p->to, "");
        break;
    case PARCEL_RESET:
        shut(l, p->to, "connection reset");
        break;
    }
    parcel_drop(p);
}

static bool is_passable(const struct sim_link *l, enum link_end to)
{
    if (l->path->cut[to])
        return false;
    return !l->end[to].open || !l->end[to].calls->asleep(l->end[to].arg);
}

static void arrive(void *obj, uint64_t token)
{
    struct sim_parcel *p = obj;
    struct queue *held = &p->link->end[p->to].held;

    if (!held->first && is_passable(p->link, p->to)) {
        deliver(p);
        return;
    }
    *held->last = p;
    held->last = &p->next;
}

static void pump(struct sim_link *l, enum link_end to)
{
    struct queue *held = &l->end[to].held;

    while (held->first && is_passable(l, to)) {
        struct sim_parcel *p = held->first;

        held->first = p->next;
        if (!held->first)
            held->last = &held->first;
        p->next = NULL;
        deliver(p);
    }
}

void network_wake(struct network *n)
{
    for (struct sim_link *l = n->links; l; l = l->next) {
        pump(l, LINK_SERVER);
        pump(l, LINK_CLIENT);
    }
}

static void remember(struct sim_link *l, enum link_end from, const struct sim_parcel *p)
{
    l->end[from].last_frame = xrealloc(l->end[from].last_frame, p->size);
    memcpy(l->end[from].last_frame, p->bytes, p->size);
    l->end[from].last_size = p->size;
}

void parcel_post(struct sim_parcel *p)
{
    struct sim_link *l = p->link;
    struct sim_world *w = l->network->world;
    uint64_t at = world_now(w) + some_delay(l);

    p->next = NULL;
    if (p->kind == PARCEL_FRAME)
        remember(l, other(p->to), p);
    if (at < l->end[p->to].arrives_us)
        at = l->end[p->to].arrives_us;
    l->end[p->to].arrives_us = at;
    world_after(w, at - world_now(w), arrive, p, 0);
}

/* -- connections ------------------------------------------------------------ */

struct network *network_create(struct sim_world *w, struct trace *t)
{
    struct network *n = world_alloc(w, sizeof(*n));

    n->world = w;
    n->trace = t;
    return n;
}

void network_destroy(struct network *n)
{
    for (struct sim_parcel *p = n->parcels; p; p = p->next_of_all)
        free(p->bytes);
    for (struct sim_link *l = n->links; l; l = l->next) {
        free(l->end[0].last_frame);
        free(l->end[1].last_frame);
    }
}

void network_listen(struct network *n, const struct link_calls *calls, void *arg)
{
    n->server_calls = calls;
    n->server = arg;
}

static void time_out(void *obj, uint64_t token)
{
    struct sim_link *l = obj;

    if (l->connecting) {
        l->connecting = false;
        shut(l, LINK_CLIENT, "timed out");
    }
}

/* The kernel answers for a server that sleeps. */
static void syn_arrives(void *obj, uint64_t token)
{
    struct sim_link *l = obj;
    struct network *n = l->network;

    if (!l->end[LINK_CLIENT].open || l->path->cut[LINK_SERVER] ||
        l->path->cut[LINK_CLIENT])
        return;
    l->connecting = false;
    if (!n->server) {
        reset_peer(l, LINK_CLIENT);
        return;
    }
    l->end[LINK_SERVER].calls = n->server_calls;
    l->end[LINK_SERVER].arg = n->server;
    l->end[LINK_SERVER].open = true;
    parcel_post(parcel_new(l, LINK_SERVER, PARCEL_OPEN));
    parcel_post(parcel_new(l, LINK_CLIENT, PARCEL_OPEN));
}

struct sim_link *network_connect(struct network *n, struct path *path, const char *name,
                                 const struct link_calls *calls, void *arg)
{
    struct sim_link *l = world_alloc(n->world, sizeof(*l));

    l->network = n;
    l->path = path;
    l->name = name;
    l->connecting = true;
    l->end[LINK_CLIENT].calls = calls;
    l->end[LINK_CLIENT].arg = arg;
    l->end[LINK_CLIENT].open = true;
    for (int i = 0; i < 2; i++)
        l->end[i].held.last = &l->end[i].held.first;
    l->next = n->links;
    n->links = l;
    world_after(n->world, some_delay(l), syn_arrives, l, 0);
    world_after(n->world, CONNECT_TIMEOUT_MS * 1000ull, time_out, l, 0);
    return l;
}

struct sim_parcel *link_pack(struct sim_link *l, enum link_end from,
                             const struct msg *m)
{
    struct network *n = l->network;
    struct sim_parcel *p = parcel_new(l, other(from), PARCEL_FRAME);
    size_t size = proto_encode(m, n->scratch, sizeof(n->scratch));

    if (size < FRAME_HEADER_SIZE + 2 || size > sizeof(n->scratch))
        trace_violation(n->trace, "message of type %d encodes to %zu bytes", m->type,
                        size);
    else
        parcel_fill(p, n->scratch, size);
    return p;
}

void link_send(struct sim_link *l, enum link_end from, const struct msg *m)
{
    if (l->end[from].open && !l->connecting)
        parcel_post(link_pack(l, from, m));
}

void link_close(struct sim_link *l, enum link_end from)
{
    if (!l->end[from].open)
        return;
    l->end[from].open = false;
    if (!l->connecting)
        parcel_post(parcel_new(l, other(from), PARCEL_CLOSE));
    l->connecting = false;
}

void link_abandon(struct sim_link *l, enum link_end gone, bool quiet)
{
    if (!l->end[gone].open)
        return;
    l->end[gone].open = false;
    l->connecting = false;
    if (!quiet)
        reset_peer(l, other(gone));
}

void link_break(struct sim_link *l)
{
    l->broken = true;
    reset_peer(l, LINK_CLIENT);
    reset_peer(l, LINK_SERVER);
}

void link_repeat(struct sim_link *l, enum link_end from, enum forgery forgery,
                 const struct id128 *instance)
{
    struct sim_parcel *p;
    uint8_t *epoch;

    if (!l->end[from].open || l->connecting || l->end[from].last_size == 0)
        return;
    l->tainted = true;
    p = parcel_new(l, other(from), PARCEL_FRAME);
    parcel_fill(p, l->end[from].last_frame, l->end[from].last_size);
    epoch = p->bytes + FRAME_HEADER_SIZE - sizeof(*instance) - 8;
    if (forgery == FORGE_EPOCH)
        epoch[0]--;
    if (forgery == FORGE_INSTANCE)
        memcpy(epoch + 8, instance, sizeof(*instance));
    parcel_post(p);
}

void network_each(struct network *n, void (*fn)(struct sim_link *l, void *arg),
                  void *arg)
{
    for (struct sim_link *l = n->links; l; l = l->next)
        if (l->end[LINK_SERVER].open)
            fn(l, arg);
}

bool link_is_open(const struct sim_link *l, enum link_end end)
{
    return l->end[end].open && !l->connecting;
}

bool link_is_tainted(const struct sim_link *l)
{
    return l->tainted;
}

bool link_is_local(const struct sim_link *l)
{
    return l->path->local;
}

const char *link_address(const struct sim_link *l)
{
    return l->path->address;
}

const char *link_name(const struct sim_link *l)
{
    return l->name;
}

void link_set_tag(struct sim_link *l, void *tag)
{
    l->tag = tag;
}

void *link_tag(const struct sim_link *l)
{
    return l->tag;
}

void *link_client(const struct sim_link *l)
{
    return l->end[LINK_CLIENT].arg;
}

const struct link_calls *link_client_calls(const struct sim_link *l)
{
    return l->end[LINK_CLIENT].calls;
}
