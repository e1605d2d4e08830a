/* SPDX-License-Identifier: MIT */
/*
 * Chooses the cores of the ranks if there are more ranks than cores. A rank that waits
 * yields its core only if a rank that it waits for needs it, since a switch costs more
 * than a small collective.
 */
#include "worker-lib/backends/shm/backend_shm.h"

/* The cores that a thread was allowed to use at its first call. */
static const cpu_set_t *allowed_cores(const struct shm *s, unsigned place)
{
    return &shm_seat(s, place)->cpus;
}

static void all_allowed(const struct shm *s, cpu_set_t *all)
{
    CPU_ZERO(all);
    for (unsigned p = 0; p < s->team.size; p++)
        CPU_OR(all, all, allowed_cores(s, p));
}

/* -- spread ------------------------------------------------------------------------ */

/* Cores, and the number of ranks assigned to each. */
struct deal {
    unsigned cores;
    uint16_t core[CPU_SETSIZE], ranks[CPU_SETSIZE];
};

static void begin_deal(struct deal *d, const cpu_set_t *all)
{
    d->cores = 0;
    for (unsigned core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, all)) {
            d->core[d->cores] = (uint16_t)core;
            d->ranks[d->cores++] = 0;
        }
}

/* The next rank's core: of its allowed cores, the first with the fewest ranks.
 * -1: none. */
static int deal_core(struct deal *d, const cpu_set_t *may_use)
{
    unsigned best = d->cores;

    for (unsigned i = 0; i < d->cores; i++)
        if (CPU_ISSET(d->core[i], may_use) &&
            (best == d->cores || d->ranks[i] < d->ranks[best]))
            best = i;
    if (best == d->cores)
        return -1;
    d->ranks[best]++;
    return d->core[best];
}

static bool is_bound(const struct shm *s, unsigned place)
{
    return CPU_COUNT(allowed_cores(s, place)) == 1;
}

/* The same assignment in all ranks; ranks with only one allowed core come first. */
int shm_cores_choose(const struct shm *s)
{
    unsigned me = s->team.rank;
    cpu_set_t all;
    struct deal d;
    int core = -1;

    all_allowed(s, &all);
    begin_deal(&d, &all);
    if (is_bound(s, me))
        return deal_core(&d, allowed_cores(s, me));
    for (unsigned p = 0; p < s->team.size; p++)
        if (is_bound(s, p))
            deal_core(&d, allowed_cores(s, p));
    for (unsigned p = 0; p <= me; p++)
        if (!is_bound(s, p))
            core = deal_core(&d, allowed_cores(s, p));
    return core;
}

/*
 * Moves to that core, and removes the binding again. Ranks that share cores hardly ever
 * sleep, so they are slow to leave the cores on which they happened to start, and with
 * real-time priority they never do: with three ranks on one core and one on the other,
 * everything takes as long as three ranks on a core. A permanent binding would be
 * worse: a rank could not use cores that become idle, and the program's threads would
 * inherit the binding. So only this thread moves, once, to a core that it may use. A
 * failure to move is ignored.
 */
static void move_to(int core)
{
    cpu_set_t only, before;

    if (core < 0 || sched_getaffinity(0, sizeof(before), &before) < 0 ||
        !CPU_ISSET((size_t)core, &before))
        return;
    CPU_ZERO(&only);
    CPU_SET((size_t)core, &only);
    if (sched_setaffinity(0, sizeof(only), &only) == 0)
        sched_setaffinity(0, sizeof(before), &before);
}

/* Spinning for long pays only if the rank that is waited for runs at the same time. */
void shm_cores_share(struct shm *s)
{
    cpu_set_t all;
    int cores;

    all_allowed(s, &all);
    cores = CPU_COUNT(&all);
    s->crowded = cores < (int)s->team.size;
    s->backend.cores_are_scarce = cores < 2 * (int)s->team.size;
    if (s->crowded)
        move_to(shm_cores_choose(s));
}

/* -- the ranks' cores -------------------------------------------------------------- */

static _Atomic uint32_t *core_of(const struct shm *s, unsigned place)
{
    return (_Atomic uint32_t *)(void *)(s->base + s->at.cores) + place;
}

/* Every rank reads the published cores of all: the cache lines stay shared while no
 * rank moves. */
void shm_core_say(const struct shm *s)
{
    uint32_t core = (uint32_t)sched_getcpu();
    _Atomic uint32_t *published = core_of(s, s->team.rank);

    if (atomic_load_explicit(published, memory_order_relaxed) != core)
        atomic_store_explicit(published, core, memory_order_relaxed);
}

unsigned shm_core_sharer(const struct shm *s, unsigned from)
{
    uint32_t core = (uint32_t)sched_getcpu();

    while (from < s->team.size &&
           atomic_load_explicit(core_of(s, from), memory_order_relaxed) != core)
        from++;
    return from;
}
