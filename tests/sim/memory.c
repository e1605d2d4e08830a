/* SPDX-License-Identifier: MIT */
#include "tests/sim/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/client/session.h"
#include "tests/sim/agent.h"
#include "tests/sim/facts.h"
#include "tests/sim/machine.h"
#include "tests/sim/probe.h"
#include "tests/sim/sim.h"

#define SAVE_US 150000 /* between two looks whether the next save may begin */
#define COPY_US 60000

/* What the workers of an epoch know of each other. */
struct sim_epoch {
    struct sim_epoch *next;
    struct id128 instance;
    uint64_t epoch, first_step;
    uint32_t nodes, running;
    bool failed;                                            /* a node lacks a part */
    uint64_t saved[EPOCH_NODES_MAX], kept[EPOCH_NODES_MAX]; /* by group rank */
};

bool sim_memory_is_used(const struct sim_agent *a)
{
    return a->sim->plan.memory;
}

static bool has_shared(const struct sim_agent *a)
{
    return a->sim->plan.has_shared;
}

static bool keeps_shared(const struct sim_agent *a)
{
    return has_shared(a) && (!a->sim->plan.one_shared || a->start.group_rank == 0);
}

static bool is_set(const struct sim_part *p, const struct memory_set *set)
{
    return p->set.world > 0 && p->set.world == set->world &&
           p->set.epoch == set->epoch && p->set.step == set->step;
}

static bool is_older(const struct memory_set *a, const struct memory_set *b)
{
    return a->epoch != b->epoch ? a->epoch < b->epoch : a->step < b->step;
}

bool sim_memory_has(const struct sim_agent *a, const struct memory_set *set,
                    uint32_t rank)
{
    for (int i = 0; i < SIM_PARTS_MAX; i++) {
        const struct sim_part *p = &a->memory.part[i];

        if (is_set(p, set) && rank >= p->first && rank < p->first + p->count)
            return true;
    }
    return false;
}

bool sim_memory_has_shared(const struct sim_agent *a, const struct memory_set *set)
{
    bool shared = false, ranks = false; /* without ranks, nobody is told of it */

    for (int i = 0; i < SIM_PARTS_MAX; i++)
        if (is_set(&a->memory.part[i], set)) {
            shared |= a->memory.part[i].shared;
            ranks |= a->memory.part[i].count > 0;
        }
    return shared && ranks;
}

/* In a free place, or in that of the oldest one. */
static void keep_part(struct sim_agent *a, const struct sim_part *part)
{
    struct sim_part *to = &a->memory.part[2];

    for (int i = 2; i < SIM_PARTS_MAX && to->set.world > 0; i++)
        if (a->memory.part[i].set.world == 0 ||
            is_older(&a->memory.part[i].set, &to->set))
            to = &a->memory.part[i];
    *to = *part;
}

/* All ranks have committed what is in the older slot. */
static void drop_old_parts(struct sim_agent *a)
{
    struct sim_memory *m = &a->memory;
    const struct memory_set *oldest = is_older(&m->part[0].set, &m->part[1].set)
                                          ? &m->part[0].set
                                          : &m->part[1].set;

    for (int i = 2; i < SIM_PARTS_MAX && m->part[0].set.world && m->part[1].set.world;
         i++)
        if (is_older(&m->part[i].set, oldest))
            m->part[i].set.world = 0;
}

/* -- the start ---------------------------------------------------------------- */

void sim_memory_note_holders(struct sim_agent *a, const struct msg *m)
{
    struct sim_memory *memory = &a->memory;
    size_t used = strlen(memory->holders);

    if (memory->holders_epoch != m->epoch)
        used = 0;
    memory->holders_epoch = m->epoch;
    snprintf(memory->holders + used, sizeof(memory->holders) - used, "%s ",
             m->memory_at.holders);
}

static struct sim_agent *agent_at(const struct sim_agent *a, const char *address)
{
    unsigned number, port;

