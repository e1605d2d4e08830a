/* SPDX-License-Identifier: MIT */
#include "tests/replicas/machine.h"

#include <stdlib.h>

#include "rendezvous/common/base/id128.h"
#include "rendezvous/common/base/loop.h"
#include "tests/replicas/watch.h"

struct replica_sim sim;
static struct machine *now_in;

struct late_event {
    struct late_event *next;
    struct machine *machine;
    uint64_t life;
    world_fn *fn;
    void *obj;
    uint64_t token;
};

struct deferred {
    struct deferred *next;
    void (*destroy)(void *object);
    void *object;
};

struct machine *machine_now(void)
{
    return now_in;
}

/* -- events ------------------------------------------------------------------- */

static void machine_end_turn(struct machine *m)
{
    struct loop *l = &m->loop;
    struct deferred *d;

    for (unsigned i = 0; i < l->turn_ends; i++)
        if (l->turn_end[i].work)
            l->turn_end[i].work(l->turn_end[i].arg);
    while ((d = l->deferred)) {
        l->deferred = d->next;
        d->destroy(d->object);
    }
    watch_turn(m);
}

static void run_late(struct late_event *e)
{
    if (e->life == e->machine->life)
        e->fn(e->obj, e->token);
}

void machine_enter(struct machine *m, world_fn *fn, void *obj, uint64_t token)
{
    now_in = m;
    fn(obj, token);
    machine_end_turn(m);
    now_in = NULL;
}

static void on_event(void *obj, uint64_t token)
{
    struct late_event *e = obj;
    struct machine *m = e->machine;

    if (e->life != m->life)
        return;
    if (m->paused) {
        *m->last_late = e;
        m->last_late = &e->next;
        return;
    }
    machine_enter(m, e->fn, e->obj, e->token);
}

void machine_after(struct machine *m, uint64_t delay_us, world_fn *fn, void *obj,
                   uint64_t token)
{
    struct late_event *e = world_alloc(sim.world, sizeof(*e));

    *e = (struct late_event){ NULL, m, m->life, fn, obj, token };
    world_after(sim.world, delay_us, on_event, e, 0);
}

/* All that has come meanwhile is there at once: in one turn, or in some. */
static void on_wake(void *obj, uint64_t life)
{
    struct machine *m = obj;
    struct late_event *e = m->late;

    if (!m->paused || m->life != life)
        return;
    trace_line(&sim.trace, m->name, "wakes up");
    m->paused = false;
    m->late = NULL;
    m->last_late = &m->late;
    now_in = m;
    for (; e; e = e->next) {
        run_late(e);
        if (world_chance(sim.world, 200))
            machine_end_turn(m);
    }
    machine_end_turn(m);
    now_in = NULL;
}

void machine_pause(struct machine *m, uint64_t for_us)
{
    if (m->paused || !m->crun)
        return;
    trace_line(&sim.trace, m->name, "pauses for %llu ms",
               (unsigned long long)for_us / 1000);
    m->paused = true;
    world_after(sim.world, for_us, on_wake, m, m->life);
}

void machine_kill(struct machine *m, bool quiet, void (*free)(struct crun *c))
{
    struct crun *c = m->crun;

    if (!c)
        return;
    trace_line(&sim.trace, m->name, "dies%s", quiet ? " silently" : "");
    m->crun = NULL;
    m->life++;
    m->paused = false;
    m->late = NULL;
    m->last_late = &m->late;
    wire_lose(m, quiet);
    now_in = m;
    free(c);
    m->loop.turn_ends = 0;
    machine_end_turn(m);
    now_in = NULL;
    m->life++; /* its destructors have left something for later */
}

struct machine *machine_at(const struct net_addr *addr)
{
    for (unsigned i = 0; i < sim.count; i++)
        if (net_same_host(&sim.machine[i].address, addr))
            return &sim.machine[i];
    return NULL;
}

/* -- in place of loop.c --------------------------------------------------------- */

void loop_defer(struct loop *l, void (*destroy)(void *object), void *object)
{
    struct deferred *d = world_alloc(sim.world, sizeof(*d));

    *d = (struct deferred){ l->deferred, destroy, object };
    l->deferred = d;
}

void loop_on_turn_end(struct loop *l, void (*work)(void *arg), void *arg)
{
    unsigned i = 0;

    while (i < l->turn_ends && l->turn_end[i].work)
        i++;
    if (i == sizeof(l->turn_end) / sizeof(l->turn_end[0]))
        abort();
    l->turn_end[i].work = work;
    l->turn_end[i].arg = arg;
    if (i == l->turn_ends)
        l->turn_ends++;
}

void loop_off_turn_end(struct loop *l, void (*work)(void *arg), void *arg)
{
    for (unsigned i = 0; i < l->turn_ends; i++)
        if (l->turn_end[i].work == work && l->turn_end[i].arg == arg)
            l->turn_end[i].work = NULL;
}

/* timer->event points at one of these, which outlives the timer. */
struct timer_place {
    struct machine *machine;
    struct loop_timer *timer; /* NULL: it is gone */
    uint64_t arms;
};

void loop_timer_init(struct loop_timer *t, struct loop *l, void (*fn)(void *arg),
                     void *arg)
{
    struct timer_place *p = world_alloc(sim.world, sizeof(*p));

    *p = (struct timer_place){ l->machine, t, 0 };
    *t = (struct loop_timer){ .event = (struct event *)p, .fn = fn, .arg = arg };
}

void loop_timer_fini(struct loop_timer *t)
{
    if (t->event)
        ((struct timer_place *)t->event)->timer = NULL;
    t->event = NULL;
    t->armed = false;
}

static void on_timer(void *obj, uint64_t arms)
{
    struct timer_place *p = obj;

    if (!p->timer || p->arms != arms || !p->timer->armed)
        return;
    p->timer->armed = false;
    p->timer->fn(p->timer->arg);
}

void loop_timer_arm(struct loop_timer *t, uint64_t at_ms)
{
    struct timer_place *p = (struct timer_place *)t->event;

    if (t->armed && t->at_ms == at_ms)
        return;
    t->armed = true;
    t->at_ms = at_ms;
    machine_after(p->machine,
                  machine_clock_until_us(&p->machine->clock, sim.world, at_ms),
                  on_timer, p, ++p->arms);
}

void loop_timer_cancel(struct loop_timer *t)
{
    t->armed = false;
}

struct event_base *loop_base(struct loop *l)
{
    abort();
}

struct loop *loop_create(void)
{
    abort();
}

void loop_destroy(struct loop *l)
{
}

void loop_run(struct loop *l)
{
    abort();
}

void loop_stop(struct loop *l)
{
}

void loop_turn(struct loop *l, uint64_t wait_ms)
{
    abort();
}

void loop_on_signal(struct loop *l, int signo, void (*fn)(void *arg, int signo),
                    void *arg)
{
}

struct signal_sender loop_signal_sender(int signo)
{
    return (struct signal_sender){ .is_process = false };
}

void loop_die_of_signal(int signo)
{
}

/* -- time and chance ------------------------------------------------------------ */

uint64_t __wrap_clock_ms(void)
{
    return machine_clock_ms(&now_in->clock, sim.world);
}

uint64_t __wrap_clock_us(void)
{
    return 1000 * machine_clock_ms(&now_in->clock, sim.world);
}

uint64_t __wrap_clock_wall_ms(void)
{
    return machine_clock_wall_ms(&now_in->clock, sim.world);
}

struct id128 __wrap_id128_random(void)
{
    return world_id(sim.world);
}
