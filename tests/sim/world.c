/* SPDX-License-Identifier: MIT */
#include "tests/sim/world.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"

struct world_event {
    uint64_t at_us, number;
    world_fn *fn;
    void *obj;
    uint64_t token;
};

struct sim_world {
    uint64_t now_us, rng, numbers, events;
    struct world_event *heap; /* the earliest is heap[0]; children of i: 2i+1, 2i+2 */
    size_t count, room;
    void **memory;
    size_t memory_count, memory_room;
};

struct sim_world *world_create(uint64_t seed)
{
    struct sim_world *w = xcalloc(1, sizeof(*w));

    w->rng = seed * 0x9e3779b97f4a7c15u + 0x1234567;
    return w;
}

void world_destroy(struct sim_world *w)
{
    for (size_t i = 0; i < w->memory_count; i++)
        free(w->memory[i]);
    free(w->memory);
    free(w->heap);
    free(w);
}

void *world_alloc(struct sim_world *w, size_t size)
{
    if (w->memory_count == w->memory_room) {
        w->memory_room = w->memory_room ? 2 * w->memory_room : 64;
        w->memory = xrealloc(w->memory, w->memory_room * sizeof(*w->memory));
    }
    return w->memory[w->memory_count++] = xcalloc(1, size);
}

uint64_t world_now(const struct sim_world *w)
{
    return w->now_us;
}

uint64_t world_events(const struct sim_world *w)
{
    return w->events;
}

static bool is_before(const struct world_event *a, const struct world_event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->number < b->number;
}

void world_after(struct sim_world *w, uint64_t delay_us, world_fn *fn, void *obj,
                 uint64_t token)
{
    struct world_event ev = { w->now_us + delay_us, w->numbers++, fn, obj, token };
    size_t i = w->count++;

    if (w->count > w->room) {
        w->room = w->room ? 2 * w->room : 256;
        w->heap = xrealloc(w->heap, w->room * sizeof(*w->heap));
    }
    for (; i > 0 && is_before(&ev, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = ev;
}

static struct world_event pop(struct sim_world *w)
{
    struct world_event top = w->heap[0], last = w->heap[--w->count];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < w->count) {
        if (child + 1 < w->count && is_before(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!is_before(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return top;
}

bool world_step(struct sim_world *w, uint64_t until_us)
{
    struct world_event ev;

    if (w->count == 0 || w->heap[0].at_us > until_us) {
        w->now_us = until_us;
        return false;
    }
    ev = pop(w);
    w->now_us = ev.at_us;
    w->events++;
    ev.fn(ev.obj, ev.token);
    return true;
}

/* splitmix64 */
uint64_t world_random(struct sim_world *w)
{
    uint64_t z = w->rng += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t world_below(struct sim_world *w, uint64_t n)
{
    return n ? world_random(w) % n : 0;
}

uint64_t world_between(struct sim_world *w, uint64_t low, uint64_t high)
{
    return low + world_below(w, high - low + 1);
}

bool world_chance(struct sim_world *w, unsigned per_mille)
{
    return world_below(w, 1000) < per_mille;
}

struct id128 world_id(struct sim_world *w)
{
    uint64_t bits[2] = { world_random(w), world_random(w) };
    struct id128 id;

    memcpy(id.byte, bits, sizeof(id.byte));
    return id;
}

void machine_clock_init(struct machine_clock *c, struct sim_world *w)
{
    c->start_us = w->now_us;
    c->start_ms = world_between(w, 1000, 1000000000);
    c->ppm = world_between(w, 950000, 1050000);
    c->wall_ms = world_between(w, 1000000000000, 2000000000000);
}

uint64_t machine_clock_ms(const struct machine_clock *c, const struct sim_world *w)
{
    return c->start_ms + (w->now_us - c->start_us) * c->ppm / 1000000000;
}

uint64_t machine_clock_wall_ms(const struct machine_clock *c, const struct sim_world *w)
{
    return c->wall_ms + machine_clock_ms(c, w);
}

uint64_t machine_clock_until_us(const struct machine_clock *c,
                                const struct sim_world *w, uint64_t ms)
{
    uint64_t now_ms = machine_clock_ms(c, w), at_us;

    if (ms <= now_ms)
        return 0;
    if (ms - c->start_ms > UINT64_MAX / 4000000000)
        return UINT64_MAX / 4; /* never */
    at_us = c->start_us + (ms - c->start_ms) * 1000000000 / c->ppm + 1;
    return at_us > w->now_us ? at_us - w->now_us : 1;
}