    if (sscanf(address, "10.0.0.%u:%u", &number, &port) != 2)
        return NULL;
    for (struct sim_agent *other = a->sim->agents; other; other = other->next)
        if (other->machine->number + 1 == number && other->end == AGENT_LIVES &&
            id128_equal(session_instance(other->session), session_instance(a->session)))
            return other;
    return NULL;
}

/* From those that MEMORY_AT names. */
static bool fetch_rank(struct sim_agent *a, const struct memory_set *set, uint32_t rank,
                       bool shared)
{
    const char *at = a->memory.holders_epoch == a->epoch ? a->memory.holders : "";
    struct sim_part part = { .set = *set,
                             .first = rank,
                             .count = !shared,
                             .has_shared = has_shared(a),
                             .shared = shared,
                             .origin = SIM_PART_FETCHED };

    for (; *at; at += strcspn(at, " ") + 1) {
        const struct sim_agent *other = agent_at(a, at);

        if (other && (shared ? sim_memory_has_shared(other, set)
                             : sim_memory_has(other, set, rank))) {
            keep_part(a, &part);
            probe_memory[PROBE_MEMORY_FETCHED]++;
            return true;
        }
    }
    return false;
}

static bool restore_parts(struct sim_agent *a, const struct memory_set *set)
{
    uint32_t first = 0, last = set->world;

    if (set->world == a->start.world_size) {
        first = a->start.first_rank;
        last = first + a->start.workers;
    }
    for (uint32_t rank = first; rank < last; rank++)
        if (!sim_memory_has(a, set, rank) && !fetch_rank(a, set, rank, false))
            return false;
    return !has_shared(a) || sim_memory_has_shared(a, set) ||
           fetch_rank(a, set, 0, true);
}

/* Of rank 0's node, which starts first, it is a new one. */
static struct sim_epoch *epoch_of(struct sim_agent *a)
{
    struct sim_epoch *e = a->sim->epochs;

    while (e && !a->start.host_store &&
           (e->epoch != a->epoch ||
            !id128_equal(&e->instance, session_instance(a->session))))
        e = e->next;
    if (e && !a->start.host_store)
        return e;
    e = world_alloc(a->sim->world, sizeof(*e));
    e->instance = *session_instance(a->session);
    e->epoch = a->epoch;
    e->nodes = a->start.group_size;
    e->next = a->sim->epochs;
    a->sim->epochs = e;
    return e;
}

void sim_memory_begin(struct sim_agent *a)
{
    struct memory_set set = { .world = 0 };
    struct sim_epoch *e;

    if (!sim_memory_is_used(a))
        return;
    e = a->memory.epoch = epoch_of(a);
    a->memory.open = true;
    a->memory.writing = -1;
    if (sscanf(a->start.memory, "%" SCNu64 ".%" SCNu64 ".%" SCNu32, &set.epoch,
               &set.step, &set.world) == 3) {
        e->first_step = set.step;
        if (!restore_parts(a, &set)) {
            trace_line(&a->sim->trace, a->name, "lacks a part of %s", a->start.memory);
            probe_memory[PROBE_MEMORY_LACKED]++;
            e->failed = true; /* all begin with files */
        }
        e->failed |= world_chance(a->sim->world, a->sim->plan.restore_fails_per_mille);
    }
}

/* -- saving ------------------------------------------------------------------- */

static bool is_late(struct sim_agent *a, world_fn *fn, uint64_t generation)
{
    return a->end != AGENT_LIVES || generation != a->generation ||
           machine_defer(a->machine, fn, a, generation);
}

static void look_later(struct sim_agent *a, world_fn *fn, uint64_t us)
{
    world_after(a->sim->world, world_between(a->sim->world, us / 4, us), fn, a,
                a->generation);
}

