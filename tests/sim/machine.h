/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tests/sim/world.h"

struct sim_agent;
struct deferred_call;
struct machine_plan;
struct path;
struct sim;

/* A computer with its clock and its path to the rendezvous;
 * runs one agent at a time. */
struct sim_machine {
    struct sim *sim;
    unsigned number;
    char address[16];
    struct machine_clock clock;
    struct path *path;
    const struct machine_plan *plan;
    struct sim_agent *agent; /* NULL: none runs */
    bool paused;
    bool crash_loop; /* its workers fail at every start */
    bool stubborn;   /* its workers do not stop in time */
    bool no_store;
    bool drained;  /* an agent that runs on it then may be let go */
    bool starting; /* an agent is about to be started */
    bool given_up; /* no other is started */
    unsigned starts;
    struct deferred_call *deferred, **last_deferred;
};

/* What its agent's workers are called, as a number; 0 is the default. */
#define MACHINE_ROLES 3
static inline uint32_t machine_role(const struct sim_machine *m)
{
    return m->number % MACHINE_ROLES;
}

struct sim_machine *machine_create(struct sim *s, unsigned number);
void machine_start_agent(struct sim_machine *m, uint64_t delay_us);
void machine_pause(struct sim_machine *m, uint64_t for_us);
/* A fault touches it. */
void machine_trouble(struct sim_machine *m);
/* From now on, for that long. */
void machine_trouble_for(struct sim_machine *m, uint64_t for_us);
/* While the machine is paused: true, and fn is called when it wakes. */
bool machine_defer(struct sim_machine *m, world_fn *fn, void *obj, uint64_t token);