/* Those of its workers that come first have committed, if it was in the middle. */
static void commit(struct sim_agent *a, uint32_t workers)
{
    struct sim_memory *m = &a->memory;
    bool shared = keeps_shared(a) && workers > 0;

    m->part[m->writing] = (struct sim_part){ .set = m->next,
                                             .first = a->start.first_rank,
                                             .count = workers,
                                             .has_shared = has_shared(a),
                                             .shared = shared };
    m->writing = -1;
    drop_old_parts(a);
}

static void on_copied(void *obj, uint64_t generation)
{
    struct sim_agent *a = obj, *other;
    struct sim_part part;

    if (is_late(a, on_copied, generation))
        return;
    other = agent_at(a, a->start.memory_neighbour);
    part = a->memory.part[is_older(&a->memory.part[0].set, &a->memory.part[1].set)];
    part.origin = SIM_PART_COPY;
    part.shared = false;
    if (other && other->memory.open && other->epoch == a->epoch &&
        !other->machine->paused)
        keep_part(other, &part);
    a->memory.epoch->kept[a->start.group_rank] = part.set.step;
}

static void on_save_time(void *obj, uint64_t generation)
{
    struct sim_agent *a = obj;
    struct sim_memory *m = &a->memory;
    struct sim_epoch *e = m->epoch;
    uint32_t own = a->start.group_rank;

    if (is_late(a, on_save_time, generation) || a->alive < a->start.workers)
        return;
    look_later(a, on_save_time, SAVE_US);
    if (m->writing >= 0) {
        commit(a, a->start.workers);
        e->saved[own] = m->next.step;
        look_later(a, on_copied, COPY_US);
        return;
    }
    if (e->running < e->nodes) /* all restore together */
        return;
    for (uint32_t i = 0; i < e->nodes; i++)
        if (e->saved[i] < e->saved[own] || e->kept[i] < e->saved[own])
            return;
    /* after a restore that has failed, all begin with a file of an earlier step */
    m->next = (struct memory_set){ .epoch = a->epoch,
                                   .step = 1 + (e->saved[own] ? e->saved[own]
                                                : e->failed   ? e->first_step / 2
                                                              : e->first_step),
                                   .world = a->start.world_size };
    m->writing = m->part[0].set.world == 0 ? 0
                 : m->part[1].set.world == 0
                     ? 1
                     : is_older(&m->part[1].set, &m->part[0].set);
    m->part[m->writing].set.world = 0;
}

void sim_memory_run(struct sim_agent *a)
{
    if (!sim_memory_is_used(a))
        return;
    a->memory.epoch->running++;
    look_later(a, on_save_time, SAVE_US);
}

/* -- the end ------------------------------------------------------------------ */

void sim_memory_end(struct sim_agent *a, char *text, size_t size)
{
    struct sim_memory *m = &a->memory;
    size_t used = 0;

    *text = '\0';
    if (!sim_memory_is_used(a))
        return;
    if (m->open && m->writing >= 0)
        commit(a, (uint32_t)world_below(a->sim->world, a->start.workers + 1));
    m->open = false;
    for (int i = 0; i < SIM_PARTS_MAX; i++) {
        struct sim_part *p = &m->part[i];
        int n;

        if (p->count == 0 && !p->shared)
            p->set.world = 0;
        if (p->set.world == 0 || p->count == 0)
            continue; /* a shared section alone has no word of its own */
        n = snprintf(text + used, size - used,
                     "%s%" PRIu64 ".%" PRIu64 ".%" PRIu32 ":%" PRIu32 "-%" PRIu32 "%s",
                     used ? " " : "", p->set.epoch, p->set.step, p->set.world, p->first,
                     p->first + p->count - 1,
                     !p->has_shared                      ? ""
                     : sim_memory_has_shared(a, &p->set) ? "+"
                                                         : "-");
        if (used + (size_t)n >= size) {
            text[used] = '\0';
            p->set.world = 0; /* what the rendezvous does not know is not held */
            continue;
        }
        used += (size_t)n;
    }
}
